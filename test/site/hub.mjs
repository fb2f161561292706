// A stand-in for the hub: models that pages offer by name are asked for before a byte of them is read, and kept after.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { expect } from "../examples/given.mjs";
import { textOf, visit } from "../examples/pages.mjs";
import { ready } from "./every-page.mjs";

const FILE = readFileSync(join(import.meta.dirname, "../../model/stories/stories.gguf"));

/** A server that has the model of the site at every path, by ranges; `requests` are the paths that were asked for, `bytes` counts what was sent. */
async function startHub() {
  const requests = [];
  let bytes = 0;
  const server = createServer((request, response) => {
    if (request.method !== "OPTIONS") requests.push(request.url);
    const [, from, to] = /bytes=(\d+)-(\d*)/.exec(request.headers.range ?? "") ?? [];
    const end = Math.min(FILE.length, to ? Number(to) + 1 : FILE.length);
    const isPart = from !== undefined;
    response.writeHead(isPart ? 206 : 200, {
      ...{
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Headers": "*",
        ETag: '"1"',
        "Accept-Ranges": "bytes",
      },
      "Access-Control-Expose-Headers": "*",
      "Cross-Origin-Resource-Policy": "cross-origin",
      "Content-Length": isPart ? end - Number(from) : FILE.length,
      ...(isPart && { "Content-Range": `bytes ${from}-${end - 1}/${FILE.length}` }),
    });
    if (request.method === "HEAD" || request.method === "OPTIONS") return response.end();
    const part = FILE.subarray(Number(from ?? 0), end);
    bytes += part.length;
    response.end(part);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const host = `127.0.0.1:${server.address().port}`;
  const end = () => {
    server.close();
    server.closeAllConnections();
  };
  return { host, requests, bytes: () => bytes, end };
}

/** Chooses a model of the hub on a page, which loads it when it is told to. */
export async function expectHub({ browser, url }, name) {
  const hub = await startHub();
  try {
    return await visit(browser, `${url}${name}.html?hub=http://${hub.host}`, async (page, errors) => {
      await ready(page);
      await page.select("#model", "smollm2-135m");
      const button = `Load 145 MB from ${hub.host}`;
      await page.waitForFunction((text) => document.getElementById("model-load").textContent === text, {}, button);
      expect(
        "what is said",
        await textOf(page, ".picker [role=status]"),
        /^SmolLM2 135M Instruct, 145 MB: read from 127/,
      );
      // Another choice on the page is none of the model.
      await page.click("#deterministic");
      await page.click("#deterministic");
      expect("what was read before that was chosen", hub.requests.join(), "");
      // A link with the model asks as well.
      await page.reload();
      await ready(page);
      await page.waitForFunction((text) => document.getElementById("model-load").textContent === text, {}, button);
      expect("what a link reads", hub.requests.join(), "");
      await page.click("#model-load");
      await page.waitForFunction(() => / layers, /.test(document.querySelector(".picker [role=status]").textContent));
      expect("what was read", [...new Set(hub.requests)].join(), /^\/bartowski\/SmolLM2-135M-Instruct-GGUF\/resolve\//);
      const first = hub.bytes();
      expect(`bytes of the first visit, ${first}, are the whole file`, first >= FILE.length * 0.9, true);
      // What was read once is kept: the next visit asks whether it is still the same, and reads its first 64 KiB.
      await page.reload();
      await ready(page);
      await page.click("#model-load");
      await page.waitForFunction(() => / layers, /.test(document.querySelector(".picker [role=status]").textContent));
      expect("errors of the page", errors.join("; "), "");
      const again = hub.bytes() - first;
      expect(
        `bytes of the second visit, ${again}, are its beginning, which tokenizer and model read`,
        again <= 2 * 65_536,
        true,
      );
      return `${first} bytes, then ${again}`;
    });
  } finally {
    hub.end();
  }
}
