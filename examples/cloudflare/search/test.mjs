// Tests over HTTP: the answers are those of the same search in Node, bit for bit, wrong requests are refused, and all fits an isolate.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { openModel } from "headwise";
import { createIndex } from "headwise/retrieval";
import { heapBytes } from "../../../test/runtimes/scenarios/inspector.ts";
import { QUERIES } from "./queries.mjs";
import { bundle, startWorkerd } from "./workerd.mjs";

const built = new URL("../../search/built/", import.meta.url);
const read = (name) => readFileSync(new URL(name, built));

describe("the search Worker", { timeout: 120_000 }, () => {
  let made;
  let server;
  const ask = (query, init) => fetch(`${server.base}/search?${new URLSearchParams(query)}`, init);
  before(async () => {
    made = bundle();
    server = await startWorkerd(made);
  });
  after(() => server?.stop());

  test("the bundle, with the model and all vectors, has at most 64 MiB", () => {
    console.log(`${(made.bytes / 2 ** 20).toFixed(1)} MiB`);
    assert.ok(made.bytes > read("model/model.safetensors").length && made.bytes <= 64 * 2 ** 20);
  });

  test("answers have the passages and the scores of the same search in Node", async () => {
    const { shape, passages } = JSON.parse(read("passages.json"));
    using model = await openModel(new URL("model/", built), { for: "embed", deterministic: true });
    const index = createIndex(model.parts.kernels, { ...shape, bytes: read("vectors.bin") });
    for (const [q, path] of QUERIES) {
      const { results } = await (await ask({ q, top: 7 })).json();
      const expected = index.search(await model.embed(q, { task: "query" }), { topK: 7 });
      assert.deepEqual(
        results,
        expected.map(({ index: id, score }) => ({ id, score, ...passages[id] })),
      );
      assert.ok(results[0].url.includes(`/${path}`), `${q}: ${results[0].url}`);
    }
    assert.equal((await (await ask({ q: "threads" })).json()).results.length, 5);
  });

  test("requests at the same time get what each gets alone", async () => {
    const textOf = async ([q]) => (await ask({ q })).text();
    const alone = [];
    for (const query of QUERIES) alone.push(await textOf(query));
    assert.deepEqual(await Promise.all(QUERIES.map(textOf)), alone);
  });

  test("refuses wrong requests", async () => {
    const rows = [
      [{}, 400, "no_query"],
      [{ q: "  " }, 400, "no_query"],
      [{ q: "a".repeat(501) }, 400, "query_too_long"],
      ...["0", "21", "1.5", "-1", "five", ""].map((top) => [{ q: "threads", top }, 400, "bad_top"]),
    ];
    for (const [query, status, code] of rows) {
      const response = await ask(query);
      const { error } = await response.json();
      assert.deepEqual([response.status, error.code], [status, code], JSON.stringify(query));
      assert.ok(error.message.length > 10);
    }
    const posted = await ask({ q: "threads" }, { method: "POST" });
    assert.deepEqual([posted.status, posted.headers.get("allow")], [405, "GET"]);
    assert.equal((await fetch(server.base)).status, 404);
    assert.equal((await ask({ q: "a".repeat(500), top: 20 })).status, 200);
  });

  test("takes less than the 128 MB of an isolate, after the longest texts", async () => {
    const longest = { q: "a ".repeat(250), top: 20 };
    await Promise.all(Array.from({ length: 20 }, () => ask(longest).then((response) => response.text())));
    const { memoryBytes } = await (await ask(longest)).json();
    // The inspector counts the heap and buffers, such as the weights of the bundle, and not linear memory.
    const heap = await heapBytes(server.inspectorPort);
    console.log(
      `${(heap / 1e6).toFixed(1)} MB of heap and buffers, ${(memoryBytes / 1e6).toFixed(1)} MB of linear memory`,
    );
    assert.ok(heap > read("model/model.safetensors").length, "the weights are counted");
    assert.ok(heap + memoryBytes < 128e6);
  });
});
