/** Compare: every mapping on the same row, in small multiples. */

import { Problem } from "../api.js";
import { element, table } from "../dom.js";
import { begun } from "../fields.js";
import { label } from "../names.js";
import { fixed, short } from "../numbers.js";
import { body } from "../requests.js";
import { colours } from "../theme.js";

/** Classes that a small picture shows (a count). */
const MOST = 20;

export const compare = {
  id: "compare",
  title: "Compare",
  lead: "Every mapping on the same row: the chosen one as the controls say, the others as they begin, at the same temperature where they take it.",

  requests: (state, { mappings }) =>
    mappings.map((described) => ({
      body: body(state, ["probabilities", "support_size"], ofSame(state, described)),
      blame: "panel",
    })),

  draw(panel, answers, state, { mappings, choose }) {
    const grid = panel.part("grid", () => element("div", { class: "multiples" }));
    return mappings.flatMap((described, at) => {
      const { name } = described;
      const card = panel.part(`card-${name}`, () => cardOf(name, choose));
      if (card.parentNode !== grid) grid.append(card);
      const isChosen = name === state.mapping.name;
      card.querySelector("button").setAttribute("aria-pressed", String(isChosen));
      const said = card.querySelector(".complaint");
      const answer = answers[at];
      const isProblem = answer instanceof Problem;
      said.textContent = isProblem ? (answer.errors[0]?.message ?? answer.message) : "";
      if (isProblem) return [];
      return [drawOne(panel, card, name, answer, state)];
    });
  },

  say(answers, state, { mappings }) {
    const good = answers.filter((answer) => !(answer instanceof Problem));
    const sparse = good.filter(({ support_size: [size] }) => size < state.logits.length).length;
    return `${good.length} of ${mappings.length} mappings answered; ${sparse} of them give some class exactly zero.`;
  },
};

/** The state's own mapping, or another as it begins at the state's temperature if it takes that. */
function ofSame({ mapping, logits }, described) {
  if (described.name === mapping.name) return mapping;
  const made = begun(described, logits.length);
  const { temperature } = mapping;
  const parameter = described.parameters.find(({ name }) => name === "temperature");
  const isTaken =
    parameter &&
    temperature !== undefined &&
    !(temperature <= parameter.exclusive_minimum && parameter.exclusive_minimum !== null);
  return isTaken ? { ...made, temperature } : made;
}

function cardOf(name, choose) {
  const button = element("button", { type: "button", onclick: () => choose(name) }, name);
  return element(
    "div",
    { class: "multiple" },
    element("h3", {}, button),
    element("p", { class: "complaint" }),
  );
}

function drawOne(panel, card, name, { probabilities: [values], support_size: [size] }, state) {
  const places = values.map((_, at) => at).slice(0, MOST);
  const { mapping, classes, muted } = colours();
  const isFew = places.length <= 5;
  const rest = values.length - places.length;
  return panel.figure(`figure-${name}`, {
    into: card,
    traces: [
      {
        type: "bar",
        x: places,
        y: places.map((at) => values[at]),
        marker: { color: name === state.mapping.name ? mapping : classes[9] },
        text: places.map((at) => (isFew ? fixed(values[at], 3) : "")),
        textposition: "outside",
        cliponaxis: false,
        hovertemplate: "class %{customdata}: %{y:.4g}<extra></extra>",
        customdata: places.map((at) => label(state, at)),
      },
    ],
    layout: {
      height: 150,
      bargap: 0.3,
      margin: { l: 4, r: 4, t: 20, b: 4 },
      font: { size: 11, color: colours().text, family: "system-ui, sans-serif" },
      xaxis: {
        tickvals: isFew ? places : [],
        ticktext: isFew ? places.map((at) => label(state, at)) : [],
        showgrid: false,
        zeroline: false,
      },
      yaxis: { range: [0, 1.1], tickvals: [0, 0.5, 1], zerolinecolor: muted },
    },
    label: `${name}: ${size} of ${values.length} classes above zero, the largest ${short(Math.max(...values))}.`,
    caption: rest > 0 ? `the first ${MOST} of ${values.length} classes` : null,
    table: table(
      "",
      ["class", "p"],
      places.map((at) => [label(state, at), short(values[at], 6)]),
    ),
  });
}
