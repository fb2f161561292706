// The memory of whole decoders: planModel gives what they take, in every format, and loading takes little more.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { StoredTensor } from "../../src/base/tensor/dtypes.ts";
import type { Tensor } from "../../src/base/tensor/tensor.ts";
import type { Kernels } from "../../src/entries/core.ts";
import { writeSafetensors } from "../../src/files/safetensors/safetensors.ts";
import { WEIGHT_FORMATS } from "../../src/layers/linear/formats.ts";
import type { Model } from "../../src/models/blocks/model.ts";
import { forward } from "../../src/models/decoder/forward.ts";
import { createSession } from "../../src/models/decoder/session.ts";
import { type LoadModelOptions, loadModel } from "../../src/models/load/load-model.ts";
import { planModel } from "../../src/models/load/plan-model.ts";
import { kernelsOf } from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";
import { TINY, tinyFolder, tinyTensors } from "../support/tiny-models.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
});
afterAll(() => kernels.release());

const ids = (count: number) => Array.from({ length: count }, (_, i) => (i * 29 + 5) % 67);

/** A table that is the head too, one of its own, experts, joint and stacked experts, norms of heads, latents. */
const NAMES = ["llama", "phi", "qwen2_moe", "gpt_oss", "gpt2", "deepseek_v3"] as const;
const FORMATS: readonly LoadModelOptions["weights"][] = [
  ...WEIGHT_FORMATS,
  { attention: "q8", mlp: "q4", embed: "f16" },
  { mlp: "q8-row" },
];

describe.each(NAMES)("%s", (name) => {
  const formats = sampled(FORMATS, 3, undefined, NAMES.indexOf(name));
  test.each(formats)("planModel is exact with weights %o, for sessions and calls of any size", async (weights) => {
    using own = await kernelsOf("relaxed");
    const folder = tinyFolder(TINY[name]);
    for (const [rows, outputs, sessions, format] of [
      [1, 1, 1, "f32"],
      [40, 40, 3, "q8"],
      [300, 1, 2, "f16"],
    ] as const) {
      const sizes = { maxSeqLen: 310, format };
      const plan = planModel(TINY[name], { ...sizes, weights, rows, outputs, sessions });
      const before = own.usedBytes;
      const model = await loadModel(own, folder, { weights, maxSeqLen: 310 });
      expect([model.bytes, own.usedBytes - before]).toEqual([plan.weights, plan.weights]);
      const all = Array.from({ length: sessions }, () => createSession(model, sizes));
      expect(all.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(plan.sessions);
      for (const session of all) forward(session, ids(rows), { rows: outputs > 1 ? "all" : "last" });
      // Scratch never shrinks: what an earlier, smaller call took is part of it.
      expect(own.usedBytes).toBe(plan.total);
      for (const each of [...all, model]) each.release();
      expect(own.usedBytes).toBe(plan.scratch);
    }
  });
});

test("models that are loaded at the same time have the bytes of each alone", async () => {
  const names = ["llama", "phi", "deepseek_v3"] as const;
  const all = await Promise.all(names.map((name) => loadModel(kernels, tinyFolder(TINY[name]), { weights: "f32" })));
  expect(all.map(({ bytes }) => bytes)).toEqual(names.map((name) => planModel(TINY[name]).weights));
  for (const model of all) model.release();
});

/** A tensor as bfloat16, whose values are bfloat16. */
function halfOf(name: string, { data, shape }: Tensor): StoredTensor {
  const bits = new Uint32Array(data.buffer);
  const halves = new Uint16Array(bits.length);
  for (let i = 0; i < bits.length; i++) halves[i] = (bits[i] as number) >>> 16;
  return { name, dtype: "BF16", shape, bytes: new Uint8Array(halves.buffer) };
}

describe("loading", () => {
  const GROUPED = { num_attention_heads: 2, num_key_value_heads: 1, head_dim: 16, hidden_size: 32 };
  const MORE = { num_hidden_layers: 1, vocab_size: 67, max_position_embeddings: 64 };
  /** Matrices above 16 MB: a table, the gate and the other factor in one, and experts in one. */
  const LARGE = {
    "a table": { model_type: "llama", ...GROUPED, ...MORE, intermediate_size: 64, vocab_size: 150_001 },
    "a joint gate": { model_type: "phi3", ...GROUPED, ...MORE, intermediate_size: 70_001, hidden_size: 32 },
    "stacked experts": {
      ...{ model_type: "gpt_oss", ...GROUPED, ...MORE, intermediate_size: 20_000, sliding_window: 9 },
      ...{ num_local_experts: 4, num_experts_per_tok: 2 },
    },
  };
  const PIECE = 2 ** 24;

  test.each(Object.entries(LARGE))("%s is read in pieces of 16 MB, and packed as they come", async (_, config) => {
    using own = await kernelsOf("relaxed");
    const start = own.memoryBytes;
    const tensors = tinyTensors(config);
    // Values that bfloat16 has, so that a file of half the size, whose matrices are read as a whole, has the same ones.
    for (const { data } of tensors.values()) {
      const bits = new Uint32Array(data.buffer);
      for (let i = 0; i < bits.length; i++) bits[i]! &= 0xffff0000;
    }
    const folder = tinyFolder(config, tensors);
    const file = folder("model.safetensors") as Uint8Array;
    expect(file.length).toBeGreaterThan(PIECE);
    let [largest, reading, most] = [0, 0, 0];
    const source = {
      size: file.length,
      async read(offset: number, length: number) {
        reading += length;
        largest = Math.max(largest, reading);
        await Promise.resolve();
        reading -= length;
        return file.slice(offset, offset + length);
      },
    };
    const openLarge = (name: string) => (name === "model.safetensors" ? source : folder(name));
    const small = writeSafetensors(new Map(Array.from(tensors, ([name, tensor]) => [name, halfOf(name, tensor)])));
    const openSmall = (name: string) => (name === "model.safetensors" ? small : folder(name));
    const logitsOf = (model: Model) =>
      forward(createSession(model, { maxSeqLen: 8 }), [1, 2, 3], { rows: "all" }).logits;
    const onProgress = () => {
      most = Math.max(most, own.usedBytes);
    };
    const { weights } = planModel(config, { weights: "q8" });
    const model = await loadModel(own, openLarge, { weights: "q8", onProgress });
    expect(largest).toBeLessThanOrEqual(PIECE);
    // A panel of the widest matrix, and a megabyte: also in the memory itself, which never shrinks.
    const staging = 2 ** 20 + 32 * config.intermediate_size;
    expect(most).toBeLessThanOrEqual(weights + staging);
    expect(own.memoryBytes - start).toBeLessThanOrEqual(weights + staging);
    expect(logitsOf(model)).toEqual(logitsOf(await loadModel(own, openSmall, { weights: "q8" })));
  });
});
