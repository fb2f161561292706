// When a page says that it is ready, and what a visit of the tests says of one that does not.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { markReady } from "../../../site/src/page.ts";
import { visit } from "../../examples/pages.mjs";
import { enginesOf } from "../../site/sample.ts";

class FakeDocument extends EventTarget {
  hidden = false;
  readonly body = { dataset: {} as { ready?: string } };
}

let page: FakeDocument;
let frames: (() => void)[];
beforeEach(() => {
  page = new FakeDocument();
  frames = [];
  vi.stubGlobal("document", page);
  vi.stubGlobal("requestAnimationFrame", (work: () => void) => frames.push(work));
});
afterEach(() => vi.unstubAllGlobals());

const isReady = () => page.body.dataset.ready !== undefined;

test("a page that is shown is ready at its next frame", () => {
  markReady();
  expect(isReady()).toBe(false);
  for (const work of frames) work();
  expect(isReady()).toBe(true);
});

test("a page that is hidden, for which no frame comes, is ready at once", () => {
  page.hidden = true;
  markReady();
  expect(isReady()).toBe(true);
});

test("a page that is hidden before its next frame is ready then", () => {
  markReady();
  page.hidden = true;
  page.dispatchEvent(new Event("visibilitychange"));
  expect(isReady()).toBe(true);
});

test("a visit brings its page to the front, and says of one that fails what it waited for", async () => {
  const listeners = new Map<string, (given: unknown) => void>();
  const done: string[] = [];
  vi.stubGlobal("navigator", { serviceWorker: { controller: { state: "activated" } } });
  Object.assign(page, { visibilityState: "hidden", readyState: "interactive" });
  Object.assign(page.body, { innerText: "Loading" });
  const request = (path: string) => ({ url: () => `http://127.0.0.1/${path}` });
  const tab = {
    setDefaultTimeout() {},
    on: (event: string, listener: (given: unknown) => void) => listeners.set(event, listener),
    bringToFront: async () => void done.push("to the front"),
    async goto() {
      const [late, read] = [request("late.js"), request("read.css")];
      for (const each of [late, read]) listeners.get("request")?.(each);
      listeners.get("requestfinished")?.(read);
      done.push("opened");
    },
    evaluate: async (look: () => string) => look(),
    close: async () => void done.push("closed"),
  };
  const failed = visit({ newPage: async () => tab }, "http://127.0.0.1/", () => Promise.reject(new Error("not ready")));
  await expect(failed).rejects.toThrow(
    "not ready\nerrors of the page: \nrequests without an end: http://127.0.0.1/late.js\n" +
      "hidden, interactive, service worker activated\nLoading",
  );
  expect(done).toEqual(["to the front", "opened", "closed"]);
});

test("a scenario runs in two engines or in all, always the same, and each of the others has a share", () => {
  expect(enginesOf("write", "the text of Node")).toEqual(["chrome", "firefox", "webkit"]);
  const counts = new Map<string, number>();
  for (let i = 0; i < 100; i++) {
    const engines: readonly string[] = enginesOf("write", `scenario ${i}`);
    expect(engines).toEqual(enginesOf("write", `scenario ${i}`));
    expect(engines).toHaveLength(2);
    for (const engine of engines) counts.set(engine, (counts.get(engine) ?? 0) + 1);
  }
  expect(counts.get("chrome")).toBe(100);
  for (const engine of ["firefox", "webkit"]) expect(counts.get(engine)).toBeGreaterThan(30);
});
