/** Calls to the server that the page came from. */

/** The server's root, two folders above this file. */
export const SERVER = new URL("../../", import.meta.url).href.replace(/\/$/, "");

let key = null;

/** Sends this key with every call; it is kept in memory alone. */
export function useKey(given) {
  key = given;
}

/** The server said no, or did not answer: `message` says why, `errors` what is to blame. */
export class Problem extends Error {
  constructor({ detail, code = "unknown", errors = [] }, status = 0) {
    super(detail);
    this.code = code;
    this.status = status;
    this.errors = errors;
  }
}

/** What a path of the server answers. */
export async function get(path) {
  return (await call(path, {})).json();
}

/**
 * The answers to requests of /v1/map, each an answer or a Problem. One goes to /v1/map; more go
 * over one connection to /v1/stream.
 */
export async function ask(bodies, signal) {
  if (bodies.length === 1) {
    try {
      return [await (await post("/v1/map", JSON.stringify(bodies[0]), signal)).json()];
    } catch (error) {
      if (error instanceof Problem && error.errors.length > 0) return [error];
      throw error;
    }
  }
  const lines = bodies.map((body) => JSON.stringify(body)).join("\n");
  const answered = await (await post("/v1/stream", lines, signal)).text();
  return answered
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line))
    .filter((line) => !line.done)
    .map((line) => (line.error ? new Problem(line.error, line.error.status) : line));
}

/** The media type of a request to a path. */
export function mediaType(path) {
  return path === "/v1/stream" ? "application/jsonl" : "application/json";
}

function post(path, body, signal) {
  const headers = { "Content-Type": mediaType(path) };
  return call(path, { method: "POST", headers, body, signal });
}

async function call(path, options) {
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(SERVER + path, { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ detail: "The server does not answer; is it still running?" });
  }
  if (response.ok) return response;
  const type = response.headers.get("Content-Type") ?? "";
  if (type.startsWith("application/problem+json")) {
    throw new Problem(await response.json(), response.status);
  }
  throw new Problem({ detail: `The server answered ${response.status}.` }, response.status);
}
