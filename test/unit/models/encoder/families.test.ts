// Encoders of test/vectors/families beyond what their vectors show: bits, memory, and what is refused.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Kernels } from "../../../../src/entries/core.ts";
import { encode, encodeAsync } from "../../../../src/models/encoder/encode.ts";
import { loadEncoder, planEncoder, readEncoder } from "../../../../src/models/encoder/load.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { planModel } from "../../../../src/models/load/plan-model.ts";
import type { HeadsSpec } from "../../../../src/models/spec/spec.ts";
import { kernelsOf, threadedKernels } from "../../../support/layers.ts";
import { tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

const FOLDER = join(import.meta.dirname, "../../../vectors/families");
const NAMES = ["deberta-v2", "electra", "embedding-gemma", "embedding-gemma2", "eurobert", "gte", "jina-embeddings-v3"];
const configOf = (name: string) => JSON.parse(readFileSync(join(FOLDER, name, "config.json"), "utf8"));

/** The first layer's heads. */
const headsOf = (config: object) =>
  (readEncoder("loadEncoder", config).spec.blocks[0]?.mixer as HeadsSpec | undefined)?.config;

const sequence = (length: number, seed: number) => Array.from({ length }, (_, i) => 3 + ((i * 29 + 7 * seed) % 37));
/** One of several chunks, and more than share products. */
const BATCH = [1, 300, 2, 31, 128, 5, ...Array<number>(18).fill(3), 17].map(sequence);

let kernels: Kernels;
let threads: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
  threads = await threadedKernels("simd", 3);
});
afterAll(() => {
  kernels.release();
  threads.release();
});

describe.each(NAMES)("%s", (name) => {
  test.each(["f32", "q8"] as const)(
    "a text has the same bits alone, in any batch, in slices and on threads, with weights in %s",
    async (weights) => {
      using model = await loadEncoder(kernels, join(FOLDER, name), { weights });
      using other = await loadEncoder(threads, join(FOLDER, name), { weights });
      const all = encode(model, BATCH);
      expect(all.map(({ length }) => length)).toEqual(BATCH.map(({ length }) => length * model.vectorDim));
      expect(all.every((rows) => rows.every(Number.isFinite))).toBe(true);
      for (const [i, ids] of BATCH.entries()) expect(encode(model, [ids]), `text ${i}`).toEqual([all[i]]);
      expect(encode(model, [...BATCH].reverse())).toEqual([...all].reverse());
      expect(await encodeAsync(model, BATCH, { sliceMs: 1e-3 })).toEqual(all);
      expect(encode(other, BATCH)).toEqual(all);
      expect(encode(model, [])).toEqual([]);
    },
  );

  test("a call on texts of the planned length takes no more than the plan says", async () => {
    const own = await kernelsOf("simd");
    const { weights, scratch } = planEncoder(configOf(name), { tokens: 300 });
    using model = await loadEncoder(own, join(FOLDER, name), { weights: "f32" });
    // Besides, heads for masked tokens.
    expect(model.bytes).toBeGreaterThanOrEqual(weights);
    expect(model.bytes - weights).toBeLessThan(4096);
    const before = own.usedBytes;
    encode(model, [sequence(300, 1), ...BATCH]);
    expect(own.usedBytes - before).toBeLessThanOrEqual(scratch);
    own.release();
  });
});

test("the states behind a last projection have its width, and others that of the model", async () => {
  using projected = await loadEncoder(kernels, join(FOLDER, "embedding-gemma2"));
  using plain = await loadEncoder(kernels, join(FOLDER, "electra"));
  expect([projected.dModel, projected.vectorDim]).toEqual([16, 20]);
  expect([plain.dModel, plain.vectorDim]).toEqual([16, 16]);
});

test("a window on both sides is half of what config.json states, or a radius", () => {
  const windowOf = (config: object) => headsOf(config)?.window;
  expect(windowOf({ ...configOf("embedding-gemma"), sliding_window: 9 })).toEqual({ left: 4, right: 4 });
  expect(windowOf({ ...configOf("embedding-gemma2"), sliding_window: 9 })).toEqual({ left: 9, right: 9 });
});

