/** Your own logits: what the chain of processors and the mapping make of a long row. */

import { element, table } from "../dom.js";
import { SHOWN, label } from "../names.js";
import { fixed, largestFirst, short } from "../numbers.js";
import { scrolled } from "../panel.js";
import { FIGURES, body } from "../requests.js";
import { colours } from "../theme.js";

const BAR = 17;

export const own = {
  id: "own",
  title: "Your own",
  lead: "Paste a row of logits into the controls, up to 1,000 classes, and add processors: the mapping before and after the chain, for the 50 largest classes.",

  requests: (state) => [
    { body: { ...body(state, FIGURES) } },
    { body: body(state, FIGURES, state.mapping, []) },
  ],

  draw(panel, [chained, alone], state) {
    const [after] = chained.probabilities;
    const [before] = alone.probabilities;
    const places = largestFirst(
      before.map((one, at) => Math.max(one, after[at])),
      SHOWN,
    );
    panel.words("chain", ...words(chained, alone, state, places));
    return [
      panel.figure("own", {
        ...picture(places, before, after, state),
        label: this.say([chained, alone], state),
      }),
      panel.words(
        "own-table",
        scrolled(
          table(
            "The classes drawn, most probable first",
            ["rank", "class", "logit", "without the chain", "with the chain"],
            places.map((at, rank) => [
              String(rank + 1),
              label(state, at),
              state.logits[at] === null ? "masked" : short(state.logits[at], 6),
              short(before[at], 6),
              short(after[at], 6),
            ]),
          ),
          "Classes",
        ),
      ),
    ];
  },

  say([chained, alone], state) {
    const [kept, all] = [chained.support_size[0], alone.support_size[0]];
    const chain = state.processors.map(({ name }) => name).join(", then ") || "no processors";
    return `${state.mapping.name} after ${chain}: ${kept} of ${state.logits.length} classes above zero, ${all} without.`;
  },
};

function words(chained, alone, state, places) {
  const [after] = chained.probabilities;
  const mass = places.reduce((sum, at) => sum + after[at], 0);
  const steps = state.processors.map(({ name }) => name);
  const route = ["logits", ...steps, state.mapping.name].join(" → ");
  const counted = `${chained.support_size[0]} of ${state.logits.length} classes above zero, ${alone.support_size[0]} without the chain; entropy ${short(chained.entropy[0])} nats, ${short(alone.entropy[0])} without.`;
  const shown =
    places.length < state.logits.length
      ? ` The ${places.length} classes shown hold ${(100 * mass).toFixed(2)} % of the mass.`
      : "";
  return [element("p", { class: "route" }, route), element("p", {}, counted + shown)];
}

function picture(places, before, after, state) {
  const { mapping, logits } = colours();
  const names = places.map((at) => label(state, at));
  const y = places.map((_, at) => at);
  const bar = (values, name, colour) => ({
    type: "bar",
    orientation: "h",
    name,
    x: places.map((at) => values[at]),
    y,
    marker: { color: colour },
    text: places.map((at) => fixed(values[at])),
    textposition: "outside",
    cliponaxis: false,
    customdata: names,
    hovertemplate: `class %{customdata}<br>${name} %{x:.4g}<extra></extra>`,
  });
  const reach = Math.max(...before, ...after) * 1.2;
  return {
    traces: [bar(after, "with the chain", mapping), bar(before, "without", logits)],
    layout: {
      height: places.length * 2 * BAR + 90,
      bargap: 0.25,
      showlegend: true,
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" },
      xaxis: { range: [0, reach], nticks: 6 },
      yaxis: {
        tickvals: y,
        ticktext: names,
        range: [places.length - 0.5, -0.5],
        showgrid: false,
        zeroline: false,
      },
    },
  };
}
