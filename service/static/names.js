/** The two mappings that the page knows by name. */

/** What every mapping is shown beside. */
export const BASELINE = "softmax";

/** The mapping of the worked example, which the page begins with. */
export const WORKED = "sparsemax";

/** Classes that a view shows at most; the rest is told of (a count). */
export const SHOWN = 50;

/** Classes that can be pasted (a count). */
export const MAX_CLASSES = 1000;

/** A class by its name where it was given one, else by its id. */
export function label(state, place) {
  return state.names?.[place] ?? String(place);
}
