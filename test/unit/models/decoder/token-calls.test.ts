// Single tokens repeat planned kernel calls: with the bits of prompts, whatever happens between them.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { Kernels } from "../../../../src/entries/core.ts";
import type { Model } from "../../../../src/models/blocks/model.ts";
import { forward, forwardAsync } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { TINY, type TinyName, tinyFolder } from "../../../support/tiny-models.ts";

const idsOf = (count: number) => Array.from({ length: count }, (_, i) => (i * 29 + 5) % 67);
/** Two kinds of rotations, which take turns. */
const GEMMA3 = {
  ...{ ...TINY.gemma2, model_type: "gemma3_text", rope_local_base_freq: 1000 },
  layer_types: ["sliding_attention", "full_attention"],
};

let kernels: Kernels;
const models = new Map<string, Model>();
const modelOf = (name: TinyName | "gemma3") => models.get(name) as Model;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
  for (const name of ["llama", "gemma2", "gpt2", "phi", "qwen3_moe", "deepseek_v3"] as const)
    models.set(name, await loadModel(kernels, tinyFolder(TINY[name])));
  models.set("gemma3", await loadModel(kernels, tinyFolder(GEMMA3)));
});
afterAll(() => kernels.release());

const MAX_SEQ_LEN = 320;
const open = (model: Model) => createSession(model, { maxSeqLen: MAX_SEQ_LEN });

/** The logits of a fresh session that reads `ids` at once. */
function expectedOf(model: Model, ids: readonly number[]): Float32Array {
  using session = open(model);
  return forward(session, ids).logits;
}

/** How often the host gets a view of memory for a token: once for each shape that it writes. */
function viewsOf(work: () => void): number {
  const view = vi.spyOn(kernels.memory, "view");
  work();
  const { length } = view.mock.calls;
  view.mockRestore();
  return length;
}

const REPEATED = ["llama", "gemma2", "gemma3", "gpt2", "phi"] as const;

test.each(REPEATED)("%s: from the third token on, the host writes no shapes of layers", (name) => {
  using session = open(modelOf(name));
  forward(session, idsOf(20));
  const views = [1, 2, 3, 4].map((id) => viewsOf(() => forward(session, [id])));
  expect(views[0]).toBeGreaterThan(15);
  // The second one is described twice, for two positions.
  expect(views[1]).toBeGreaterThan(views[0] as number);
  expect(views[2]).toBeLessThan(8);
  expect(views[3]).toBe(views[2]);
  expect(forward(session, [5]).logits).toEqual(expectedOf(modelOf(name), [...idsOf(20), 1, 2, 3, 4, 5]));
});

test.each(["qwen3_moe", "deepseek_v3"] as const)("%s: calls that depend on the token are not repeated", (name) => {
  using session = open(modelOf(name));
  forward(session, idsOf(20));
  const views = [1, 2, 3, 4].map((id) => viewsOf(() => forward(session, [id])));
  expect(Math.min(...views)).toBeGreaterThan(15);
});

test.each(REPEATED)("%s: tokens on new pages, and behind pages that were dropped, have the same bits", (name) => {
  const ids = idsOf(MAX_SEQ_LEN);
  using session = open(modelOf(name));
  forward(session, ids.slice(0, 100));
  for (const id of ids.slice(100)) forward(session, [id]);
  session.truncate(ids.length - 1);
  expect(forward(session, ids.slice(-1)).logits).toEqual(expectedOf(modelOf(name), ids));
});

test("prompts of other sessions, which move or fill the scratch, do not change tokens", () => {
  const model = modelOf("llama");
  using session = open(model);
  using other = open(model);
  const ids = idsOf(24);
  for (const [i, id] of ids.entries()) {
    if (i % 5 === 4) {
      other.truncate(0);
      forward(other, idsOf(10 * i), { rows: "all" });
    }
    forward(session, [id]);
  }
  expect(forward(session, [9]).logits).toEqual(expectedOf(model, [...ids, 9]));
});

test("an aborted token changes nothing, and calls in slices repeat theirs", async () => {
  const model = modelOf("gemma3");
  using session = open(model);
  const ids = idsOf(12);
  for (const id of ids) {
    const abort = new AbortController();
    const aborted = forwardAsync(session, [id], {
      signal: abort.signal,
      sliceMs: 0.001,
      onProgress: () => abort.abort(new Error("enough")),
    });
    await expect(aborted).rejects.toThrow("enough");
    await forwardAsync(session, [id], { sliceMs: 0.001 });
  }
  expect((await forwardAsync(session, [9])).logits).toEqual(expectedOf(model, [...ids, 9]));
});
