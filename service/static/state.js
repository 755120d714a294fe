/** What the page shows, and its form in the URL: a link shows the same picture. */

import { WORKED } from "./names.js";

/**
 * @typedef {object} State
 * @property {string} view the id of a view
 * @property {(number | null)[]} logits null masks a class
 * @property {string[] | null} names of the classes, where they have some
 * @property {{name: string}} mapping as a request gives it
 * @property {{name: string}[]} processors as a request gives them
 * @property {{of?: string, from?: number, to?: number}} sweep what varies in a view, and where
 */

/** The worked example. */
export const EXAMPLE = Object.freeze({
  view: "bars",
  logits: [0, 0.25, 0.5],
  names: null,
  mapping: { name: WORKED },
  processors: [],
  sweep: {},
});

/** The state, and whoever wants to know when it changes. */
export class Store {
  #listeners = [];

  constructor(state) {
    this.state = state;
  }

  /** Replaces these parts of the state. */
  set(parts) {
    this.state = { ...this.state, ...parts };
    for (const listener of this.#listeners) listener(this.state);
  }

  subscribe(listener) {
    this.#listeners.push(listener);
  }
}

/**
 * The part of a URL after its #. It is not sent to the server, so that logits get into no log.
 *
 * @param {State} state
 */
export function toFragment(state) {
  const pairs = [
    ["view", state.view],
    ["logits", state.logits.map((value) => value ?? "null").join(",")],
  ];
  if (state.names !== null) pairs.push(["names", JSON.stringify(state.names)]);
  pairs.push(...named("mapping", state.mapping));
  state.processors.forEach((step, place) => pairs.push(...named(`processors.${place}`, step)));
  for (const [key, value] of Object.entries(state.sweep)) pairs.push([`sweep.${key}`, text(value)]);
  return String(new URLSearchParams(pairs)).replaceAll("%2C", ",");
}

/**
 * The state that a fragment tells, and what of it could not be read, in words.
 *
 * @returns {{state: State, problems: string[]}}
 */
export function fromFragment(fragment) {
  const pairs = new Map(new URLSearchParams(fragment.replace(/^#/, "")));
  const problems = [];
  const state = { ...EXAMPLE, processors: [], sweep: {} };
  state.view = pairs.get("view") ?? EXAMPLE.view;
  const logits = readLogits(pairs.get("logits"));
  if (logits === null) problems.push("The link's logits could not be read; the example is shown.");
  else state.logits = logits;
  const names = readNames(pairs.get("names"), state.logits.length);
  if (names === undefined) problems.push("The link's class names could not be read.");
  else state.names = names;
  state.mapping = { name: pairs.get("mapping") ?? WORKED, ...under("mapping") };
  for (let place = 0; pairs.has(`processors.${place}`); place += 1) {
    const name = pairs.get(`processors.${place}`);
    state.processors.push({ name, ...under(`processors.${place}`) });
  }
  state.sweep = under("sweep");
  return { state, problems };

  function under(prefix) {
    const found = [...pairs].filter(([key]) => key.startsWith(`${prefix}.`));
    return Object.fromEntries(
      found
        .map(([key, value]) => [key.slice(prefix.length + 1), value])
        .filter(([key]) => /^[a-z_]+$/.test(key) && key !== "name")
        .map(([key, value]) => [key, parsed(value)]),
    );
  }
}

function named(prefix, { name, ...parameters }) {
  const pairs = Object.entries(parameters).map(([key, value]) => [`${prefix}.${key}`, text(value)]);
  return [[prefix, name], ...pairs];
}

function text(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function parsed(value) {
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

function readLogits(given) {
  if (given === undefined) return EXAMPLE.logits;
  const logits = given.split(",").map((one) => (one === "null" ? null : parsed(one)));
  const are = logits.every((one) => one === null || Number.isFinite(one));
  return are ? logits : null;
}

function readNames(given, classes) {
  if (given === undefined) return null;
  const names = parsed(given);
  const are = Array.isArray(names) && names.length === classes;
  return are && names.every((name) => typeof name === "string") ? names : undefined;
}
