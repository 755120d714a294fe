/** The chain of processors that the logits take before the mapping. */

import { element } from "../dom.js";
import { begun } from "../fields.js";
import { complain, complaint, field } from "./field.js";

/** A fieldset that keeps the state's processors. */
export class ProcessorControls {
  #shown = null;
  #steps = [];

  constructor(store, described) {
    this.store = store;
    this.described = new Map(described.map((one) => [one.name, one]));
    this.list = element("ol", { class: "steps" });
    const options = described.map(({ name }) => element("option", { value: name }, name));
    this.choice = element("select", { id: "processor" }, ...options);
    this.wrong = complaint("processor");
    const add = element("button", { type: "button", onclick: () => this.#add() }, "Add");
    this.root = element(
      "fieldset",
      {},
      element("legend", {}, "Processors"),
      element("p", { class: "about" }, "Steps that the logits take first, in this order."),
      this.list,
      element("label", { htmlFor: "processor" }, "Next step"),
      element("div", { class: "inputs" }, this.choice, add),
      this.wrong,
    );
  }

  show({ processors, logits }) {
    const shape = `${processors.map(({ name }) => name)} ${logits.length}`;
    if (shape !== this.#shown) {
      this.#shown = shape;
      this.#steps = processors.map((step, place) => this.#step(step, place, logits.length));
      this.list.replaceChildren(...this.#steps.map(({ root }) => root));
    }
    this.#steps.forEach(({ fields }, place) => {
      for (const [name, { show }] of fields) show(processors[place][name]);
    });
  }

  /** Says what is wrong with a step's parameter or the step; "" takes all back. */
  complain(place, name, message) {
    complain(this.wrong, [this.choice], "");
    for (const step of this.#steps) {
      complain(step.wrong, [], "");
      for (const one of step.fields.values()) one.complain("");
    }
    const step = this.#steps[place];
    if (step === undefined) complain(this.wrong, message ? [this.choice] : [], message);
    else if (step.fields.has(name)) step.fields.get(name).complain(message);
    else complain(step.wrong, [], message);
  }

  #step({ name }, place, classes) {
    const described = this.described.get(name);
    const fields = new Map(
      described.parameters.map((one) => [
        one.name,
        field(one, classes, (value) => this.#change(place, one.name, value)),
      ]),
    );
    const button = (text, label, act) =>
      element("button", { type: "button", "aria-label": `${label} ${name}`, onclick: act }, text);
    const wrong = complaint(`step-${place}`);
    const root = element(
      "li",
      {},
      element(
        "div",
        { class: "step" },
        element("strong", {}, name),
        button("↑", "Move up", () => this.#move(place, -1)),
        button("↓", "Move down", () => this.#move(place, 1)),
        button("✕", "Remove", () => this.#remove(place)),
      ),
      element("p", { class: "about" }, described.summary),
      wrong,
      ...[...fields.values()].map((one) => one.root),
    );
    return { root, fields, wrong };
  }

  #add() {
    const { processors, logits } = this.store.state;
    const step = begun(this.described.get(this.choice.value), logits.length);
    this.store.set({ processors: [...processors, step] });
  }

  #change(place, name, value) {
    const processors = [...this.store.state.processors];
    const { [name]: _, ...others } = processors[place];
    processors[place] = value === undefined ? others : { ...others, [name]: value };
    this.store.set({ processors });
  }

  #move(place, by) {
    const processors = [...this.store.state.processors];
    const [step] = processors.splice(place, 1);
    const to = Math.min(Math.max(place + by, 0), processors.length);
    processors.splice(to, 0, step);
    this.#shown = null;
    this.store.set({ processors });
    this.list.children[to].querySelectorAll("button")[by < 0 ? 0 : 1].focus();
  }

  #remove(place) {
    this.#shown = null;
    this.store.set({ processors: this.store.state.processors.filter((_, at) => at !== place) });
    this.choice.focus();
  }
}
