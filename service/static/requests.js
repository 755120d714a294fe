/** Bodies of /v1/map, made from the state. */

import { BASELINE, SHOWN } from "./names.js";
import { largestFirst } from "./numbers.js";

/** The outputs of a view that shows figures beside the probabilities. */
export const FIGURES = ["probabilities", "support_size", "entropy", "normalizer"];

/** The state's row through a mapping, the state's own unless another is given. */
export function body(state, outputs, mapping = state.mapping, processors = state.processors) {
  return {
    logits: [state.logits],
    mapping,
    ...(processors.length > 0 && { processors }),
    outputs,
  };
}

/** What the mapping is shown beside: the same row and chain, at the same temperature. */
export function baseline(state, outputs) {
  const { temperature } = state.mapping;
  const mapping = { name: BASELINE, ...(temperature !== undefined && { temperature }) };
  return body(state, outputs, mapping);
}

/** The classes that a view shows: all in order, or of very many the most probable. */
export function shownClasses(probabilities) {
  const places = largestFirst(probabilities, SHOWN);
  return probabilities.length > SHOWN ? places : places.sort((one, other) => one - other);
}

/** What of a row is not shown, in words; null: all of it is. */
export function leftOut(probabilities, places) {
  const rest = probabilities.length - places.length;
  if (rest === 0) return null;
  const mass = places.reduce((sum, place) => sum + probabilities[place], 0);
  const share = (100 * mass).toFixed(mass > 0.9995 ? 2 : 1);
  return `The ${places.length} most probable of ${probabilities.length} classes; they hold ${share} % of the mass.`;
}
