/** The views as tabs: arrow keys walk, as the ARIA authoring practices have it. */

import { element } from "./dom.js";

const STEPS = { ArrowRight: 1, ArrowLeft: -1 };

export class Tabs {
  constructor(root, views, choose) {
    this.views = views;
    this.tabs = views.map(({ id, title }) =>
      element(
        "button",
        { type: "button", role: "tab", id: `tab-${id}`, onclick: () => choose(id) },
        title,
      ),
    );
    for (const tab of this.tabs) tab.setAttribute("aria-controls", "panel");
    root.append(...this.tabs);
    root.addEventListener("keydown", (event) => {
      const at = this.tabs.indexOf(document.activeElement);
      const last = views.length - 1;
      const to = { Home: 0, End: last }[event.key] ?? at + (STEPS[event.key] ?? NaN);
      if (Number.isNaN(to)) return;
      event.preventDefault();
      const there = (to + views.length) % views.length;
      this.tabs[there].focus();
      choose(views[there].id);
    });
  }

  show(view) {
    this.views.forEach(({ id }, at) => {
      const isShown = id === view.id;
      const tab = this.tabs[at];
      tab.tabIndex = isShown ? 0 : -1;
      if (isShown && tab.getAttribute("aria-selected") !== "true") {
        const { parentElement: row } = tab;
        row.scrollLeft = tab.offsetLeft - (row.clientWidth - tab.offsetWidth) / 2;
      }
      tab.setAttribute("aria-selected", String(isShown));
    });
    document.getElementById("panel").setAttribute("aria-labelledby", `tab-${view.id}`);
  }
}
