/** A view's requests as commands and programs that get the same numbers. */

import { SERVER, mediaType } from "./api.js";
import { Repeated, Varied } from "./series.js";

const WIDTH = 88;

/** The languages there are, with what writes each. */
export const LANGUAGES = [
  ["curl", curl],
  ["Python", python],
  ["JavaScript", javascript],
];

function curl(bodies) {
  const path = bodies.length === 1 ? "/v1/map" : "/v1/stream";
  const data = bodies.map((body) => JSON.stringify(body)).join("\n");
  return (
    `curl -s ${SERVER}${path} -H 'Content-Type: ${mediaType(path)}' ` +
    `--data-binary '${data.replaceAll("'", "'\\''")}'`
  );
}

function python(bodies) {
  const head = [
    bodies.length === 1
      ? "from probmap_client import Client"
      : "from probmap_client import Client, MapRequest",
    "",
    `with Client(${JSON.stringify(SERVER)}) as client:`,
  ];
  if (bodies.length === 1) {
    return [
      ...head,
      `    result = client.map(${pythonArguments(bodies[0], 4)})`,
      ...prints(bodies[0].outputs, 4),
    ].join("\n");
  }
  const requests = bodies.map((body) => `        MapRequest(${pythonArguments(body, 8)}),`);
  const outputs = [...new Set(bodies.flatMap((body) => body.outputs))];
  const shared = outputs.filter((name) => bodies.every((body) => body.outputs.includes(name)));
  return [
    ...head,
    "    requests = [",
    ...requests,
    "    ]",
    '    for result in client.stream(requests, errors="return"):',
    "        if isinstance(result, Exception):",
    "            print(result)",
    "            continue",
    '        print(result.mapping["name"])',
    ...prints(shared, 8),
  ].join("\n");
}

function prints(outputs, indent) {
  const pad = " ".repeat(indent);
  return outputs.map((name) => `${pad}print(${JSON.stringify(name)}, ${read(name)})`);
}

function read(name) {
  return name === "jacobian" ? "result.jacobian" : `result.${name}.tolist()`;
}

function pythonArguments({ logits, mapping, ...options }, indent) {
  const pad = " ".repeat(indent + 4);
  const lines = [
    `${pad}${literal(logits, PYTHON, indent + 4)},`,
    `${pad}${literal(mapping, PYTHON, indent + 4)},`,
    ...Object.entries(options).map(
      ([name, value]) => `${pad}${name}=${literal(value, PYTHON, indent + 4)},`,
    ),
  ];
  return `\n${lines.join("\n")}\n${" ".repeat(indent)}`;
}

function javascript(bodies) {
  const path = bodies.length === 1 ? "/v1/map" : "/v1/stream";
  const body =
    bodies.length === 1
      ? `JSON.stringify(${literal(bodies[0], JAVASCRIPT, 2)})`
      : 'requests.map((request) => JSON.stringify(request)).join("\\n")';
  const requests =
    bodies.length === 1 ? [] : [`const requests = ${literal(bodies, JAVASCRIPT, 0)};`];
  const show =
    bodies.length === 1
      ? ["console.log(JSON.stringify(await response.json()));"]
      : ["console.log((await response.text()).trim());"];
  return [
    ...requests,
    `const response = await fetch(${JSON.stringify(SERVER + path)}, {`,
    '  method: "POST",',
    `  headers: { "Content-Type": ${JSON.stringify(mediaType(path))} },`,
    `  body: ${body},`,
    "});",
    "if (!response.ok) throw new Error((await response.json()).detail);",
    ...show,
  ].join("\n");
}

const PYTHON = {
  atom: (value) =>
    ({ null: "None", true: "True", false: "False" })[String(value)] ?? JSON.stringify(value),
  key: (name) => JSON.stringify(name),
  repeated: (row, times) => `[${row}] * ${times}`,
  varied: (row, values) => `[${row} for x in ${values}]`,
};

const JAVASCRIPT = {
  atom: (value) => JSON.stringify(value),
  key: (name) => (/^[a-z_]\w*$/i.test(name) ? name : JSON.stringify(name)),
  repeated: (row, times) => `Array(${times}).fill(${row})`,
  varied: (row, values) => `${values}.map((x) => ${row})`,
};

/** A value as a program writes it, on one line where it fits, else on several. */
function literal(value, language, indent) {
  if (value instanceof Repeated) {
    return language.repeated(literal(value.row, language, indent), value.times);
  }
  if (value instanceof Varied) {
    const cells = value.row.map((one, at) => (at === value.place ? "x" : language.atom(one)));
    return language.varied(`[${cells.join(", ")}]`, literal(value.values, language, indent));
  }
  if (value === null || typeof value !== "object") return language.atom(value);
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((one) => literal(one, language, indent + 4))
    : Object.entries(value).map(
        ([name, one]) => `${language.key(name)}: ${literal(one, language, indent + 4)}`,
      );
  const [open, close] = isList ? "[]" : "{}";
  const line = `${open}${parts.join(", ")}${close}`;
  if (line.length + indent <= WIDTH && !line.includes("\n")) return line;
  const pad = " ".repeat(indent + 4);
  const isNumbers = isList && value.every((one) => one === null || typeof one === "number");
  const lines = isNumbers ? wrapped(parts, WIDTH - indent - 4) : parts;
  return `${open}\n${lines.map((one) => `${pad}${one},`).join("\n")}\n${" ".repeat(indent)}${close}`;
}

/** Numbers, as many on a line as fit. */
function wrapped(parts, width) {
  const lines = [];
  for (const part of parts) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + part.length + 2 < width)
      lines.push(`${lines.pop()}, ${part}`);
    else lines.push(part);
  }
  return lines;
}
