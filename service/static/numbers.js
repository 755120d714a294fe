/** Numbers as a person reads them. */

const SMALLEST = 1e-4;
const LARGEST = 1e6;

/** Four significant digits; an exact zero is "0", what there is none of is "none". */
export function short(value, digits = 4) {
  if (value === null || value === undefined) return "none";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text =
    size < SMALLEST || size >= LARGEST
      ? value.toExponential(digits - 2)
      : String(Number(value.toPrecision(digits)));
  return text.replaceAll("-", "−");
}

/** As many decimals for every number of a column. */
export function fixed(value, decimals = 4) {
  if (value === null || value === undefined) return "none";
  if (value === 0) return "0";
  const text = value.toFixed(decimals);
  return (Number(text) === 0 ? value.toExponential(1) : text).replaceAll("-", "−");
}

/**
 * The fraction of small denominator that a number is, such as "−1/12"; null: it is none.
 *
 * By continued fractions, whose convergents are the best approximations there are.
 */
export function fraction(value, largest = 1000, tolerance = 1e-12) {
  if (value === null || Number.isInteger(value)) return null;
  let [below, denominator] = [0, 1];
  let [numeratorBefore, numerator] = [1, Math.floor(value)];
  let rest = value - Math.floor(value);
  while (rest > tolerance && denominator <= largest) {
    const whole = Math.floor(1 / rest);
    rest = 1 / rest - whole;
    [numeratorBefore, numerator] = [numerator, whole * numerator + numeratorBefore];
    [below, denominator] = [denominator, whole * denominator + below];
    if (denominator <= largest && Math.abs(numerator / denominator - value) < tolerance) {
      return `${numerator}/${denominator}`.replace("-", "−");
    }
  }
  return null;
}

/** The number with the fraction that it is, when it is one. */
export function exact(value) {
  const part = fraction(value);
  return part === null ? short(value, 6) : `${part} = ${short(value, 6)}`;
}

/** Rounded to so many significant digits, so that it is short to write. */
export function rounded(value, digits = 6) {
  return Number(value.toPrecision(digits));
}

/** The places of the largest numbers, largest first, ties by place; null is the smallest. */
export function largestFirst(values, limit = Infinity) {
  return values
    .map((value, place) => [value ?? -Infinity, place])
    .sort(([one, at], [other, beside]) => (other > one ? 1 : other < one ? -1 : at - beside))
    .slice(0, limit)
    .map(([, place]) => place);
}
