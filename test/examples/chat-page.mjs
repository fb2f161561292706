// The page of the Cloudflare example in Chromium, under its policy, with a server that answers as the Worker does.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { expect } from "./given.mjs";
import { expectNarrow, textOf, visit } from "./pages.mjs";

const PUBLIC = join(import.meta.dirname, "../../examples/cloudflare/public");
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript" };
const PROMPT = "The cat sat on the mat because it was";
const PIECES = [" warm. what", " was warm? the mat."];
const CONTINUATION = PIECES.join("");
const REFUSED = 'the model does not know the word "é"';

/** The headers of the file `_headers`. */
const headers = Object.fromEntries(
  Array.from(readFileSync(join(PUBLIC, "_headers"), "utf8").matchAll(/^ +([\w-]+): (.*)$/gm), ([, name, value]) => [
    name,
    value,
  ]),
);

/** Streams the continuation of the first request, and refuses all others. */
function answer(request, response, session) {
  const send = (status, value) =>
    response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));
  if (request.url === "/v1/sessions") return send(201, { id: "one" });
  if (request.method === "GET") return send(200, { length: session.length, left: 0, text: "" });
  if (session.length > 0) return send(422, { error: { code: "unknown_word", message: REFUSED } });
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  session.length = PROMPT.length;
  const events = PIECES.map((text) => {
    const at = session.length;
    session.length += text.length;
    return ["text", { at, text }];
  });
  for (const [event, data] of [...events, ["done", { reason: "stop", length: session.length }]])
    response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  return response.end();
}

export async function chatPage({ browser }) {
  const session = { length: 0 };
  const server = createServer((request, response) => {
    if (request.url.startsWith("/v1/")) return answer(request, response, session);
    const path = request.url === "/" ? "/index.html" : request.url;
    const body = readFileSync(join(PUBLIC, path));
    return response.writeHead(200, { ...headers, "Content-Type": TYPES[extname(path)] }).end(body);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await visit(browser, `http://127.0.0.1:${server.address().port}/`, async (page, errors) => {
      await expectNarrow(page);
      expect("the style sheet", await page.$eval(".panel", (panel) => getComputedStyle(panel).borderRadius), "8px");
      await page.click("button");
      await page.waitForFunction(
        (n) => document.querySelector("#text b")?.textContent.length === n,
        {},
        CONTINUATION.length,
      );
      await page.waitForSelector("button:enabled");
      expect("the text", await textOf(page, "#text"), PROMPT + CONTINUATION);
      const status = await textOf(page, "#status");
      expect("the status", status, /^30 characters in \d+ ms\. The story ends here\.$/);
      await page.type("#prompt", "é");
      await page.click("button");
      await page.waitForSelector("#status.error");
      expect("the status of a refusal", await textOf(page, "#status"), `No answer: ${REFUSED}`);
      expect("the text after a refusal", await textOf(page, "#text"), PROMPT + CONTINUATION);
      expect("errors of the page", errors.filter((error) => !error.includes("422")).join(), "");
      return status;
    });
  } finally {
    server.closeAllConnections();
    server.close();
  }
}
