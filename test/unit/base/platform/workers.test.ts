import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import {
  endWorker,
  listen,
  makeWorkers,
  otherScript,
  scriptName,
  type ThreadWorker,
} from "../../../../src/base/platform/workers.ts";
import { fakeWorker, NO_WORKERS } from "../../../support/worker-faults.ts";

test("scripts of workers are known by the version of the package", () => {
  const { version } = JSON.parse(readFileSync(new URL("../../../../package.json", import.meta.url), "utf8")) as {
    version: string;
  };
  expect(scriptName("worker")).toBe(`worker ${version}`);
  const script = scriptName("headwise/worker");
  expect(script).toBe(`headwise/worker ${version}`);
  expect(otherScript({ script }, script)).toBe(undefined);
  expect(otherScript({ script: "headwise/worker 0.1.0" }, script)).toBe("headwise/worker 0.1.0");
  for (const message of [undefined, null, "headwise", 1, {}, { script: 1 }, { script: "another\nline" }])
    expect(otherScript(message, script)).toBe("another script");
});

test.each(NO_WORKERS)(
  "createWorker that returns %s is refused by name, and what it made before is ended",
  (got, make) => {
    const first = fakeWorker();
    let made = 0;
    const work = () => makeWorkers("loadKernels", 3, () => (made++ === 0 ? first : make()));
    expect(work).toThrow(
      new TypeError(
        `loadKernels: createWorker expected a function that returns a new Worker, got one that returns ${got}`,
      ),
    );
    expect([made, first.ended]).toEqual([2, 1]);
  },
);

test("a promise that createWorker returns by mistake leaves no worker behind", async () => {
  const late = fakeWorker();
  expect(() => makeWorkers("loadKernels", 1, async () => late)).toThrow("got one that returns a promise");
  await new Promise((resolve) => setTimeout(resolve));
  expect(late.ended).toBe(1);
});

test("createWorker must return another worker at each call", () => {
  const one = fakeWorker();
  expect(() => makeWorkers("loadKernels", 2, () => one)).toThrow(
    "loadKernels: createWorker expected a function that returns a new Worker, got one that returns the same Worker again",
  );
  expect(one.ended).toBe(1);
});

test("whatever createWorker throws, there is a reason, and the other workers are made", () => {
  const hostile = {
    get [Symbol.toStringTag]() {
      throw new Error("again");
    },
  };
  const thrown = [new Error("policy"), "text", undefined, Symbol("s"), Object.create(null), hostile];
  const { workers, failed } = makeWorkers("loadKernels", 7, () => {
    if (thrown.length === 0) return fakeWorker();
    throw thrown.shift();
  });
  expect(workers.length).toBe(1);
  expect(failed).toEqual(["Error: policy", "text", "undefined", "Symbol(s)", "Object", "an error without a text"]);
});

test("a worker is ended even if its terminate throws or rejects", async () => {
  let calls = 0;
  const worker = (terminate: () => unknown): ThreadWorker => ({ postMessage() {}, terminate });
  const failures: readonly (() => unknown)[] = [
    () => {
      throw new Error("gone");
    },
    () => Promise.reject(new Error("gone")),
  ];
  for (const fail of failures)
    endWorker(
      worker(() => {
        calls++;
        return fail();
      }),
    );
  await new Promise((resolve) => setTimeout(resolve));
  expect(calls).toBe(2);
});

test("errors of a web worker are handled here, so that no host ends the process for them", () => {
  const target = new EventTarget();
  const heard: unknown[] = [];
  listen(
    Object.assign(target, { postMessage() {}, terminate() {} }),
    (message) => heard.push(message),
    (why) => heard.push(why),
  );
  const error = Object.assign(new Event("error", { cancelable: true }), { message: "broken" });
  target.dispatchEvent(new MessageEvent("message", { data: 7 }));
  target.dispatchEvent(new MessageEvent("messageerror"));
  target.dispatchEvent(error);
  expect(heard).toEqual([7, "it posted a message that cannot be read here", "broken"]);
  expect(error.defaultPrevented).toBe(true);
});
