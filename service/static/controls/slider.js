/** A slider over an interval, linear or logarithmic. */

import { element } from "../dom.js";
import { rounded } from "../numbers.js";

const POSITIONS = 400;

/** Digits that dragging can reach; a number beside the slider takes any. */
const DIGITS = 2;

/**
 * @param {{low: number, high: number, isLog: boolean, step: number | "any", label: string}} range
 * @param {(value: number) => void} changed
 */
export function slider({ low, high, isLog, step, label }, changed) {
  const isStepped = step !== "any";
  const input = element("input", {
    type: "range",
    min: isStepped ? low : 0,
    max: isStepped ? high : POSITIONS,
    step: isStepped ? step : 1,
    "aria-label": label,
    oninput: () => {
      const value = valueAt(Number(input.value));
      input.setAttribute("aria-valuetext", value);
      changed(value);
    },
  });

  function valueAt(position) {
    if (isStepped) return position;
    if (position === 0) return low;
    if (position === POSITIONS) return high;
    const share = position / POSITIONS;
    if (isLog) return rounded(low * (high / low) ** share, DIGITS);
    const unit = 10 ** Math.floor(Math.log10((high - low) / 100));
    return rounded(Math.round((low + share * (high - low)) / unit) * unit);
  }

  function show(value) {
    const share = isLog
      ? Math.log(value / low) / Math.log(high / low)
      : (value - low) / (high - low);
    const within = Math.min(Math.max(Number.isNaN(share) ? 0 : share, 0), 1);
    input.value = isStepped ? value : Math.round(within * POSITIONS);
    input.setAttribute("aria-valuetext", value);
  }

  return { input, show };
}
