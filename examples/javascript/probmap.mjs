/**
 * A client of probmap for Node 18 and browsers: one module, fetch, and nothing else.
 *
 *     const probmap = new Probmap("http://127.0.0.1:8000");
 *     const answer = await probmap.map({ logits: [[0, 0.5, 1]], mapping: "sparsemax" });
 */

const LENGTH = "Inference-Header-Content-Length";

if (new Uint8Array(Uint32Array.of(1).buffer)[0] !== 1) {
  throw new Error("typed arrays are sent as they lie in memory, which has to be little-endian");
}

/** The server said no: `message` says what is wrong, `code` is stable and meant for programs. */
export class ProbmapError extends Error {
  constructor(problem, status) {
    super(problem.detail);
    this.name = "ProbmapError";
    this.code = problem.code;
    this.status = status;
    this.requestId = problem.request_id;
    this.errors = problem.errors ?? [];
  }
}

export class Probmap {
  /**
   * @param {string} url of the server; "" is where the page came from
   * @param {{timeout?: number}} options the time for an answer that is no stream (milliseconds)
   */
  constructor(url = "", { timeout = 30_000 } = {}) {
    this.url = url.replace(/\/$/, "");
    this.timeout = timeout;
  }

  /** Probabilities and more; `request` is the JSON of /v1/map. */
  async map(request) {
    return (await this.#json("/v1/map", request)).json();
  }

  /** Tokens; `request` is the JSON of /v1/sample. */
  async sample(request) {
    return (await this.#json("/v1/sample", request)).json();
  }

  /**
   * The outputs asked for as typed arrays, without text in between.
   *
   * @param {string} mapping its name
   * @param {Float32Array} logits rows × classes, one row after the other; -Infinity masks a class
   * @param {{rows?: number, outputs?: string[], parameters?: object}} options
   */
  async infer(mapping, logits, { rows = 1, outputs = ["probabilities"], parameters = {} } = {}) {
    const header = new TextEncoder().encode(
      JSON.stringify({
        inputs: [
          {
            name: "logits",
            datatype: "FP32",
            shape: [rows, logits.length / rows],
            parameters: { binary_data_size: logits.byteLength },
          },
        ],
        outputs: outputs.map((name) => ({ name })),
        parameters: { ...parameters, binary_data_output: true },
      }),
    );
    const response = await this.#post(
      `/v2/models/${encodeURIComponent(mapping)}/infer`,
      new Blob([header, logits]),
      { "Content-Type": "application/octet-stream", [LENGTH]: String(header.length) },
    );
    const body = await response.arrayBuffer();
    let at = Number(response.headers.get(LENGTH));
    const answer = JSON.parse(new TextDecoder().decode(new Uint8Array(body, 0, at)));
    const arrays = { FP32: Float32Array, INT32: Int32Array, INT64: BigInt64Array };
    const tensors = {};
    for (const { name, datatype, parameters } of answer.outputs) {
      // A copy: in the body a tensor begins anywhere, an array at a multiple of its item's size.
      tensors[name] = new arrays[datatype](body.slice(at, at + parameters.binary_data_size));
      at += parameters.binary_data_size;
    }
    return tensors;
  }

  /**
   * The answers to many requests, each as soon as it has come; one that failed has an `error`.
   *
   * @param {object[]} requests of /v1/map, or with an `op` of /v1/sample or /v1/loss
   * @param {{signal?: AbortSignal}} options what ends the stream before its time
   */
  async *stream(requests, { signal = null } = {}) {
    const lines = requests.map((request) => JSON.stringify(request) + "\n");
    const headers = { "Content-Type": "application/x-ndjson" };
    const response = await this.#post("/v1/stream", lines.join(""), headers, signal);
    const texts = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    try {
      for (;;) {
        const { value, done } = await texts.read();
        if (done) throw new Error("the stream broke off");
        const parts = (rest + value).split("\n");
        rest = parts.pop();
        for (const answer of parts.filter(Boolean).map((line) => JSON.parse(line))) {
          if (!("done" in answer)) yield answer;
          else if (answer.done) return;
          else throw new ProbmapError(answer.error, response.status);
        }
      }
    } finally {
      // Who leaves the loop early wants no more: the server ends the work.
      await texts.cancel();
    }
  }

  #json(path, request) {
    return this.#post(path, JSON.stringify(request), { "Content-Type": "application/json" });
  }

  async #post(path, body, headers, signal = AbortSignal.timeout(this.timeout)) {
    const response = await fetch(this.url + path, { method: "POST", body, headers, signal });
    if (response.ok) return response;
    const text = await response.text();
    let problem = { detail: `the server answered ${response.status}: ${text}` };
    if (response.headers.get("Content-Type") === "application/problem+json") {
      problem = JSON.parse(text);
    }
    throw new ProbmapError(problem, response.status);
  }
}
