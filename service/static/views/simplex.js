/** The simplex of three classes: where the row goes, and its way as a parameter sweeps. */

import { element, table } from "../dom.js";
import { BASELINE, label } from "../names.js";
import { largestFirst, short } from "../numbers.js";
import { baseline, body } from "../requests.js";
import { chosen, swept } from "../sweeps.js";
import { colours } from "../theme.js";

const CLASSES = 3;
const OUTPUTS = ["probabilities", "support_size"];
const HEIGHT = Math.sqrt(3) / 2;

/** Where the corners are drawn: class 0 on the left, 1 on the right, 2 on top. */
const CORNERS = [
  [0, 0],
  [1, 0],
  [0.5, HEIGHT],
];

/** How far outside the triangle a point is drawn at most (in sides of the triangle). */
const OUTSIDE = 0.45;

/** Parts into which lines divide each side (a count). */
const PARTS = 5;

export const simplex = {
  id: "simplex",
  title: "Simplex",
  lead: "Every distribution over three classes is a point of this triangle: a corner is one class alone, an edge leaves one class out.",
  sweep: "parameters",

  refusal: ({ logits }) =>
    logits.length === CLASSES
      ? null
      : `A triangle takes three classes; the row has ${logits.length}.`,

  instead(state, { store }) {
    const largest = largestFirst(state.logits, CLASSES).sort((one, other) => one - other);
    const keep = () =>
      store.set({
        logits: largest.map((at) => state.logits[at]),
        names: largest.map((at) => label(state, at)),
      });
    const message = element("p", {}, this.refusal(state));
    if (state.logits.length < CLASSES) return [message];
    return [
      message,
      element("button", { type: "button", onclick: keep }, "Take its three largest"),
    ];
  },

  requests: (state, { described }) => [
    { body: body(state, OUTPUTS) },
    { body: baseline(state, OUTPUTS) },
    { body: swept(state, chosen(state, described, false), OUTPUTS), blame: "sweep" },
  ],

  draw(panel, answers, state, { described }) {
    const sweep = chosen(state, described, false);
    const [[point], [plain], path] = answers.map(({ probabilities }) => probabilities);
    const away = projected(state, point);
    const line = away === null ? null : seen(away, point);
    const traces = [
      ...grid(),
      ...way(path, sweep),
      ...(line === null ? [] : [projection(line)]),
      marker(plain, BASELINE, { color: colours().baseline, symbol: "diamond", size: 13 }),
      marker(point, state.mapping.name, { color: colours().mapping, symbol: "circle", size: 15 }),
    ];
    const width = Math.min(panel.root.clientWidth, 620);
    return [
      panel.figure("simplex", {
        traces,
        layout: layoutOf(state, line, Math.max(width * 0.9, 320)),
        label: this.say(answers, state),
        caption: caption(sweep, state, away),
        table: table(
          "Points",
          ["point", ...state.logits.map((_, at) => `class ${label(state, at)}`)],
          [
            [state.mapping.name, ...point.map((one) => short(one, 12))],
            [BASELINE, ...plain.map((one) => short(one, 12))],
            ...path.map((row, at) => [
              `${sweep.of} = ${short(sweep.values[at], 6)}`,
              ...row.map((one) => short(one, 6)),
            ]),
          ],
        ),
      }),
    ];
  },

  say(
    [
      {
        probabilities,
        support_size: [size],
      },
    ],
    state,
  ) {
    const where = { 1: "a corner", 2: "an edge", 3: "the inside" }[size];
    const shares = probabilities[0].map((one, at) => `${short(one)} for class ${label(state, at)}`);
    return `${state.mapping.name} on ${where} of the triangle: ${shares.join(", ")}.`;
  },
};

function caption({ of, from, to }, state, away) {
  const line = `The line is ${state.mapping.name} as ${of} goes from ${short(from)} to ${short(to)}.`;
  if (away === null) return line;
  const nearest = `${line} This point is the Euclidean projection of z, the logits divided by the temperature: the nearest there is.`;
  return away.some((one) => one < 0)
    ? `${nearest} The dashed line leads to where z lies, seen from above the triangle.`
    : `${nearest} Seen from above the triangle, z lies on it.`;
}

/** Where barycentric coordinates that sum to 1 are drawn; outside the triangle too. */
function place(weights) {
  return [0, 1].map((axis) =>
    weights.reduce((sum, weight, corner) => sum + weight * CORNERS[corner][axis], 0),
  );
}

/**
 * The logits, dropped onto the plane of the simplex; null where the mapping is no projection, which
 * its optimality conditions tell: z − p is one number on the support, and z is below it elsewhere.
 */
