// What the service worker of the site does with models, in an engine that this file makes: the cache, its room and the host.

import { readFileSync } from "node:fs";
import { transformSync } from "esbuild";
import { expect, test } from "vitest";

const { code } = transformSync(readFileSync(new URL("../../../site/service-worker/main.ts", import.meta.url), "utf8"), {
  loader: "ts",
  format: "iife",
});
const FOLDER = "https://example.org/folder/";
const MODEL = `${FOLDER}models/stories/stories.gguf`;
const BYTES = Uint8Array.from({ length: 1000 }, (_, i) => i % 251);

/** The caches of a browser, and how many requests reached the host. */
function createBrowser() {
  const stores = new Map<string, Map<string, Response>>();
  const requests: string[] = [];
  const host = { isFull: false, answer: (): Response => new Response(BYTES) };
  const storeOf = (name: string) =>
    stores.get(name) ?? (stores.set(name, new Map()).get(name) as Map<string, Response>);
  const caches = {
    keys: async () => [...stores.keys()],
    delete: async (name: string) => stores.delete(name),
    open: async (name: string) => {
      const store = storeOf(name);
      return {
        match: async (path: string) => store.get(path)?.clone(),
        put: async (path: string, answer: Response) => {
          const body = await answer.blob(); // rejects if the host breaks off
          if (host.isFull) throw new DOMException("no room", "QuotaExceededError");
          store.set(path, new Response(body));
        },
      };
    },
  };
  const fetch = async (path: string) => {
    requests.push(path);
    return host.answer();
  };
  return { stores, requests, host, caches, fetch };
}

/** Starts the service worker of a site whose models have a version. */
function start({ caches, fetch }: ReturnType<typeof createBrowser>, models: string) {
  const listeners: Record<string, (event: object) => void> = {};
  const self = {
    location: { href: `${FOLDER}service-worker.js` },
    addEventListener: (name: string, listen: (event: object) => void) => {
      listeners[name] = listen;
    },
    skipWaiting: async () => {},
    clients: { claim: async () => {} },
  };
  new Function("self", "caches", "fetch", "SITE", code)(self, caches, fetch, {
    ...{ version: "1", files: ["index.html", "assets/index.js"] },
    models: { version: models, files: ["models/stories/stories.gguf"] },
  });
  const wait = async (name: string) => {
    let work: Promise<void> | undefined;
    listeners[name]?.({
      waitUntil: (given: Promise<void>) => {
        work = given;
      },
    });
    await work;
  };
  const read = (range?: string): Promise<Response> =>
    new Promise((resolve, reject) => {
      const request = new Request(MODEL, range === undefined ? {} : { headers: { range: `bytes=${range}` } });
      listeners.fetch?.({ request, respondWith: (answer: Promise<Response>) => answer.then(resolve, reject) });
    });
  return { read, install: () => wait("install"), activate: () => wait("activate") };
}

const bytesOf = async (answer: Response) => new Uint8Array(await answer.arrayBuffer());

test("ranges of a model that are read at once ask the host for it once, and later ones not at all", async () => {
  const browser = createBrowser();
  const { read } = start(browser, "a");
  const [first, second, whole] = await Promise.all([read("0-9"), read("990-1999"), read()]);
  expect(first?.status).toBe(206);
  expect(second?.headers.get("content-range")).toBe("bytes 990-999/1000");
  expect(await bytesOf(first as Response)).toEqual(BYTES.slice(0, 10));
  expect(await bytesOf(second as Response)).toEqual(BYTES.slice(990));
  expect(await bytesOf(whole as Response)).toEqual(BYTES);
  expect(await bytesOf(await read("5-6"))).toEqual(BYTES.slice(5, 7));
  expect(browser.requests).toEqual(["/folder/models/stories/stories.gguf"]);
});

test("a browser without room for a model reads it all the same, and asks the host once", async () => {
  const browser = createBrowser();
  browser.host.isFull = true;
  const { read } = start(browser, "a");
  expect(await bytesOf(await read())).toEqual(BYTES);
  expect(await bytesOf(await read("5-6"))).toEqual(BYTES.slice(5, 7));
  expect(browser.requests.length).toBe(1);
});

test("what a host does not have, or breaks off, is asked for again", async () => {
  const browser = createBrowser();
  const { read } = start(browser, "a");
  browser.host.answer = () => new Response("not found", { status: 404 });
  expect((await read("0-9")).status).toBe(404);
  browser.host.answer = () => new Response("the first page", { headers: { "Content-Type": "text/html" } });
  expect((await read("0-9")).status).toBe(200);
  browser.host.answer = () =>
    new Response(new ReadableStream({ pull: (controller) => controller.error(new TypeError("the host is gone")) }));
  await expect(read("0-9")).rejects.toThrow("the host is gone");
  browser.host.answer = () => new Response(BYTES);
  expect(await bytesOf(await read("0-9"))).toEqual(BYTES.slice(0, 10));
});

test("a page that a host sends for a script which it lacks is not kept: the version is not installed", async () => {
  const browser = createBrowser();
  const { install } = start(browser, "a");
  browser.host.answer = () => new Response("a page", { headers: { "Content-Type": "text/html" } });
  await expect(install()).rejects.toThrow("assets/index.js: 200");
});

test("models of another version are read anew, and those of the last one are deleted", async () => {
  const browser = createBrowser();
  await bytesOf(await start(browser, "a").read());
  const changed = BYTES.map((byte) => 255 - byte);
  browser.host.answer = () => new Response(changed);
  const same = start(browser, "a");
  await same.install();
  await same.activate();
  expect(await bytesOf(await same.read())).toEqual(BYTES);
  const next = start(browser, "b");
  await next.install();
  await next.activate();
  expect(await bytesOf(await next.read())).toEqual(changed);
  expect([...browser.stores.keys()]).toEqual(["headwise 1", "headwise models b"]);
});
