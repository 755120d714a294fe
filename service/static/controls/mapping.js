/** Choosing a mapping and its parameters. */

import { element } from "../dom.js";
import { begun } from "../fields.js";
import { complain, complaint, field } from "./field.js";

/** A fieldset that keeps the state's mapping. */
export class MappingControls {
  #shown = "";
  #fields = new Map();
  /** Parameters of mappings chosen before, so that a way back finds them again. */
  #kept = new Map();

  constructor(store, described) {
    this.store = store;
    this.described = new Map(described.map((one) => [one.name, one]));
    const options = described.map(({ name }) => element("option", { value: name }, name));
    const choose = () => this.choose(this.select.value);
    this.select = element("select", { id: "mapping", onchange: choose }, ...options);
    this.wrong = complaint("mapping");
    this.select.setAttribute("aria-describedby", "mapping-wrong mapping-summary");
    this.summary = element("p", { class: "about", id: "mapping-summary" });
    this.formula = element("p", { class: "formula" });
    this.parameters = element("div", { class: "fields" });
    this.root = element(
      "fieldset",
      {},
      element("legend", {}, "Mapping"),
      element("label", { class: "unseen", htmlFor: "mapping" }, "Mapping"),
      this.select,
      this.wrong,
      this.summary,
      element("details", {}, element("summary", {}, "Formula and limits"), this.formula),
      this.parameters,
    );
  }

  show({ mapping, logits }) {
    const described = this.described.get(mapping.name);
    const shape = `${mapping.name} ${logits.length}`;
    if (shape !== this.#shown) {
      this.#shown = shape;
      this.select.value = mapping.name;
      this.summary.textContent = described.summary;
      this.formula.textContent = described.description;
      this.#fields = new Map(
        described.parameters.map((one) => [
          one.name,
          field(one, logits.length, (value) => this.#change(one.name, value)),
        ]),
      );
      this.parameters.replaceChildren(...[...this.#fields.values()].map(({ root }) => root));
    }
    for (const [name, { show }] of this.#fields) show(mapping[name]);
  }

  /** Says what is wrong with a parameter, or with the mapping itself; "" takes all back. */
  complain(name, message) {
    if (message === "") for (const one of this.#fields.values()) one.complain("");
    if (this.#fields.has(name)) this.#fields.get(name).complain(message);
    else complain(this.wrong, [this.select], message);
  }

  /** Changes to another mapping, with the parameters it had when it was left. */
  choose(name) {
    const { mapping, logits } = this.store.state;
    this.#kept.set(mapping.name, mapping);
    const kept = this.#kept.get(name) ?? begun(this.described.get(name), logits.length);
    this.store.set({ mapping: fitted(kept, this.described.get(name), logits.length), sweep: {} });
  }

  #change(name, value) {
    const { [name]: _, ...others } = this.store.state.mapping;
    this.store.set({ mapping: value === undefined ? others : { ...others, [name]: value } });
  }
}

/** A mapping whose values a class are as many as there are classes, with 1 where one is new. */
export function fitted(mapping, described, classes) {
  const lists = described.parameters.filter(
    ({ kind, name }) => kind === "per_class" && Array.isArray(mapping[name]),
  );
  const fit = ({ name }) => [
    name,
    Array.from({ length: classes }, (_, place) => mapping[name][place] ?? 1),
  ];
  return { ...mapping, ...Object.fromEntries(lists.map(fit)) };
}
