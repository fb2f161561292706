// The site on hosts without any configuration. One sends no headers and redirects NAME.html to NAME, as Cloudflare Pages does. The other
// compresses all files, has no type for most of them, sends a page for names that it lacks, and has browsers keep all for a year.
// None gives ranges of files.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { gzipSync } from "node:zlib";
import { expect } from "../examples/given.mjs";
import { textOf, visit } from "../examples/pages.mjs";
import { ready } from "./every-page.mjs";

const SITE = join(import.meta.dirname, "../../build/site");
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml" };

/** Serves files below /folder/: `answer(request, response, read)`, where `read(name)` gives the bytes of a file of the site. */
async function serveFolder(answer) {
  const server = createServer(async (request, response) => {
    const { pathname, search } = new URL(request.url, "http://localhost");
    const path = pathname.slice("/folder/".length);
    const name = /(^|\/)$/.test(path) ? `${path}index.html` : extname(path) === "" ? `${path}.html` : path;
    const body = await readFile(join(SITE, name)).catch(() => undefined);
    await answer({ pathname, search, name, body }, response);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const close = async () => {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  };
  return { url: `http://127.0.0.1:${server.address().port}/folder/`, close };
}

const servePlainly = () =>
  serveFolder(({ pathname, search, name, body }, response) => {
    const [, page] = /^(.*\/)index\.html$/.exec(pathname) ?? /^(.*)\.html$/.exec(pathname) ?? [];
    if (page !== undefined) return response.writeHead(308, { Location: page + search }).end();
    if (body === undefined) return response.writeHead(404).end();
    response.writeHead(200, { "Content-Type": TYPES[extname(name)] ?? "application/octet-stream" }).end(body);
  });

/** A view in the build that has the same bits everywhere. */
const VIEW = "#deterministic=yes&text=the+dog+slept+on+the+rug";

const digestAt = (browser, address) =>
  visit(browser, address, async (page, errors) => {
    await ready(page);
    await page.waitForFunction(() => document.getElementById("digest").textContent !== "–");
    await page.evaluate(async () => void (await navigator.serviceWorker.ready));
    expect("errors of the page", errors.join("; "), "");
    return textOf(page, "#digest");
  });

/** In a page: resolves once the service worker has kept nothing more for a second. */
async function keptAll() {
  const count = async () => {
    const all = await Promise.all((await caches.keys()).map(async (name) => (await caches.open(name)).keys()));
    return all.flat().length;
  };
  for (let before = -1, now = await count(); now !== before; ) {
    await new Promise((done) => setTimeout(done, 1000));
    [before, now] = [now, await count()];
  }
}

export async function expectPlainHost({ browser, url: strict }) {
  const digest = await digestAt(browser, `${strict}inspector.html${VIEW}`);
  const { url, close } = await servePlainly();
  const look = async (address) => expect(`the digest at ${address}`, await digestAt(browser, url + address), digest);
  try {
    await look(`inspector.html${VIEW}`);
    // The service worker answers from here on, by either name.
    await look(`inspector.html${VIEW}`);
    await look(`inspector${VIEW}`);
    await visit(browser, url, async (page) => {
      await ready(page);
      await page.evaluate(keptAll);
    });
  } finally {
    await close();
  }
  await look(`inspector.html${VIEW}`);
  await look(`inspector${VIEW}`);
  await visit(browser, url, ready);
  return "no headers, no ranges, names without .html, and offline";
}

/** What `serveCached` changes of the files, as a new version of the site does. */
const CHANGES = {
  ".html": (text) => text.replace("<title>", "<title>New: "),
  ".js": (text) => text.replace(/^const SITE=\{"version":"/, "$&new"),
};

/** `host.missing` are names that the host lacks, and `host.isNew` is whether it has the new version. */
async function serveCached(host) {
  return serveFolder(async ({ name, body }, response) => {
    const isThere = body !== undefined && !host.missing.includes(name);
    const file = isThere ? name : "index.html";
    const bytes = isThere ? body : await readFile(join(SITE, file));
    const change = host.isNew && CHANGES[extname(file)];
    const sent = gzipSync(change ? change(String(bytes)) : bytes);
    const headers = { "Content-Encoding": "gzip", "Content-Length": sent.length, "Cache-Control": "max-age=31536000" };
    response.writeHead(200, { ...headers, "Content-Type": TYPES[extname(file)] ?? "text/plain" }).end(sent);
  });
}

const MODEL = "models/stories/stories.gguf";

export async function expectCachingHost({ browser, url: strict }) {
  const digest = await digestAt(browser, `${strict}inspector.html${VIEW}`);
  const host = { missing: [MODEL], isNew: false };
  const { url, close } = await serveCached(host);
  try {
    await visit(browser, `${url}docs`, async (page) => {
      await ready(page);
      await page.evaluate(async () => void (await navigator.serviceWorker.ready));
    });
    const sentence = await visit(browser, `${url}inspector${VIEW}`, async (page) => {
      await page.waitForSelector(".picker .error");
      return textOf(page, ".picker .error");
    });
    expect("the sentence", sentence, /^The model could not be loaded: .* expected a file, got a page \(text\/html\)/);
    // A file that was not there is asked for again.
    host.missing = [];
    expect("the digest", await digestAt(browser, `${url}inspector${VIEW}`), digest);
    host.isNew = true;
    await visit(browser, `${url}docs`, async (page) => {
      // The new version answers once all of its files are there. The visit itself may have had the browser look for it already.
      await page.evaluate(async () => {
        const registration = await navigator.serviceWorker.ready;
        await registration.update();
        while (registration.installing ?? registration.waiting) await new Promise((done) => setTimeout(done, 50));
      });
    });
    await visit(browser, `${url}docs`, async (page) => {
      // The worker of the old version may answer once more, while the new one begins.
      for (let visits = 1; visits < 4 && !/^New: /.test(await page.title()); visits++) await page.reload();
      expect("the title of the new version", await page.title(), /^New: /);
      await ready(page);
    });
    return sentence;
  } finally {
    await close();
  }
}
