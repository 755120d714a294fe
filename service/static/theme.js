/** The colours and layout of figures, read from the style sheet. */

/** The colours of this moment: light or dark. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: of("text"),
    muted: of("muted"),
    surface: of("surface"),
    line: of("line"),
    mapping: of("mapping"),
    baseline: of("baseline"),
    logits: of("logits"),
    heat: [of("heat-low"), of("heat-high")],
    classes: Array.from({ length: 10 }, (_, place) => of(`class-${place}`)),
  };
}

/** A layout with what all figures share. */
export function layout(parts) {
  const { text, line, surface } = colours();
  const axis = {
    gridcolor: line,
    zerolinecolor: line,
    linecolor: line,
    automargin: true,
    fixedrange: true,
  };
  const made = {
    paper_bgcolor: surface,
    plot_bgcolor: surface,
    font: { color: text, family: "system-ui, sans-serif", size: 13 },
    margin: { l: 8, r: 8, t: 34, b: 8 },
    dragmode: false,
    showlegend: false,
    hoverlabel: { font: { family: "system-ui, sans-serif" } },
    ...parts,
  };
  for (const name of Object.keys(made)) {
    if (/^[xy]axis\d*$/.test(name)) made[name] = { ...axis, ...made[name] };
  }
  made.xaxis ??= axis;
  made.yaxis ??= axis;
  return made;
}
