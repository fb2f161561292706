// The site on a host without any configuration: no headers, no ranges of files, and pages whose names lose their ending, as Cloudflare
// Pages and others do it.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { expect } from "../examples/given.mjs";
import { textOf, visit } from "../examples/pages.mjs";
import { ready } from "./every-page.mjs";

const SITE = join(import.meta.dirname, "../../build/site");
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml" };

/** Serves the site below /folder/. */
async function servePlainly() {
  const server = createServer(async (request, response) => {
    const { pathname, search } = new URL(request.url, "http://localhost");
    const [, page] = /^(.*\/)index\.html$/.exec(pathname) ?? /^(.*)\.html$/.exec(pathname) ?? [];
    if (page !== undefined) return void response.writeHead(308, { Location: page + search }).end();
    const path = pathname.slice("/folder/".length);
    const name = /(^|\/)$/.test(path) ? `${path}index.html` : extname(path) === "" ? `${path}.html` : path;
    try {
      const body = await readFile(join(SITE, name));
      response.writeHead(200, { "Content-Type": TYPES[extname(name)] ?? "application/octet-stream" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const close = async () => {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  };
  return { url: `http://127.0.0.1:${server.address().port}/folder/`, close };
}

/** A view in the build that has the same bits everywhere. */
const QUERY = "?deterministic=yes&text=the+dog+slept+on+the+rug";

export async function expectPlainHost({ browser, url: strict }) {
  const digestAt = (address) =>
    visit(browser, address, async (page, errors) => {
      await ready(page);
      await page.waitForFunction(() => document.getElementById("digest").textContent !== "–");
      await page.evaluate(async () => void (await navigator.serviceWorker.ready));
      expect("errors of the page", errors.join("; "), "");
      return textOf(page, "#digest");
    });
  const digest = await digestAt(`${strict}inspector.html${QUERY}`);
  const { url, close } = await servePlainly();
  const look = async (address) => expect(`the digest at ${address}`, await digestAt(url + address), digest);
  try {
    await look(`inspector.html${QUERY}`);
    // The service worker answers from here on, by either name.
    await look(`inspector.html${QUERY}`);
    await look(`inspector${QUERY}`);
    await visit(browser, url, ready);
  } finally {
    await close();
  }
  await look(`inspector.html${QUERY}`);
  await look(`inspector${QUERY}`);
  await visit(browser, url, ready);
  return "no headers, no ranges, names without .html, and offline";
}
