/** A control for one parameter, made from what the server says of it. */

import { element } from "../dom.js";
import { bounds, span } from "../fields.js";
import { slider } from "./slider.js";

let made = 0;

/** A message beside a control. */
export function complaint(id) {
  return element("p", { class: "complaint", id: `${id}-wrong`, role: "alert" });
}

/** Says beside a control what is wrong with it; "" takes it back. */
export function complain(where, controls, message) {
  where.textContent = message;
  for (const control of controls) {
    if (message) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
  }
}

/**
 * The control of a parameter.
 *
 * @param {object} parameter its description
 * @param {number} classes how many the row has
 * @param {(value: unknown) => void} changed told of a new value; undefined: the default
 * @returns {{root: Element, show: (value: unknown) => void, complain: (message: string) => void}}
 */
export function field(parameter, classes, changed) {
  made += 1;
  const id = `field-${made}-${parameter.name}`;
  const wrong = complaint(id);
  const about = element("p", { class: "about", id: `${id}-about` }, told(parameter));
  const tell = (value) => {
    complain(wrong, inputs, "");
    changed(value);
  };
  const kind = control(parameter, classes, id, tell, (message) => complain(wrong, inputs, message));
  const { inputs } = kind;
  for (const input of inputs) input.setAttribute("aria-describedby", `${id}-wrong ${id}-about`);
  const name = element("label", { htmlFor: id }, parameter.name);
  const root = element("div", { class: "field", "data-field": parameter.name });
  root.append(name, element("div", { class: "inputs" }, ...inputs), wrong, about);
  return { root, show: kind.show, complain: (message) => complain(wrong, inputs, message) };
}

function told(parameter) {
  const range = bounds(parameter);
  return parameter.description + (range === null ? "" : ` Range: ${range}.`);
}

function control(parameter, classes, id, tell, refuse) {
  if (parameter.choices) return choice(parameter, id, tell);
  if (parameter.type === "boolean") return flag(parameter, id, tell);
  if (parameter.kind === "per_row") return number(parameter, classes, id, tell, refuse);
  return list(parameter, id, tell, refuse);
}

function choice(parameter, id, tell) {
  const options = parameter.choices.map((value) => element("option", { value }, value));
  const input = element("select", { id, onchange: () => tell(input.value) }, ...options);
  const show = (value) => (input.value = value ?? parameter.default);
  return { inputs: [input], show };
}

function flag(parameter, id, tell) {
  const input = element("input", { id, type: "checkbox", onchange: () => tell(input.checked) });
  return { inputs: [input], show: (value) => (input.checked = value ?? parameter.default) };
}

function number(parameter, classes, id, tell, refuse) {
  const { low, high, isLog, step } = span(parameter, classes);
  const input = element("input", {
    id,
    type: "number",
    step,
    inputMode: "decimal",
    placeholder: parameter.default ?? "off",
    oninput: () => {
      if (input.validity.badInput) return refuse(`${parameter.name} should be a number.`);
      const value = input.value === "" ? undefined : Number(input.value);
      slide.show(value ?? parameter.default ?? low);
      return tell(value);
    },
  });
  const slide = slider({ low, high, isLog, step, label: `${parameter.name}, slider` }, (value) => {
    input.value = value;
    tell(value);
  });
  const show = (value) => {
    if (document.activeElement !== input) input.value = value ?? "";
    slide.show(value ?? parameter.default ?? low);
  };
  return { inputs: [slide.input, input], show };
}

function list(parameter, id, tell, refuse) {
  const input = element("input", {
    id,
    type: "text",
    autocomplete: "off",
    spellcheck: false,
    oninput: () => {
      const cells = input.value.split(/[\s,;]+/).filter((cell) => cell !== "");
      const values = cells.map(Number);
      const bad = values.findIndex((value) => !Number.isFinite(value));
      if (bad !== -1) return refuse(`“${cells[bad]}” is no number; write them as 1, 2, 3.`);
      return tell(values);
    },
  });
  const show = (value) => {
    if (document.activeElement !== input) input.value = (value ?? []).join(", ");
  };
  return { inputs: [input], show };
}
