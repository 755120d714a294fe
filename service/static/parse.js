/** Logits as people have them: JSON, CSV, a row or a column of a spreadsheet. */

import { MAX_CLASSES } from "./names.js";

const MASKED = new Set(["", "null", "none", "masked", "-inf", "-infinity", "−inf", "−∞", "-∞"]);

/**
 * Reads logits, and the names of their classes where they have some.
 *
 * @param {string} text
 * @returns {{logits: (number | null)[], names: string[] | null}}
 * @throws {Error} whose message says what is wrong and what would be right
 */
export function parse(text) {
  const trimmed = text.trim();
  if (trimmed === "")
    throw new Error("There are no logits; write some numbers, such as 0, 0.5, 1.");
  const found = /^[[{]/.test(trimmed) ? fromJson(trimmed) : fromTable(trimmed);
  const { logits } = found;
  if (logits.length > MAX_CLASSES) {
    throw new Error(
      `There are ${logits.length} classes; this page takes up to ${MAX_CLASSES}. ` +
        "The server takes more: see the code below.",
    );
  }
  if (logits.every((one) => one === null)) {
    throw new Error("Every class is masked; leave at least one number.");
  }
  return found;
}

function fromJson(text) {
  let value;
  try {
    value = JSON.parse(text.replace(/-Infinity\b|-inf\b/gi, "null"));
  } catch (error) {
    throw new Error(`This is not JSON (${error.message}); write it as [0, 0.5, null].`);
  }
  if (!Array.isArray(value) && value.logits !== undefined) value = value.logits;
  if (Array.isArray(value) && Array.isArray(value[0])) {
    if (value.length > 1) throw new Error(`There are ${value.length} rows; paste one of them.`);
    value = value[0];
  }
  if (Array.isArray(value)) return { logits: value.map(ofJson), names: null };
  return { logits: Object.values(value).map(ofJson), names: Object.keys(value) };
}

function ofJson(value, place) {
  if (value === null || Number.isFinite(value)) return value;
  throw new Error(`Class ${place} is ${JSON.stringify(value)}; it should be a number or null.`);
}

function fromTable(text) {
  const lines = text.split(/\r?\n/);
  if (lines.length === 1) return { logits: cells(text).map(ofText), names: null };
  const rows = lines.map((line) => cells(line, false));
  const widest = Math.max(...rows.map((row) => row.length));
  if (hasHeading(rows)) rows.shift();
  if (widest === 1)
    return { logits: rows.map(([cell], place) => ofText(cell, place)), names: null };
  if (widest === 2) {
    if (rows.every(([first]) => number(first) !== undefined) && !isCounting(rows)) {
      throw new Error("There are two columns of numbers; paste one row or one column of logits.");
    }
    const logits = rows.map(([, cell = ""], place) => ofText(cell, place));
    return { logits, names: rows.map(([name]) => name) };
  }
  throw new Error(
    `There are ${rows.length} lines of up to ${widest} cells; paste one row, one column, or a ` +
      "column of names beside a column of logits.",
  );
}

function cells(line, isRow = true) {
  const separator = [/\t/, /;/, /,/].find((one) => one.test(line)) ?? (isRow ? /\s+/ : /\t/);
  return line.split(separator).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1"));
}

/** Whether the first of several lines names the columns. */
function hasHeading([first, ...others]) {
  const last = first.at(-1);
  return number(last) === undefined && others.some((row) => number(row.at(-1)) !== undefined);
}

/** Whether the first column is 0, 1, 2, … or 1, 2, 3, …: names rather than logits. */
function isCounting(rows) {
  const from = Number(rows[0][0]);
  return (from === 0 || from === 1) && rows.every(([cell], at) => Number(cell) === from + at);
}

function ofText(cell, place) {
  const value = number(cell);
  if (value !== undefined) return value;
  throw new Error(`Class ${place} is “${cell}”; it should be a number, or null to mask the class.`);
}

function number(cell) {
  if (MASKED.has(cell.toLowerCase())) return null;
  const value = Number(cell.replace(/^[−–]/, "-"));
  return Number.isFinite(value) ? value : undefined;
}