function projected({ logits, mapping, processors }, point) {
  const { temperature = 1 } = mapping;
  if (temperature === 0 || processors.length > 0 || logits.includes(null)) return null;
  const z = logits.map((logit) => logit / temperature);
  const gaps = z.map((value, at) => value - point[at]);
  const thresholds = gaps.filter((_, at) => point[at] > 0);
  const [low, high] = [Math.min(...thresholds), Math.max(...thresholds)];
  const isNearest =
    high - low < 1e-9 && z.every((value, at) => point[at] > 0 || value <= high + 1e-9);
  if (!isNearest) return null;
  const shift = (z.reduce((sum, value) => sum + value, 0) - 1) / CLASSES;
  return z.map((value) => value - shift);
}

/** Where the line to the logits ends: at them, or on the way where they are far; and whether. */
function seen(away, point) {
  const [from, to] = [place(point), place(away)];
  const length = Math.hypot(to[0] - from[0], to[1] - from[1]);
  const share = Math.min(1, OUTSIDE / (length || 1));
  const end = from.map((value, axis) => value + share * (to[axis] - value));
  return { from, end, isWhole: share === 1 };
}

function projection({ from, end, isWhole }) {
  const colour = colours().logits;
  return {
    type: "scatter",
    mode: "lines+markers",
    showlegend: false,
    x: [from[0], end[0]],
    y: [from[1], end[1]],
    line: { color: colour, width: 2, dash: "dash" },
    marker: {
      color: colour,
      size: [0, 11],
      symbol: isWhole ? "square" : "arrow",
      angleref: isWhole ? "up" : "previous",
    },
    hovertext: ["", isWhole ? "the logits" : "towards the logits, further out"],
    hoverinfo: "text",
  };
}

/** The triangle and the lines of equal probability in it. */
function grid() {
  const { line, muted } = colours();
  const steps = Array.from({ length: PARTS - 1 }, (_, at) => (at + 1) / PARTS);
  const ends = steps.flatMap((share) =>
    [0, 1, 2].flatMap((corner) => {
      const [left, right] = [(corner + 1) % CLASSES, (corner + 2) % CLASSES];
      const weights = (other) => {
        const made = [0, 0, 0];
        made[corner] = share;
        made[other] = 1 - share;
        return made;
      };
      return [place(weights(left)), place(weights(right)), [null, null]];
    }),
  );
  const edge = [...CORNERS, CORNERS[0]];
  const lines = (points, colour, width) => ({
    type: "scatter",
    mode: "lines",
    showlegend: false,
    x: points.map(([x]) => x),
    y: points.map(([, y]) => y),
    line: { color: colour, width },
    hoverinfo: "skip",
  });
  return [lines(ends, line, 1), lines(edge, muted, 1.5)];
}

function way(path, { of, values, now }) {
  const points = path.map(place);
  const text = values.map((value) => `${of} = ${short(value)}`);
  const { mapping } = colours();
  const common = {
    type: "scatter",
    showlegend: false,
    x: points.map(([x]) => x),
    y: points.map(([, y]) => y),
    text,
    hovertemplate: "%{text}<extra></extra>",
  };
  const isFew = values.length <= 25;
  const line = {
    ...common,
    mode: isFew ? "lines+markers" : "lines",
    line: { color: mapping, width: 3 },
    opacity: 0.55,
  };
  const ends = {
    ...common,
    mode: "markers+text",
    x: [points[0][0], points.at(-1)[0]],
    y: [points[0][1], points.at(-1)[1]],
    text: [`   ${text[0]}`, text.at(-1)],
    textposition: ["middle right", "bottom center"],
    cliponaxis: false,
    marker: { color: mapping, size: 8, symbol: "circle-open" },
  };
  return now === undefined && values.length === 1 ? [line] : [line, ends];
}

function marker(weights, name, style) {
  const [x, y] = place(weights);
  return {
    type: "scatter",
    mode: "markers",
    name,
    showlegend: true,
    x: [x],
    y: [y],
    marker: { ...style, line: { color: colours().surface, width: 2 } },
    hovertemplate: `${name}: ${weights.map((one) => short(one)).join(", ")}<extra></extra>`,
  };
}

function layoutOf(state, line, height) {
  const points = line === null ? CORNERS : [...CORNERS, line.end];
  const range = (at) => {
    const along = points.map((point) => point[at]);
    return [Math.min(...along) - 0.16, Math.max(...along) + 0.12];
  };
  const axis = { showgrid: false, zeroline: false, showticklabels: false, showline: false };
  const names = CORNERS.map(([x, y], at) => ({
    x,
    y,
    text: `class ${label(state, at)}`,
    font: { weight: 700 },
    showarrow: false,
    // Beside the top, not on it: there the way to the logits may lead.
    xshift: at === 2 ? -40 : 0,
    yshift: at === 2 ? 6 : -18,
  }));
  return {
    height,
    showlegend: true,
    legend: { orientation: "h", x: 0, y: 1, xanchor: "left", yanchor: "bottom" },
    margin: { l: 8, r: 8, t: 8, b: 8 },
    annotations: names,
    xaxis: { ...axis, range: range(0), constrain: "domain" },
    yaxis: { ...axis, range: range(1), scaleanchor: "x" },
  };
}