test("full layers of EmbeddingGemma 2 have heads of 512 floats where config.json states none for layers", () => {
  const { per_layer_config: _, ...config } = configOf("embedding-gemma2");
  const { blocks } = readEncoder("loadEncoder", config).spec;
  const heads = blocks.map(({ mixer }) => (mixer as HeadsSpec).config);
  expect(heads.map(({ headDim, numKvHeads }) => [headDim, numKvHeads])).toEqual([
    [8, 2],
    [512, 1],
  ]);
});

test("a decoder that attends later keys is an encoder", async () => {
  const message = "use_bidirectional_attention expected false, got true, which loadEncoder reads";
  await expect(loadModel(kernels, join(FOLDER, "embedding-gemma"))).rejects.toThrow(`loadModel: ${message}`);
  expect(() => planModel(configOf("embedding-gemma"))).toThrow(`planModel: ${message}`);
});

test("MPNet's positions count from 2 on, and tokens of id 1 do not count", async () => {
  const config = {
    ...{ model_type: "mpnet", vocab_size: 11, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2 },
    ...{ intermediate_size: 8, max_position_embeddings: 9, pad_token_id: 0, relative_attention_num_buckets: 4 },
  };
  const tensors = tinyTensors(config, 1, readEncoder);
  using model = await loadEncoder(kernels, tinyFolder(config, tensors));
  expect(model.maxSeqLen).toBe(7);
  const table = [...tensors].find(([name]) => name.endsWith("position_embeddings.weight"))?.[1] as {
    data: Float32Array;
  };
  const states = encode(model, [[5, 1, 6, 1, 7]]);
  // The same places, written out as rows of the table.
  const order = [2, 1, 3, 1, 4];
  const data = table.data.slice();
  for (const [i, row] of order.entries()) data.set(table.data.subarray(8 * row, 8 * row + 8), 8 * (i + 2));
  const moved = new Map(
    [...tensors].map(([name, each]) => [name, each === (table as unknown) ? { ...each, data } : each]),
  );
  const renamed = (token: number) => (token === 1 ? 8 : token);
  for (const [name, each] of moved)
    if (name.endsWith("word_embeddings.weight")) each.data.set(each.data.slice(8, 16), 64);
  using other = await loadEncoder(kernels, tinyFolder(config, moved));
  expect(encode(other, [[5, 1, 6, 1, 7].map(renamed)])).toEqual(states);
});

test.each<[name: string, change: object, message: string]>([
  [
    "deberta-v2",
    { relative_attention: false },
    "relative_attention expected true, since others are unsupported, got false",
  ],
  [
    "deberta-v2",
    { share_att_key: undefined },
    "share_att_key expected true, since others are unsupported, got undefined",
  ],
  ["deberta-v2", { pos_att_type: "p2p|c2p" }, 'pos_att_type expected "c2p", "p2c", or both, got "p2p|c2p"'],
  ["deberta-v2", { norm_rel_ebd: "rms" }, 'norm_rel_ebd expected "layer_norm" or "none", got "rms"'],
  ["deberta-v2", { conv_kernel_size: 3 }, "conv_kernel_size expected 0, since others are unsupported, got 3"],
  ["deberta-v2", { position_biased_input: true }, "position_biased_input expected false"],
  ["deberta-v2", { model_type: "deberta" }, "which has relative positions inside attention"],
  ["electra", { position_embedding_type: "relative_key" }, 'position_embedding_type expected "absolute"'],
  ["gte", { layer_norm_type: "rms_norm" }, 'layer_norm_type expected "layer_norm"'],
  ["gte", { model_type: "new", logn_attention_scale: true }, "logn_attention_scale expected false"],
  [
    "gte",
    { model_type: "new", rope_parameters: null, rope_scaling: { type: "ntk", factor: 2, mixed_b: 0.5 } },
    "mixed_b expected null",
  ],
  ["jina-embeddings-v3", { lora_rank: 4 }, "lora_rank expected a field that this package knows, or none, got 4"],
  ["embedding-gemma2", { per_layer_config: { 1: { mlp: 3 } } }, "per_layer_config expected sizes of heads alone"],
])("%s with %o is refused", (name, change, message) => {
  expect(() => readEncoder("loadEncoder", { ...configOf(name), ...change })).toThrow(message);
});

