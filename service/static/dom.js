/** Elements, made in one expression. */

/**
 * An element with these properties and children.
 *
 * @param {string} tag
 * @param {object} properties `on…` are listeners, `class` and names with a dash are attributes
 * @param {(Node | string | null)[]} children what is null is left out
 */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A table; the first cell of each row is its heading. Cells are texts or elements. */
export function table(caption, head, rows) {
  const cells = (row, at) =>
    row.map((cell, place) =>
      element(place === 0 || at === "head" ? "th" : "td", scope(place, at), cell),
    );
  return element(
    "table",
    {},
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...cells(head, "head"))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row, "body")))),
  );
}

function scope(place, at) {
  if (at === "head") return { scope: "col" };
  return place === 0 ? { scope: "row" } : {};
}

/** Says something to screen readers, once. */
export function announce(text) {
  const live = document.getElementById("live");
  if (live.textContent !== text) live.textContent = text;
}
