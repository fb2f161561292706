import { createServer } from "node:net";
import { expect, test } from "vitest";
import { reasonOf } from "../../../../src/base/util/strings.ts";

/** The port of a server that has ended. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => void server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as { port: number };
  await new Promise((done) => server.close(done));
  return port;
}

test.each(["127.0.0.1", "localhost"])(
  "a server at %s that does not answer is named by what fetch's cause says",
  async (host) => {
    const error = await fetch(`http://${host}:${await freePort()}/`).catch((thrown: unknown) => thrown);
    expect(reasonOf(error)).toMatch(/^TypeError: fetch failed: .*ECONNREFUSED/);
  },
);

test.each<[thrown: unknown, text: string]>([
  [
    new TypeError("fetch failed", { cause: new Error("getaddrinfo ENOTFOUND x") }),
    "TypeError: fetch failed: getaddrinfo ENOTFOUND x",
  ],
  [
    new TypeError("fetch failed", { cause: Object.assign(new Error(""), { code: "E1" }) }),
    "TypeError: fetch failed: E1",
  ],
  [new TypeError("fetch failed", { cause: new Error("") }), "TypeError: fetch failed"],
  [new TypeError("fetch failed", { cause: "text" }), "TypeError: fetch failed"],
  // The messages of others include their cause, or it is of no interest.
  [new RangeError("a", { cause: new Error("b") }), "RangeError: a"],
  [new DOMException("over", "AbortError"), "AbortError: over"],
  ["text", "text"],
  [{ message: "x" }, "Object"],
  [null, "null"],
])("%s is %s", (thrown, text) => expect(reasonOf(thrown)).toBe(text));

test("an error whose text cannot be read is one without a text", () => {
  const get = () => {
    throw new Error("read");
  };
  const hostile = Object.defineProperty(new Error("a"), "message", { get });
  expect(reasonOf(hostile)).toBe("an error without a text");
});