test("distances without groups have a row each, and terms of queries or of keys alone are read", async () => {
  const plain = { ...configOf("deberta-v2"), position_buckets: -1, max_relative_positions: 6, norm_rel_ebd: "none" };
  const { distances } = readEncoder("loadEncoder", plain).spec;
  expect(distances).toEqual({ span: 6, longest: undefined, norm: undefined, ofQueries: true, ofKeys: true });
  const states = await Promise.all(
    ["c2p", "p2c", "p2c|c2p"].map(async (pos_att_type) => {
      const config = { ...plain, pos_att_type };
      using model = await loadEncoder(kernels, tinyFolder(config, tinyTensors(plain, 1, readEncoder)));
      return encode(model, [sequence(20, 1)])[0];
    }),
  );
  expect(new Set(states.map((each) => each?.[100])).size).toBe(3);
});

test("published files have tensors of poolers and other heads, which are not read", async () => {
  const others = {
    "deberta-v2": ["deberta.embeddings.position_embeddings", "lm_predictions.lm_head.dense", "mask_predictions.dense"],
    electra: ["discriminator_predictions.dense", "classifier.out_proj"],
    gte: ["gte.pooler.dense", "classifier"],
    eurobert: ["classifier"],
    "embedding-gemma": [],
  };
  for (const [name, added] of Object.entries(others)) {
    const [config, tensors] = [configOf(name), tinyTensors(configOf(name), 1, readEncoder)];
    const more = added.map((each) => [`${each}.weight`, { data: new Float32Array(16), shape: [4, 4] }] as const);
    using model = await loadEncoder(kernels, tinyFolder(config, new Map([...tensors, ...more])));
    using other = await loadEncoder(kernels, tinyFolder(config, tensors));
    expect(encode(model, [[5, 6]])).toEqual(encode(other, [[5, 6]]));
  }
});

test("a decoder of which vectors are taken needs no head, and reads none", async () => {
  const config = { ...configOf("arcee"), tie_word_embeddings: false };
  const tensors = tinyTensors(config, 1, readEncoder);
  expect(tensors.has("lm_head.weight")).toBe(false);
  const head = { data: new Float32Array(40 * 16).fill(1), shape: [40, 16] };
  using without = await loadEncoder(kernels, tinyFolder(config, tensors));
  using beside = await loadEncoder(kernels, tinyFolder(config, new Map([...tensors, ["lm_head.weight", head]])));
  expect(beside.bytes).toBe(without.bytes);
  expect(encode(beside, [[5, 6]])).toEqual(encode(without, [[5, 6]]));
});

test('"new" of Alibaba is GTE, and its scaling raises the frequencies of RoPE by what the factor says', () => {
  const published = {
    ...{ ...configOf("gte"), model_type: "new", rope_parameters: null, rope_theta: 20_000, pack_qkv: true },
    ...{ rope_scaling: { type: "ntk", factor: 8 }, position_embedding_type: "rope", layer_norm_type: "layer_norm" },
    ...{ logn_attention_clip1: false, logn_attention_scale: false, unpad_inputs: false, type_vocab_size: 0 },
    use_memory_efficient_attention: false,
  };
  const { spec } = readEncoder("loadEncoder", published);
  // Heads of 4: the pairs are divided by 8^(2/4) and 8^(4/4).
  expect(headsOf(published)?.rope).toEqual({
    theta: 20_000,
    pairing: "half",
    scaling: { kind: "factors", factors: Float32Array.of(Math.sqrt(8), 8) },
  });
  expect(spec.embed.types).toBeUndefined();
});
