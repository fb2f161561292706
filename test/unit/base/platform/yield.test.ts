import { afterEach, expect, test, vi } from "vitest";
import { yieldToEventLoop } from "../../../../src/base/platform/host.ts";

afterEach(() => vi.unstubAllGlobals());

const refuse = () => {
  throw new Error("A Node.js API is used (setImmediate) which is not supported in the Edge Runtime.");
};

test.each([
  ["setImmediate", {}],
  ["messages", { setImmediate: undefined }],
  ["a timer, without either", { setImmediate: undefined, MessageChannel: undefined }],
  ["a timer, where both throw that they are not there", { setImmediate: refuse, MessageChannel: refuse }],
])("the event loop turns by %s before a call goes on", async (_, globals) => {
  let isOver = false;
  setTimeout(() => {
    isOver = true;
  });
  for (const [name, value] of Object.entries(globals)) vi.stubGlobal(name, value);
  for (let turns = 0; turns < 1000 && !isOver; turns++) await yieldToEventLoop();
  expect(isOver).toBe(true);
});
