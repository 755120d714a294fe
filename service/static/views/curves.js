/** Curves: every class's probability as one logit or one parameter sweeps. */

import { table } from "../dom.js";
import { label } from "../names.js";
import { largestFirst, short } from "../numbers.js";
import { chosen, swept, title } from "../sweeps.js";
import { colours } from "../theme.js";

const MOST_CURVES = 10;
const MOST_CHANGES = 12;

export const curves = {
  id: "curves",
  title: "Curves",
  lead: "The probability of each class as one logit or one parameter varies. Dotted lines are kinks, where a class enters or leaves the support.",
  sweep: "logits",

  requests: (state, { described }) => [
    {
      body: swept(state, chosen(state, described, true), ["probabilities", "support_size"]),
      blame: "sweep",
    },
  ],

  draw(panel, [answer], state, { described }) {
    const sweep = chosen(state, described, true);
    const { probabilities } = answer;
    const places = drawnClasses(probabilities);
    const palette = colours().classes;
    const isStepped = sweep.values.length <= 25;
    const traces = places.map((at, number) => ({
      type: "scatter",
      mode: isStepped ? "lines+markers" : "lines",
      name: `class ${label(state, at)}`,
      x: sweep.values,
      y: probabilities.map((row) => row[at]),
      line: {
        color: palette[number % palette.length],
        width: 2.5,
        dash: number < 5 ? "solid" : "dash",
      },
      hovertemplate: "%{y:.4g}",
    }));
    const rest = state.logits.length - places.length;
    return [
      panel.figure("curves", {
        traces,
        layout: layoutOf(state, sweep, changes(answer.support_size, sweep.values), panel.isNarrow),
        label: this.say([answer], state, { described }),
        caption:
          rest === 0
            ? null
            : `The ${places.length} classes that become most probable; ${rest} more are not drawn.`,
        table: table(
          "Probabilities",
          [title(state, sweep.of), ...places.map((at) => `class ${label(state, at)}`)],
          probabilities.map((row, at) => [
            short(sweep.values[at], 6),
            ...places.map((place) => short(row[place], 6)),
          ]),
        ),
      }),
    ];
  },

  say([{ support_size: sizes }], state, { described }) {
    const { of, from, to } = chosen(state, described, true);
    const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
    const range = least === most ? `${least}` : `between ${least} and ${most}`;
    return (
      `${state.mapping.name} as ${title(state, of)} goes from ${short(from)} to ${short(to)}: ` +
      `${range} classes above zero.`
    );
  },
};

/** The classes whose highest probability is largest, in their order. */
function drawnClasses(probabilities) {
  const highest = probabilities[0].map((_, at) => Math.max(...probabilities.map((row) => row[at])));
  return largestFirst(highest, MOST_CURVES).sort((one, other) => one - other);
}

/** Where the size of the support changes: [value, size before, size after]. */
function changes(sizes, values) {
  const found = sizes
    .map((size, at) => [(values[at] + values[at - 1]) / 2, sizes[at - 1], size])
    .filter(([, before, after], at) => at > 0 && before !== after);
  return found.length <= MOST_CHANGES ? found : [];
}

function layoutOf(state, sweep, kinks, isNarrow) {
  const { muted, logits } = colours();
  const vertical = (x, style) => ({
    type: "line",
    x0: x,
    x1: x,
    yref: "paper",
    y0: 0,
    y1: 1,
    line: style,
  });
  const shapes = kinks.map(([x]) => vertical(x, { color: muted, width: 1, dash: "dot" }));
  const isWithin =
    sweep.now !== undefined &&
    sweep.now !== null &&
    sweep.now >= sweep.from &&
    sweep.now <= sweep.to;
  if (isWithin) shapes.push(vertical(sweep.now, { color: logits, width: 2 }));
  const at = (x) => (sweep.isLog ? Math.log10(x) : x);
  const now = {
    x: at(sweep.now),
    y: 1,
    yref: "paper",
    yanchor: "bottom",
    text: `now ${short(sweep.now)}`,
    showarrow: false,
    font: { color: muted },
  };
  return {
    height: isNarrow ? 340 : 400,
    showlegend: true,
    legend: { orientation: "h", y: 1.09, yanchor: "bottom", x: 0 },
    hovermode: "x unified",
    shapes,
    annotations: isWithin ? [now] : [],
    xaxis: {
      title: { text: title(state, sweep.of) },
      type: sweep.isLog ? "log" : "linear",
      ...(sweep.isLog && { dtick: isNarrow ? 1 : "D2" }),
      tickangle: 0,
    },
    yaxis: { title: { text: "probability" }, range: [-0.02, 1.02] },
  };
}
