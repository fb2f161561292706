import { describe, expect, test } from "vitest";
import { HeadwiseError, loadKernels } from "../../../../src/entries/index.ts";
import { modelDigest } from "../../../../src/entries/inspect.ts";
import { latent } from "../../../../src/entries/latent.ts";
import { loadModel, type Model, models } from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";
import { digestOf, piecesOf } from "../../../../src/tools/inspect/digest.ts";
import { sampled } from "../../../support/sampled.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

const simd = await loadKernels({ models, quantized, latent, deterministic: true });
const relaxed = await loadKernels({ models, quantized, latent });
const FORMATS = ["f32", "f16", "bf16", "q8", "q8-row", "q4"] as const;
const SMALL = { hidden_size: 40, num_hidden_layers: 2, vocab_size: 67 };
const CONFIGS: Readonly<Record<string, object>> = {
  ...TINY,
  bloom: { model_type: "bloom", hidden_size: 40, n_head: 4, n_layer: 2, vocab_size: 67, seq_length: 512 },
  opt: {
    ...{ model_type: "opt", ...SMALL, ffn_dim: 52, num_attention_heads: 4, max_position_embeddings: 64 },
    ...{ word_embed_proj_dim: 24, do_layer_norm_before: true },
  },
  stablelm: {
    ...{ model_type: "stablelm", ...SMALL, intermediate_size: 52, num_attention_heads: 4, num_key_value_heads: 2 },
    ...{ qk_layernorm: true, max_position_embeddings: 512 },
  },
};

describe.each(sampled(Object.keys(CONFIGS), 5))("%s", (name) => {
  const config = CONFIGS[name] as object;
  const tensors = tinyTensors(config);

  test("has a digest of its own in each format, the same in both builds and wherever its weights lie", async () => {
    const digests: string[] = [];
    for (const weights of FORMATS) {
      const folder = tinyFolder(config, tensors);
      using model = await loadModel(simd, folder, { weights });
      const digest = await modelDigest(model);
      expect(digest).toMatch(/^[0-9a-f]{64}$/);
      digests.push(digest);
      // In memory that others have used, at other addresses.
      simd.memory.f32(simd.memory.scratch("test", 4096), 1024).fill(Number.NaN);
      const block = simd.memory.allocate("test", model.bytes + 640);
      simd.memory.f32(block, model.bytes / 4).fill(Number.NaN);
      simd.memory.free(block);
      using again = await loadModel(simd, folder, { weights, maxSeqLen: 32 });
      expect(await modelDigest(again)).toBe(digest);
      using fused = await loadModel(relaxed, folder, { weights });
      expect(await modelDigest(fused)).toBe(digest);
    }
    expect(new Set(digests).size).toBe(FORMATS.length);
  });

  test("has another digest if one weight of any tensor is another", async () => {
    const digests = new Set<string>();
    for (const changed of [undefined, ...tensors.keys()]) {
      const other = new Map(tensors);
      if (changed !== undefined) {
        const { data, shape } = tensors.get(changed)!;
        other.set(changed, { data: data.map((value, i) => (i === data.length - 1 ? value + 1 : value)), shape });
      }
      using model = await loadModel(simd, tinyFolder(config, other));
      digests.add(await modelDigest(model));
    }
    expect(digests.size).toBe(1 + tensors.size);
  });
});

test("what changes results without changing weights is part of the digest", async () => {
  const { llama } = TINY;
  const folder = (config: object) => tinyFolder(config, tinyTensors(llama));
  const digests = new Set<string>();
  for (const config of [llama, { ...llama, rms_norm_eps: 1e-3 }, { ...llama, rope_theta: 99 }]) {
    using model = await loadModel(simd, folder(config), { weights: "q8" });
    digests.add(await modelDigest(model));
  }
  using fast = await loadModel(simd, folder(llama), { weights: "q8", activations: "fast" });
  digests.add(await modelDigest(fast));
  expect(digests.size).toBe(4);
});

test("the digest does not depend on the pieces, and the memory may grow between them", async () => {
  const bytes = Uint8Array.from({ length: 2.5 * 2 ** 20 }, (_, i) => (i * i) >> 7);
  const whole = await digestOf(piecesOf(bytes.length, (begin, end) => bytes.subarray(begin, end)));
  const cut = function* () {
    for (let at = 0; at < bytes.length; at += 99_991) yield bytes.subarray(at, at + 99_991);
  };
  expect(await digestOf(cut())).toBe(whole);
  const { memory } = simd;
  const at = memory.allocate("test", bytes.length);
  memory.u8(at, bytes.length).set(bytes);
  const growing = piecesOf(bytes.length, (begin, end) => {
    memory.free(memory.allocate("test", memory.byteLength));
    return memory.u8(at + begin, end - begin);
  });
  expect(await digestOf(growing)).toBe(whole);
});

test("a model that was released, and a copy of one, are refused by name", async () => {
  const { llama } = TINY;
  const model = await loadModel(simd, tinyFolder(llama));
  model.release();
  await expect(modelDigest(model)).rejects.toThrow("modelDigest: model was released");
  await expect(modelDigest({ ...model } as Model)).rejects.toThrow("modelDigest: model expected what loadModel gives");
  await expect(modelDigest(model)).rejects.toBeInstanceOf(HeadwiseError);
});
