/** What the server's description of a parameter says about how to choose it. */

const HUGE = 1e6;

/** How far a range without an end reaches, in multiples of the default. */
const REACH = 50;

/** A value that a required parameter can start with. */
export function initial(parameter, classes) {
  if (parameter.choices) return parameter.choices[0];
  if (parameter.type === "boolean") return false;
  if (parameter.kind === "per_class") return Array(classes).fill(1);
  const one = start(parameter);
  return parameter.kind === "per_row_list" ? [one] : one;
}

/** The mapping or processor of a description, with what it requires. */
export function begun(described, classes) {
  const required = described.parameters.filter((parameter) => parameter.required);
  return {
    name: described.name,
    ...Object.fromEntries(required.map((one) => [one.name, initial(one, classes)])),
  };
}

/**
 * The interval in which a number is worth trying.
 *
 * @returns {{low: number, high: number, isLog: boolean, step: number | "any"}}
 */
export function span(parameter, classes) {
  const low = parameter.minimum ?? parameter.exclusive_minimum;
  const given = parameter.maximum ?? parameter.exclusive_maximum;
  const high = given !== null && given > HUGE ? null : given;
  const usual = parameter.default ?? 1;
  if (parameter.type === "integer") {
    const from = low ?? 0;
    const step = parameter.multiple_of ?? 1;
    return { low: from, high: high ?? from + Math.max(classes - 1, 1), isLog: false, step };
  }
  if (low !== null && high !== null) {
    const inset = (high - low) / 1000;
    const from = parameter.exclusive_minimum === null ? low : low + inset;
    const to = parameter.exclusive_maximum === null ? high : high - inset;
    return { low: from, high: to, isLog: low > 0, step: "any" };
  }
  if (low !== null && usual >= 1) {
    return { low: Math.max(usual / REACH, low), high: usual * REACH, isLog: true, step: "any" };
  }
  if (low !== null) {
    const reach = 4 * (usual || 1);
    const from = parameter.exclusive_minimum === null ? low : low + reach / 1000;
    return { low: from, high: low + reach, isLog: false, step: "any" };
  }
  if (high !== null) {
    const to = parameter.exclusive_maximum === null ? high : high - 0.01;
    return { low: high - 3, high: to, isLog: false, step: "any" };
  }
  return { low: -5, high: 5, isLog: false, step: "any" };
}

/** The bounds in words, such as "above 0, at most 1"; null: there are none. */
export function bounds(parameter) {
  const told = [
    [parameter.minimum, "at least"],
    [parameter.exclusive_minimum, "above"],
    [parameter.maximum, "at most"],
    [parameter.exclusive_maximum, "below"],
  ].filter(([bound]) => bound !== null && Math.abs(bound) < HUGE);
  return told.length === 0 ? null : told.map(([bound, word]) => `${word} ${bound}`).join(", ");
}

/** Whether a parameter is one number a row, so that one request can sweep it. */
export function isSwept(parameter) {
  return parameter.kind === "per_row" && ["number", "integer"].includes(parameter.type);
}

function start(parameter) {
  const low = parameter.minimum ?? parameter.exclusive_minimum;
  const high = parameter.maximum ?? parameter.exclusive_maximum;
  if (parameter.type === "integer") return low ?? 1;
  if (low !== null && high !== null) return (low + high) / 2;
  return low === null ? 1 : low + 1;
}
