/** Bars: the logits, the mapping and softmax side by side. */

import { table } from "../dom.js";
import { BASELINE, label } from "../names.js";
import { fixed, short } from "../numbers.js";
import { scrolled } from "../panel.js";
import { FIGURES, baseline, body, leftOut, shownClasses } from "../requests.js";
import { colours } from "../theme.js";

const BAR = 26;
const BAR_OF_MANY = 17;
const AROUND = 56;

export const bars = {
  id: "bars",
  title: "Bars",
  lead: `The row's logits, what the mapping makes of them, and ${BASELINE} at the same temperature.`,

  requests: (state) => [{ body: body(state, FIGURES) }, { body: baseline(state, FIGURES) }],

  draw(panel, [mapped, plain], state) {
    const [probabilities, others] = [mapped.probabilities[0], plain.probabilities[0]];
    const places = shownClasses(probabilities);
    const rows = places.map((at) => [state.logits[at], probabilities[at], others[at]]);
    panel.words("figures", scrolled(figures(mapped, plain, state), "Figures"));
    const rest = leftOut(probabilities, places);
    return [
      panel.figure("bars", {
        ...picture(rows, places, state, panel.isNarrow),
        label: this.say([mapped, plain], state),
        caption: rest,
        table: table(
          "Logits and probabilities",
          ["class", "logit", state.mapping.name, BASELINE],
          rows.map((row, at) => [
            label(state, places[at]),
            row[0] === null ? "masked" : short(row[0], 6),
            ...row.slice(1).map((one) => short(one, 12)),
          ]),
        ),
      }),
    ];
  },

  say([mapped, plain], state) {
    const [kept, others] = [mapped.support_size[0], plain.support_size[0]];
    const probabilities = mapped.probabilities[0];
    const largest = Math.max(...probabilities);
    const top = label(state, probabilities.indexOf(largest));
    return (
      `${state.mapping.name}: ${kept} of ${probabilities.length} classes above zero, ` +
      `the largest ${short(largest)} for class ${top}. ${BASELINE}: ${others} above zero.`
    );
  },
};

function figures(mapped, plain, state) {
  const classes = mapped.probabilities[0].length;
  const row = (name, show) => [name, show(mapped), show(plain)];
  return table(
    "",
    ["", state.mapping.name, BASELINE],
    [
      row("classes above zero", ({ support_size: [size] }) => `${size} of ${classes}`),
      row("entropy, nats", ({ entropy: [entropy] }) => short(entropy)),
      row("normalizer", ({ normalizer: [normalizer] }) => short(normalizer)),
    ],
  );
}

function picture(rows, places, state, isNarrow) {
  const { mapping, baseline: other, logits, muted } = colours();
  const names = places.map((at) => label(state, at));
  const bar = rows.length > 12 ? BAR_OF_MANY : BAR;
  const reach = Math.max(...rows.map((row) => Math.max(row[1], row[2])), 1e-9) * 1.22;
  const panels = [
    ["logits", logits],
    [state.mapping.name, mapping],
    [BASELINE, other],
  ];
  const block = rows.length * bar + AROUND;
  const traces = panels.map(([name, colour], at) => ({
    type: "bar",
    orientation: "h",
    name,
    x: rows.map((row) => row[at]),
    y: rows.map((_, row) => row),
    marker: { color: colour },
    text: rows.map((row) => (row[at] === null ? "masked" : at ? fixed(row[at]) : short(row[at]))),
    textposition: "outside",
    cliponaxis: false,
    hovertemplate: `class %{customdata}<br>${name} %{x}<extra></extra>`,
    customdata: names,
    xaxis: at === 0 ? "x" : `x${at + 1}`,
    yaxis: at === 0 ? "y" : `y${at + 1}`,
  }));
  const layout = { height: isNarrow ? 3 * block : block + 20, annotations: [], bargap: 0.28 };
  panels.forEach(([name], at) => {
    const number = at === 0 ? "" : at + 1;
    const across = isNarrow ? [0, 1] : [at / 3 + (at ? 0.02 : 0), (at + 1) / 3 - 0.03];
    const gap = AROUND / (3 * block);
    const down = isNarrow ? [1 - (at + 1) / 3 + gap * 0.35, 1 - at / 3 - gap * 0.6] : [0, 1];
    layout[`xaxis${number}`] = {
      domain: across,
      anchor: `y${number}`,
      range: at === 0 ? around(rows) : [0, reach],
      nticks: 4,
      zeroline: true,
      zerolinecolor: muted,
    };
    layout[`yaxis${number}`] = {
      domain: down,
      anchor: `x${number}`,
      range: [rows.length - 0.5, -0.5],
      tickvals: rows.map((_, row) => row),
      ticktext: names,
      showticklabels: isNarrow || at === 0,
      showgrid: false,
      zeroline: false,
    };
    layout.annotations.push({
      text: name,
      font: { weight: 700, size: 14 },
      x: across[0],
      y: down[1],
      xref: "paper",
      yref: "paper",
      xanchor: "left",
      yanchor: "bottom",
      yshift: 6,
      showarrow: false,
    });
  });
  return { traces, layout };
}

/** The range of the logits, with room for what stands beside their bars. */
function around(rows) {
  const present = rows.map(([logit]) => logit ?? 0);
  const [low, high] = [Math.min(0, ...present), Math.max(0, ...present)];
  const room = (high - low || 1) * 0.25;
  return [low < 0 ? low - room : 0, high > 0 ? high + room : 0];
}
