/**
 * What probmap.mjs can do, in Node 18 or later:
 *
 *     node examples/javascript/demo.mjs [URL] [MAPPING]
 */

import { Probmap, ProbmapError } from "./probmap.mjs";

const [url = "http://127.0.0.1:8000", mapping = "sparsemax"] = process.argv.slice(2);
const probmap = new Probmap(url);
const print = (name, values) => console.log(name, JSON.stringify(values));

try {
  // Two rows; null masks a class, which gets exactly 0; each row has its own temperature.
  const logits = [
    [0, 0.5, 1],
    [1, null, 3],
  ];
  const request = { logits, mapping, temperature: [1, 4] };
  print("map", (await probmap.map(request)).probabilities);
  print("sample", (await probmap.sample({ ...request, samples: 5, seed: [7, 8] })).tokens);

  // The same as binary numbers, all rows with one temperature.

  const numbers = Float32Array.of(0, 0.5, 1, 1, -Infinity, 3);
  const outputs = ["probabilities", "support_offsets", "support_indices"];
  const parameters = { temperature: 2 };
  const tensors = await probmap.infer(mapping, numbers, { rows: 2, outputs, parameters });
  for (const name of outputs) console.log(name, tensors[name].join(" "));

  const requests = [1, 0.5, "cold"].map((temperature) => ({
    logits: [0, 0.5, 1],
    mapping,
    temperature,
  }));
  for await (const answer of probmap.stream(requests)) {
    print(`stream ${answer.index}`, answer.error?.detail ?? answer.probabilities);
  }
} catch (error) {
  if (error instanceof ProbmapError) console.error(`probmap: ${error.message} (${error.code})`);
  else console.error("probmap:", error.message, String(error.cause ?? ""));
  process.exitCode = 1;
}
