/**
 * Serves index.html, and hands what it asks on to a probmap server, which answers no other site's
 * pages itself:
 *
 *     node examples/javascript/serve.mjs [URL] [PORT]
 */

import { createServer, request } from "node:http";
import { readFile } from "node:fs/promises";

const [url = "http://127.0.0.1:8000", port = "8080"] = process.argv.slice(2);

const FILES = {
  "/": ["index.html", "text/html"],
  "/probmap.mjs": ["probmap.mjs", "text/javascript"],
};
const FORWARDED = /^\/v1\/(map|sample|stream)$|^\/v2\/models\/[^/]+\/infer$/;

const server = createServer(async (asked, answer) => {
  if (asked.url in FILES) {
    const [name, type] = FILES[asked.url];
    answer.setHeader("Content-Type", `${type}; charset=utf-8`);
    answer.end(await readFile(new URL(name, import.meta.url)));
  } else if (FORWARDED.test(asked.url)) {
    forward(asked, answer);
  } else {
    answer.writeHead(404).end("nothing is here");
  }
});

/** Both bodies flow through as they come, so that a stream stays one. */
function forward(asked, answer) {
  const { method, headers } = asked;
  const onward = request(new URL(asked.url, url), { method, headers }, (answered) => {
    answer.writeHead(answered.statusCode, answered.headers);
    answered.pipe(answer);
  });
  onward.on("error", (error) => {
    if (answer.headersSent) answer.destroy();
    else answer.writeHead(502).end(`no answer from ${url}: ${error.message}`);
  });
  answer.on("close", () => onward.destroy());
  asked.pipe(onward);
}

server.listen(Number(port), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
