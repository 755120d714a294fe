/** Choosing what a view varies, and from where to where. */

import { element } from "../dom.js";
import { choices, chosen } from "../sweeps.js";
import { complain, complaint } from "./field.js";

/** A row of controls above the views that sweep. */
export class SweepControls {
  constructor(store, root) {
    this.store = store;
    this.root = root;
    this.of = element("select", {
      id: "sweep-of",
      onchange: () => this.store.set({ sweep: { of: this.of.value } }),
    });
    const end = (id) =>
      element("input", { id, type: "number", step: "any", oninput: () => this.#range() });
    this.from = end("sweep-from");
    this.to = end("sweep-to");
    this.wrong = complaint("sweep");
    for (const input of [this.of, this.from, this.to]) {
      input.setAttribute("aria-describedby", "sweep-wrong");
    }
    const labelled = (text, input) =>
      element("div", { class: "labelled" }, element("label", { htmlFor: input.id }, text), input);
    root.append(
      element(
        "div",
        { class: "sweep", role: "group", "aria-label": "What varies" },
        labelled("Vary", this.of),
        labelled("from", this.from),
        labelled("to", this.to),
      ),
      this.wrong,
    );
  }

  show(state, view, described) {
    this.root.hidden = view.sweep === undefined;
    if (this.root.hidden) return;
    const withLogits = view.sweep === "logits";
    const there = choices(state, described, withLogits);
    const shape = JSON.stringify(there);
    if (this.of.dataset.shape !== shape) {
      this.of.dataset.shape = shape;
      this.of.replaceChildren(...there.map(([id, name]) => element("option", { value: id }, name)));
    }
    const sweep = chosen(state, described, withLogits);
    this.now = sweep;
    this.of.value = sweep.of;
    if (document.activeElement !== this.from) this.from.value = sweep.from;
    if (document.activeElement !== this.to) this.to.value = sweep.to;
  }

  complain(message) {
    complain(this.wrong, message ? [this.from, this.to] : [], message);
  }

  #range() {
    const [from, to] = [this.from, this.to].map(({ value }) =>
      value === "" ? NaN : Number(value),
    );
    if (Number.isNaN(from) || Number.isNaN(to))
      return this.complain("Both ends should be numbers.");
    if (from >= to) return this.complain(`The range should go up, not from ${from} to ${to}.`);
    this.complain("");
    return this.store.set({ sweep: { of: this.now.of, from, to } });
  }
}
