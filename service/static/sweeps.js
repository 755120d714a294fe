/** What a view varies: a logit, or a parameter of one number a row; and where. */

import { isSwept, span } from "./fields.js";
import { label } from "./names.js";
import { rounded } from "./numbers.js";
import { Repeated, Varied } from "./series.js";

/** Points of a curve (a count), and of a row so long that they would be many numbers. */
const POINTS = 201;
const POINTS_OF_LONG_ROWS = 41;
const LONG_ROW = 100;

const LOGIT = "logit.";
const LOGIT_REACH = 4;

/** What can be swept: [id, what it is called]. */
export function choices(state, described, withLogits) {
  const parameters = described.parameters.filter(isSwept).map(({ name }) => [name, name]);
  if (!withLogits) return parameters;
  const logits = state.logits.map((_, at) => [
    `${LOGIT}${at}`,
    `logit of class ${label(state, at)}`,
  ]);
  return [...logits, ...parameters];
}

/**
 * The sweep that the state asks for, or else the first there is.
 *
 * @returns {{of: string, from: number, to: number, isLog: boolean, values: number[], now: number}}
 */
export function chosen(state, described, withLogits) {
  const there = choices(state, described, withLogits).map(([id]) => id);
  const of = there.includes(state.sweep.of) ? state.sweep.of : there[0];
  const range = of.startsWith(LOGIT) ? ofLogit(state, of) : ofParameter(state, described, of);
  const { from = range.low, to = range.high } = state.sweep.of === of ? state.sweep : {};
  const isLog = range.isLog && from > 0 && to > 0;
  return { of, from, to, isLog, now: range.now, values: values(state, from, to, isLog, range) };
}

/** A request whose rows are one row of the state each, at the values of the sweep. */
export function swept(state, sweep, outputs) {
  const { of, values: at } = sweep;
  const isLogit = of.startsWith(LOGIT);
  return {
    logits: isLogit
      ? new Varied(state.logits, placeOf(of), at)
      : new Repeated(state.logits, at.length),
    mapping: isLogit ? state.mapping : { ...state.mapping, [of]: at },
    ...(state.processors.length > 0 && { processors: state.processors }),
    outputs,
  };
}

/** What is swept, as an axis names it. */
export function title(state, of) {
  return of.startsWith(LOGIT) ? `logit of class ${label(state, placeOf(of))}` : of;
}

function placeOf(of) {
  return Number(of.slice(LOGIT.length));
}

function ofLogit(state, of) {
  const now = state.logits[placeOf(of)];
  const present = state.logits.filter((one) => one !== null);
  const centre = Math.round((now ?? present[0]) * 2) / 2;
  return { low: centre - LOGIT_REACH, high: centre + LOGIT_REACH, isLog: false, step: "any", now };
}

function ofParameter(state, described, of) {
  const parameter = described.parameters.find(({ name }) => name === of);
  const now = state.mapping[of] ?? parameter.default;
  return { ...span(parameter, state.logits.length), now };
}

function values(state, from, to, isLog, { step }) {
  const points = state.logits.length > LONG_ROW ? POINTS_OF_LONG_ROWS : POINTS;
  if (step !== "any") {
    const count = Math.min(Math.max(Math.floor((to - from) / step) + 1, 1), points);
    return Array.from({ length: count }, (_, at) => from + at * step);
  }
  return Array.from({ length: points }, (_, at) => {
    const share = at / (points - 1);
    if (at === 0) return from;
    if (at === points - 1) return to;
    return rounded(isLog ? from * (to / from) ** share : from + share * (to - from));
  });
}
