/** Where a view draws: figures, tables and words, kept from one drawing to the next. */

import { element, table } from "./dom.js";
import { layout } from "./theme.js";

/** Plotly without its own buttons: nothing in a figure needs a pointer. */
const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false };

/** Parts that are named again in a drawing stay; the others go. */
export class Panel {
  #parts = new Map();
  #used = [];

  constructor(root) {
    this.root = root;
  }

  /** Whether the panel is too narrow for figures side by side. */
  get isNarrow() {
    return this.root.clientWidth < 560;
  }

  /** Draws; what `draw` does not name again is removed. */
  async drawing(draw) {
    this.#used = [];
    const pending = draw(this) ?? [];
    for (const [id, part] of this.#parts) {
      if (this.#used.includes(id)) continue;
      for (const plot of part.querySelectorAll(".plot")) Plotly.purge(plot);
      part.remove();
      this.#parts.delete(id);
    }
    await Promise.all(pending);
  }

  clear() {
    return this.drawing(() => []);
  }

  /**
   * A figure with its text alternatives: a sentence, and a table of its numbers.
   *
   * @param {string} id
   * @param {{traces: object[], layout: object, label: string, caption?: string, table?: Element,
   *   into?: Element}} figure
   * @returns {Promise<void>} when it is drawn
   */
  figure(id, { traces, layout: parts, label, caption, table: numbers, into }) {
    const root = this.part(id, () =>
      element(
        "figure",
        {},
        element("figcaption", {}),
        element("div", { class: "plot", role: "img" }),
        element("div", { class: "numbers" }),
      ),
    );
    if (into && root.parentNode !== into) into.append(root);
    const [heading, plot, alternative] = root.children;
    heading.replaceChildren(caption ?? "");
    heading.hidden = !caption;
    plot.setAttribute("aria-label", label);
    plot.style.height = `${parts.height}px`;
    if (numbers) fill(alternative, numbers, label);
    return Plotly.react(plot, traces, layout(parts), CONFIG);
  }

  /** Words, or elements, made anew in every drawing. */
  words(id, ...children) {
    const root = this.part(id, () => element("div", { class: "words" }));
    root.replaceChildren(...children);
    return root;
  }

  /** A part of this id, made when there is none. */
  part(id, make) {
    if (!this.#parts.has(id)) this.#parts.set(id, make());
    const root = this.#parts.get(id);
    root.dataset.part = id;
    if (root.parentNode === null) this.root.append(root);
    this.#used.push(id);
    return root;
  }
}

/** A table that may be wider than its place, which is scrolled by keyboard too. */
export function scrolled(numbers, label) {
  return element(
    "div",
    { class: "scrolled", tabindex: 0, role: "region", "aria-label": label },
    numbers,
  );
}

/** Renews a table in its disclosure, and leaves that open or closed as it is. */
function fill(alternative, numbers, label) {
  const place = scrolled(numbers, `${label}, as a table`);
  const open = alternative.querySelector("details");
  if (open) open.lastChild.replaceWith(place);
  else {
    const summary = element("summary", {}, "Numbers as a table");
    alternative.append(element("details", {}, summary, place));
  }
}

export { table };
