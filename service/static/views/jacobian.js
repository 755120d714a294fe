/** The Jacobian as a heat map: how each probability answers to each logit. */

import { element, table } from "../dom.js";
import { SHOWN, label } from "../names.js";
import { short } from "../numbers.js";
import { body, leftOut, shownClasses } from "../requests.js";
import { colours } from "../theme.js";

/** Classes up to which every number is written into its cell (a count). */
const MOST_WRITTEN = 6;

export const jacobian = {
  id: "jacobian",
  title: "Jacobian",
  lead: "∂p/∂x: how much the probability of a row's class changes when the logit of a column's class does. Columns sum to zero, since probabilities sum to one; rows do where a shift of all logits changes nothing.",

  requests: (state) => [
    {
      body: {
        ...body(state, ["probabilities", "jacobian"]),
        jacobian: { form: state.logits.length > SHOWN ? "factors" : "dense" },
      },
    },
  ],

  draw(panel, [answer], state) {
    const whole = matrix(answer.jacobian);
    const places = shownClasses(answer.probabilities[0]);
    const cells = places.map((row) => places.map((column) => whole.at(row, column)));
    const sums = {
      rows: places.map((row) => whole.rowSum(row)),
      columns: places.map((column) => whole.columnSum(column)),
    };
    const names = places.map((at) => label(state, at));
    return [
      panel.figure("jacobian", {
        traces: pictures(cells, sums, names),
        layout: layoutOf(names, panel),
        label: this.say([answer], state),
        caption: leftOut(answer.probabilities[0], places),
        table: table(
          "Derivatives",
          ["∂p of class ↓ by logit of class →", ...names, "row sum"],
          [
            ...cells.map((row, at) => [names[at], ...[...row, sums.rows[at]].map(written)]),
            ["column sum", ...sums.columns.map(written), ""],
          ],
        ),
      }),
      panel.words("sums", element("p", {}, spoken(whole, state.logits.length))),
    ];
  },

  say([answer], state) {
    const whole = matrix(answer.jacobian);
    return `Jacobian of ${state.mapping.name}, ${state.logits.length} × ${state.logits.length}. ${spoken(whole, state.logits.length)}`;
  },
};

/** A Jacobian that was answered dense, or as diag(d) − L Rᵀ. */
function matrix(answered) {
  if (Array.isArray(answered)) {
    const [cells] = answered;
    const sum = (numbers) => numbers.reduce((total, one) => total + one, 0);
    return {
      at: (row, column) => cells[row][column],
      rowSum: (row) => sum(cells[row]),
      columnSum: (column) => sum(cells.map((row) => row[column])),
    };
  }
  const [diagonal] = answered.diagonal;
  const [left] = answered.left;
  const [right] = answered.right;
  const dot = (one, other) => one.reduce((sum, value, at) => sum + value * other[at], 0);
  const total = (rows) =>
    (rows[0] ?? []).map((_, at) => rows.reduce((sum, row) => sum + row[at], 0));
  const [allLeft, allRight] = [total(left), total(right)];
  return {
    at: (row, column) => (row === column ? diagonal[row] : 0) - dot(left[row], right[column]),
    rowSum: (row) => diagonal[row] - dot(left[row], allRight),
    columnSum: (column) => diagonal[column] - dot(allLeft, right[column]),
  };
}

/** Sums of rounded numbers that are zero but for the rounding are said to be zero. */
function written(value) {
  return Math.abs(value) < 1e-12 ? "0" : short(value);
}

function spoken(whole, classes) {
  const places = Array.from({ length: classes }, (_, at) => at);
  const largest = (sum) => Math.max(...places.map((at) => Math.abs(sum(at))));
  const said = (name, value) =>
    `${name} sums are ${value < 1e-9 ? "zero" : `up to ${short(value)} in size`}`;
  return `${said("Column", largest(whole.columnSum))}; ${said("row", largest(whole.rowSum))}.`;
}

function pictures(cells, { rows, columns }, names) {
  const { surface, text, heat } = colours();
  const size = Math.max(...[...cells, rows, columns].flat().map(Math.abs), 1e-12);
  const scale = {
    type: "heatmap",
    colorscale: [
      [0, heat[0]],
      [0.5, surface],
      [1, heat[1]],
    ],
    zmin: -size,
    zmax: size,
    // Without a gap plotly writes a style attribute, which the policy refuses.
    xgap: cells.length > 20 ? 1 : 2,
    ygap: cells.length > 20 ? 1 : 2,
    ...(cells.length <= MOST_WRITTEN && { texttemplate: "%{text}", textfont: { color: text } }),
  };
  const of = (z) => ({
    z,
    text: z.map((row) => row.map((one) => (Math.abs(one) < 1e-12 ? "0" : short(one, 3)))),
  });
  const ids = names.map((_, at) => at);
  const hover = (what) => `${what}<br>%{text}<extra></extra>`;
  return [
    {
      ...scale,
      ...of(cells),
      x: ids,
      y: ids,
      customdata: cells.map((row, at) => row.map((_, beside) => [names[at], names[beside]])),
      hovertemplate: hover("∂p of class %{customdata[0]} by logit of class %{customdata[1]}"),
      colorbar: {
        orientation: "h",
        thickness: 10,
        y: -0.06,
        yanchor: "top",
        len: 0.75,
        x: 0,
        xanchor: "left",
        outlinewidth: 0,
      },
    },
    {
      ...scale,
      ...of(rows.map((one) => [one])),
      y: ids,
      x: [0],
      xaxis: "x2",
      showscale: false,
      hovertemplate: hover("row sum"),
    },
    {
      ...scale,
      ...of([columns]),
      x: ids,
      y: [0],
      yaxis: "y2",
      showscale: false,
      hovertemplate: hover("column sum"),
    },
  ];
}

function layoutOf(names, panel) {
  const ticks = {
    tickvals: names.map((_, at) => at),
    ticktext: names,
    showgrid: false,
    zeroline: false,
    type: "linear",
    ...(names.length > 20 && {
      nticks: 10,
      tickmode: "array",
      tickvals: names.map((_, at) => at).filter((at) => at % 5 === 0),
      ticktext: names.filter((_, at) => at % 5 === 0),
    }),
  };
  const sum = { tickvals: [0], ticktext: ["Σ"], showgrid: false, zeroline: false };
  const width = Math.min(panel.root.clientWidth, 560);
  return {
    height: width + 40,
    width,
    xaxis: {
      ...ticks,
      domain: [0, 0.84],
      side: "top",
      title: { text: "logit of class", standoff: 6 },
    },
    yaxis: {
      ...ticks,
      domain: [0.16, 1],
      autorange: "reversed",
      title: { text: "probability of class", standoff: 12 },
    },
    xaxis2: { ...sum, domain: [0.87, 1], side: "top", anchor: "y" },
    yaxis2: { ...sum, domain: [0, 0.13], anchor: "x" },
  };
}
