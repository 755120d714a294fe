/** The worked example: sparsemax, step by step. */

import { element, table } from "../dom.js";
import { BASELINE, SHOWN, WORKED, label } from "../names.js";
import { exact, fraction, largestFirst, short } from "../numbers.js";
import { scrolled } from "../panel.js";
import { body } from "../requests.js";
import { colours } from "../theme.js";

const OUTPUTS = ["probabilities", "normalizer", "support_size"];

export const worked = {
  id: "worked",
  title: "Step by step",
  lead: `How ${WORKED} finds its answer: sort, then lower the threshold τ class by class until the next class is not above it. The row and the temperature are those of the controls; processors are left out.`,

  refusal: ({ mapping }) =>
    mapping.temperature === 0
      ? "At temperature 0 there is nothing to divide by; choose more."
      : null,

  instead(state) {
    return [element("p", {}, this.refusal(state))];
  },

  requests: (state) =>
    [WORKED, BASELINE].map((name) => {
      const { temperature } = state.mapping;
      const mapping = { name, ...(temperature !== undefined && { temperature }) };
      return { body: body(state, OUTPUTS, mapping, []) };
    }),

  draw(panel, [answer, plain], state) {
    const steps = stepsOf(state);
    const stop = steps.findIndex(({ isAbove }) => !isAbove);
    const {
      probabilities: [found],
      normalizer: [threshold],
      support_size: [size],
    } = answer;
    const shown = steps.slice(0, SHOWN);
    panel.words(
      "steps",
      heading("1. Sort, and try every k"),
      scrolled(stepTable(shown, stop, state), "Steps"),
    );
    panel.words(
      "stop",
      heading("2. The last k that passes gives τ"),
      element("p", {}, verdict(stop, steps, state)),
      element(
        "p",
        { class: "result" },
        "τ = ",
        element("strong", { id: "threshold" }, exact(threshold)),
      ),
      heading("3. Subtract τ, and cut at zero: p = max(z − τ, 0)"),
    );
    const order = shown.map(({ place }) => place);
    return [
      panel.figure("worked", {
        ...picture(shown, threshold, state, panel.isNarrow),
        label: this.say([answer], state),
        table: table(
          "Probabilities",
          ["class", "z", "z − τ", `p of ${WORKED}`, `p of ${BASELINE}`],
          shown.map(({ place, z }) => [
            label(state, place),
            short(z, 6),
            short(z - threshold, 6),
            exact(found[place]),
            short(plain.probabilities[0][place], 6),
          ]),
        ),
      }),
      panel.words(
        "answer",
        element(
          "p",
          { class: "result" },
          "p = ",
          element(
            "strong",
            { id: "answer" },
            `[${inOrder(order)
              .map((at) => fraction(found[at]) ?? short(found[at]))
              .join(", ")}]`,
          ),
        ),
        element(
          "p",
          {},
          `${size} of ${found.length} classes stay active. ${BASELINE} beside it: `,
          `[${inOrder(order)
            .map((at) => short(plain.probabilities[0][at]))
            .join(", ")}].`,
        ),
      ),
    ];
  },

  say([
    {
      normalizer: [threshold],
      support_size: [size],
      probabilities: [found],
    },
  ]) {
    return `${WORKED}: threshold ${exact(threshold)}, ${size} of ${found.length} classes above it.`;
  },
};

function heading(text) {
  return element("h3", {}, text);
}

function inOrder(places) {
  return [...places].sort((one, other) => one - other);
}

/** Every k: the k-th largest z, the sum so far, and the threshold if the support were these k. */
function stepsOf({ logits, mapping: { temperature = 1 } }) {
  let sum = 0;
  return largestFirst(logits)
    .filter((place) => logits[place] !== null)
    .map((place, at) => {
      const z = logits[place] / temperature;
      sum += z;
      const threshold = (sum - 1) / (at + 1);
      return { k: at + 1, place, z, sum, threshold, isAbove: z > threshold };
    });
}

function stepTable(steps, stop, state) {
  return table(
    "",
    ["k", "class", "k-th largest z", "sum of k", "τ = (sum − 1) / k", "z above τ?"],
    steps.map(({ k, place, z, sum, threshold, isAbove }, at) => [
      String(k),
      label(state, place),
      short(z, 6),
      short(sum, 6),
      exact(threshold),
      stop !== -1 && at > stop ? "not needed" : isAbove ? "yes ✓" : "no: stop ✕",
    ]),
  );
}

function verdict(stop, steps, state) {
  if (stop === -1) return `Every class passes, down to k = ${steps.length}.`;
  const { k, place } = steps[stop];
  return `k = ${k} stops: class ${label(state, place)} is not above its τ. So the support is the first ${k - 1}.`;
}

/** Columns up to z; what stands above τ is the probability. */
function picture(steps, threshold, state, isNarrow) {
  const { mapping, line, text, muted } = colours();
  const top = Math.max(...steps.map(({ z }) => z));
  const lowest = Math.min(threshold, ...steps.map(({ z }) => z));
  const room = 0.15 * (top - lowest);
  const floor = lowest - room;
  const names = steps.map(({ place }) => label(state, place));
  const x = steps.map((_, at) => at);
  const bar = (base, heights, colour, name) => ({
    type: "bar",
    x,
    base,
    y: heights,
    marker: { color: colour },
    name,
  });
  const above = steps.map(({ z }) => Math.max(z - threshold, 0));
  const below = steps.map(({ z }) => Math.min(z, threshold) - floor);
  const isFew = steps.length <= 12;
  return {
    traces: [
      { ...bar(floor, below, line, "below τ"), hoverinfo: "skip" },
      {
        ...bar(threshold, above, mapping, "above τ: the probability"),
        text: above.map((one) => (isFew ? short(one, 3) : "")),
        textposition: "outside",
        cliponaxis: false,
        customdata: names,
        hovertemplate: "class %{customdata}: p = %{y:.4g}<extra></extra>",
      },
    ],
    layout: {
      height: isNarrow ? 300 : 320,
      margin: { l: 8, r: 104, t: 34, b: 8 },
      barmode: "overlay",
      bargap: 0.35,
      showlegend: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      shapes: [
        {
          type: "line",
          xref: "paper",
          x0: 0,
          x1: 1,
          y0: threshold,
          y1: threshold,
          line: { color: text, width: 2, dash: "dash" },
        },
      ],
      annotations: [
        {
          xref: "paper",
          x: 1,
          xanchor: "left",
          xshift: 6,
          y: threshold,
          text: `τ = ${short(threshold, 3)}`,
          showarrow: false,
        },
      ],
      xaxis: {
        tickvals: x,
        ticktext: names,
        title: { text: "class, by falling logit" },
        showgrid: false,
        zeroline: false,
      },
      yaxis: {
        title: { text: "z = logit / temperature" },
        zerolinecolor: muted,
        range: [floor, top + room],
      },
    },
  };
}
