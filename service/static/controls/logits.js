/** Choosing logits: presets, a text of any form, and a slider a class. */

import { element } from "../dom.js";
import { label } from "../names.js";
import { parse } from "../parse.js";
import { complain, complaint } from "./field.js";
import { slider } from "./slider.js";

/** Rows worth looking at; in "Separated" sparsemax leaves one class, and two exact zeros. */
const PRESETS = [
  ["Close", [0, 0.25, 0.5]],
  ["Separated", [-1, 0.5, 3]],
  ["Equal", [1, 1, 1]],
  ["Tie", [0, 1, 1]],
  ["Ten", [2.2, 1.9, 1.5, 1.4, 0.9, 0.3, -0.2, -0.8, -1.5, -2.1]],
];

/** Classes up to which each has a slider (a count). */
const MOST_SLIDERS = 10;

const REACH = 5;

/** A fieldset that keeps the state's logits. */
export class LogitControls {
  #shown = "";
  #sliders = [];

  constructor(store) {
    this.store = store;
    const presets = PRESETS.map(([name, logits]) =>
      element(
        "button",
        { type: "button", onclick: () => this.#choose(logits), "data-preset": name },
        name,
      ),
    );
    this.presets = element("div", { class: "presets", role: "group", "aria-label": "Presets" });
    this.presets.append(...presets);
    this.text = element("textarea", {
      id: "logits",
      rows: 2,
      spellcheck: false,
      autocomplete: "off",
      oninput: () => this.#read(),
    });
    this.text.setAttribute("aria-describedby", "logits-wrong logits-about");
    this.wrong = complaint("logits");
    this.sliders = element("div", { class: "sliders" });
    const about =
      "Type or paste up to 1,000: JSON, CSV, a row or a column of a spreadsheet, with names " +
      "beside it if you like. null masks a class.";
    this.root = element(
      "fieldset",
      {},
      element("legend", {}, "Logits"),
      this.presets,
      element("label", { htmlFor: "logits" }, "One row"),
      this.text,
      this.wrong,
      element("p", { class: "about", id: "logits-about" }, about),
      this.sliders,
    );
  }

  show(state) {
    const { logits } = state;
    if (document.activeElement !== this.text) this.text.value = written(state);
    for (const [place, [, preset]] of PRESETS.entries()) {
      const isChosen = JSON.stringify(preset) === JSON.stringify(logits);
      this.presets.children[place].setAttribute("aria-pressed", String(isChosen));
    }
    const count = logits.length <= MOST_SLIDERS ? logits.length : 0;
    const reach = Math.max(REACH, ...logits.map((one) => Math.ceil(Math.abs(one ?? 0))));
    const shape = `${count} ${reach} ${state.names}`;
    if (shape !== this.#shown) {
      this.#shown = shape;
      this.#sliders = logits.slice(0, count).map((_, place) => this.#slider(state, place, reach));
      this.sliders.replaceChildren(...this.#sliders.map(({ root }) => root));
    }
    this.#sliders.forEach(({ show }, place) => show(logits[place]));
  }

  complain(message) {
    complain(this.wrong, [this.text], message);
  }

  #slider(state, place, reach) {
    const name = label(state, place);
    const range = { low: -reach, high: reach, isLog: false, step: 0.05 };
    const slide = slider({ ...range, label: `Logit of class ${name}` }, (value) => {
      const logits = [...this.store.state.logits];
      logits[place] = value;
      this.store.set({ logits });
    });
    const output = element("output", {});
    const root = element("div", { class: "slide" }, element("span", {}, name), slide.input, output);
    const show = (value) => {
      slide.show(value ?? -reach);
      output.textContent = value === null ? "masked" : String(value).replace("-", "−");
    };
    return { root, show };
  }

  #choose(logits) {
    this.text.blur();
    this.complain("");
    this.store.set({ logits, names: null });
  }

  #read() {
    let found;
    try {
      found = parse(this.text.value);
    } catch (error) {
      this.complain(error.message);
      return;
    }
    this.complain("");
    this.store.set(found);
  }
}

/** Logits as the text that would be read so. */
function written({ logits, names }) {
  if (names === null) return logits.map((one) => one ?? "null").join(", ");
  return logits.map((one, place) => `${names[place]}\t${one ?? "null"}`).join("\n");
}
