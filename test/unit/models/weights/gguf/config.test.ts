// The configuration of a GGUF layer: the rules of each architecture, and what is refused.

import { describe, expect, test } from "vitest";
import {
  type AttentionConfig,
  createAttention,
  HeadwiseError,
  type StoredTensor,
} from "../../../../../src/entries/core.ts";
import { ropeTables } from "../../../../../src/entries/index.ts";
import { openGguf, readGgufLayer, toFloats } from "../../../../../src/entries/weights.ts";
import { GGUF_LAYERS } from "../../../../../src/models/families/index.ts";
import { createRandom } from "../../../../../src/tools/diagnostics/random.ts";
import { DIMS, keys, kv, layerOf, q, stored, tensors, vector, widen, zeros } from "../../../../support/gguf-layers.ts";
import {
  bool,
  f32,
  list,
  type Typed,
  text,
  u16,
  u32,
  u64,
  type Written,
  writeGguf,
} from "../../../../support/gguf-writer.ts";
import { floats } from "../../../../support/harness.ts";
import { kernelsOf } from "../../../../support/layers.ts";

const random = createRandom(31);
/** The configuration of a layer of this architecture, without what `DIMS` has. */
async function rulesOf(name: string, more: Readonly<Record<string, Typed>> = {}, layer = 0, extra: Written[] = []) {
  const { config } = await layerOf(keys(name, more), [...tensors(layer), ...extra], layer);
  expect(config).toMatchObject(DIMS);
  const own = Object.entries(config).filter(([field]) => !(field in DIMS));
  return Object.fromEntries(own) as Partial<AttentionConfig>;
}

describe("the rules of an architecture", () => {
  const HALF =
    "apertus bailingmoe2 codeshell dbrx dots1 dream eurobert exaone exaone4 falcon gemma gemma-embedding gemma2 gemma3 glm4moe gpt-oss gptneox grovemoe jina-bert-v3 lfm2 lfm2moe llada-moe minimax-m2 nemotron nomic-bert nomic-bert-moe olmo2 olmoe openelm orion pangu-embedded phi2 phi3 phimoe qwen2 qwen2moe qwen3 qwen3moe rnd1 seed_oss stablelm starcoder2";
  const INTERLEAVED =
    "llama arcee arctic baichuan bailingmoe chatglm command-r cohere2 deci deepseek ernie4_5 ernie4_5-moe glm4 granite granitemoe internlm2 llada llama-embed minicpm mistral3 olmo smollm3 xverse";
  const NONE = "bert bloom gpt2 jina-bert-v2 mpt refact starcoder";
  const all = [
    ...HALF.split(" ").map((name) => [name, "half"] as const),
    ...INTERLEAVED.split(" ").map((name) => [name, "interleaved"] as const),
    ...NONE.split(" ").map((name) => [name, undefined] as const),
  ];
  test.each(all)("%s rotates %s", async (name, pairing) => {
    expect((await rulesOf(name)).rope?.pairing).toBe(pairing);
  });

  test("the list of architectures is complete, and near names are listed for others", async () => {
    expect([...GGUF_LAYERS.keys()].sort()).toEqual(all.map(([name]) => name).sort());
    await expect(layerOf(keys("qwen4moe"))).rejects.toThrow(
      'readGgufLayer: key "general.architecture" expected a supported one (nearest: "qwen2moe", "qwen3moe"), or options.pairing',
    );
  });

  test.each([
    ["deepseek32", "latent attention (MLA) of another kind"],
    ["mamba", "state-space layers instead of attention"],
    ["qwen3next", "gated attention beside linear attention"],
    ["t5", "relative positions inside attention"],
  ])("%s is refused by name, also with a pairing", async (name, what) => {
    const message = `readGgufLayer: key "general.architecture" expected attention that this package computes, got "${name}", which has ${what}`;
    await expect(layerOf(keys(name))).rejects.toThrow(message);
    await expect(layerOf(keys(name), tensors(), 0, { pairing: "half" })).rejects.toThrow(message);
  });

  test("latent attention is refused with the name of the function that reads it, also with a pairing", async () => {
    const message =
      'readGgufLayer: key "general.architecture" expected attention that createAttention computes, got "deepseek2", whose latent attention (MLA) readGgufLatentLayer reads';
    await expect(layerOf(keys("deepseek2"))).rejects.toThrow(message);
    await expect(layerOf(keys("deepseek2"), tensors(), 0, { pairing: "half" })).rejects.toThrow(message);
  });

  test("a layer of LFM2 that is no attention is refused as that", async () => {
    const heads = { "attention.head_count_kv": list(4, [0, 2, 0, 2, 0, 2, 0, 2]) };
    await expect(layerOf(keys("lfm2", heads))).rejects.toThrow(
      'key "lfm2.attention.head_count_kv" expected heads in layer 0, since layers without attention are unsupported, got 0',
    );
    expect((await rulesOf("lfm2", heads, 1)).causal).toBe(true);
  });

  const half = { theta: 10_000, pairing: "half" } as const;
  const interleaved = { theta: 10_000, pairing: "interleaved" } as const;
  const window = { "attention.sliding_window": u32(512) };
  const norms = [
    vector("blk.0.attn_q_norm.weight", new Float32Array(32)),
    vector("blk.0.attn_k_norm.weight", new Float32Array(32)),
  ];
  const eps = { "attention.layer_norm_rms_epsilon": f32(1e-5) };

  test.each<[string, () => Promise<unknown>, Partial<AttentionConfig>]>([
    [
      "llama",
      () => rulesOf("llama", { "rope.freq_base": f32(500_000) }),
      { causal: true, rope: { ...interleaved, theta: 500_000 } },
    ],
    [
      "a share of the head rotates",
      () => rulesOf("phi2", { "rope.dimension_count": u32(12) }),
      { causal: true, rope: { ...half, dim: 12 } },
    ],
    ["a window of mistral", () => rulesOf("llama", window), { causal: true, window: { left: 511 }, rope: interleaved }],
    [
      "a window of 0 is none",
      () => rulesOf("llama", { "attention.sliding_window": u32(0) }),
      { causal: true, rope: interleaved },
    ],
    [
      "linear scaling",
      () => rulesOf("llama", { "rope.scaling.type": text("linear"), "rope.scaling.factor": f32(4) }),
      { causal: true, rope: { ...interleaved, scaling: { kind: "linear", factor: 4 } } },
    ],
    [
      "linear scaling by its old name",
      () => rulesOf("llama", { "rope.scale_linear": f32(4) }),
      { causal: true, rope: { ...interleaved, scaling: { kind: "linear", factor: 4 } } },
    ],
    [
      "scaling of type none",
      () => rulesOf("llama", { "rope.scaling.type": text("none"), "rope.scaling.factor": f32(4) }),
      { causal: true, rope: interleaved },
    ],
    [
      "yarn",
      () =>
        rulesOf("qwen2", {
          "rope.scaling.type": text("yarn"),
          "rope.scaling.factor": f32(4),
          "rope.scaling.original_context_length": u32(2048),
        }),
      { causal: true, rope: { ...half, scaling: { kind: "yarn", factor: 4, originalMaxSeqLen: 2048 } } },
    ],
    [
      "yarn with bounds of its own, and the context length",
      () =>
        rulesOf("qwen2", {
          "rope.scaling.type": text("yarn"),
          "rope.scaling.factor": f32(4),
          "rope.scaling.yarn_beta_fast": f32(8),
          "rope.scaling.yarn_beta_slow": f32(2),
        }),
      {
        causal: true,
        rope: { ...half, scaling: { kind: "yarn", factor: 4, originalMaxSeqLen: 4096, betaFast: 8, betaSlow: 2 } },
      },
    ],
    [
      "gpt-oss: even layers have the window, yarn's ramp is smooth",
      () => rulesOf("gpt-oss", { ...window, "rope.scaling.type": text("yarn"), "rope.scaling.factor": f32(32) }),
      {
        causal: true,
        window: { left: 511 },
        rope: { ...half, scaling: { kind: "yarn", factor: 32, originalMaxSeqLen: 4096, truncate: false } },
      },
    ],
    ["gpt-oss, an odd layer", () => rulesOf("gpt-oss", window, 1), { causal: true, rope: half }],
    ["gemma2", () => rulesOf("gemma2"), { causal: true, window: { left: 4095 }, softcap: 50, rope: half }],
    [
      "gemma2, an odd layer and its own cap",
      () => rulesOf("gemma2", { attn_logit_softcapping: f32(30) }, 1),
      { causal: true, softcap: 30, rope: half },
    ],
    [
      "gemma2 of 46 layers",
      () => rulesOf("gemma2", { block_count: u32(46) }, 1),
      { causal: true, scale: 1 / 4, softcap: 50, rope: half },
    ],
    [
      "gemma3, layers with the window have another theta and no scaling",
      () =>
        rulesOf(
          "gemma3",
          {
            ...window,
            ...eps,
            "rope.freq_base": f32(1e6),
            "rope.scaling.type": text("linear"),
            "rope.scaling.factor": f32(8),
          },
          0,
          norms,
        ),
      { causal: true, window: { left: 511 }, rope: half, qkNorm: { kind: "per-head", eps: Math.fround(1e-5) } },
    ],
    [
      "gemma3, every sixth layer",
      () =>
        rulesOf(
          "gemma3",
          { ...window, "rope.freq_base": f32(1e6), "rope.scaling.type": text("linear"), "rope.scaling.factor": f32(8) },
          5,
        ),
      { causal: true, rope: { ...half, theta: 1e6, scaling: { kind: "linear", factor: 8 } } },
    ],
    [
      "gemma3 of 62 layers",
      () => rulesOf("gemma3", { ...window, block_count: u32(62) }, 5),
      { causal: true, scale: 1 / 4, rope: half },
    ],
    [
      "a theta of the file for layers with the window",
      () => rulesOf("gemma3", { ...window, "rope.freq_base_swa": f32(20_000) }),
      { causal: true, window: { left: 511 }, rope: { ...half, theta: 20_000 } },
    ],
    [
      "sizes of the file for layers with the window, the same as of others",
      () =>
        rulesOf("gemma3", {
          ...window,
          ...{ "attention.key_length_swa": u32(32), "attention.value_length_swa": u32(32) },
          "rope.dimension_count_swa": u32(32),
        }),
      { causal: true, window: { left: 511 }, rope: half },
    ],
    [
      "a period of the file",
      () => rulesOf("gemma3", { ...window, "attention.sliding_window_pattern": u32(2) }, 1),
      { causal: true, rope: half },
    ],
    [
      "a pattern of the file",
      () => rulesOf("gemma3", { ...window, "attention.sliding_window_pattern": list(7, [0, 1, 0, 0, 0, 0, 0, 0]) }, 1),
      { causal: true, window: { left: 511 }, rope: half },
    ],
    [
      "a pattern of the file, elsewhere",
      () => rulesOf("llama", { ...window, "attention.sliding_window_pattern": list(7, [0, 1, 0, 0, 0, 0, 0, 0]) }),
      { causal: true, rope: interleaved },
    ],
    [
      "cohere2 rotates where it has the window",
      () => rulesOf("cohere2", window),
      { causal: true, window: { left: 511 }, rope: interleaved },
    ],
    ["cohere2, every fourth layer", () => rulesOf("cohere2", window, 3), { causal: true }],
    [
      "exaone4 of 64 layers rotates where it has the window",
      () => rulesOf("exaone4", { ...window, block_count: u32(64) }),
      { causal: true, window: { left: 511 }, rope: half },
    ],
    ["exaone4 of 64 layers, every fourth", () => rulesOf("exaone4", { block_count: u32(64) }, 3), { causal: true }],
    ["exaone4 of other sizes has no window", () => rulesOf("exaone4", window, 3), { causal: true, rope: half }],
    ["eurobert", () => rulesOf("eurobert"), { causal: false, rope: half }],
    ["smollm3, every fourth layer", () => rulesOf("smollm3", {}, 7), { causal: true }],
    [
      "granite's scale",
      () => rulesOf("granite", { "attention.scale": f32(0.0078125) }),
      { causal: true, scale: 0.0078125, rope: interleaved },
    ],
    [
      "granite's scale of 0, which is none",
      () => rulesOf("granite", { "attention.scale": f32(0) }),
      { causal: true, rope: interleaved },
    ],
    [
      "granite that does not rotate",
      () => rulesOf("granite", { "rope.scaling.finetuned": bool(false) }),
      { causal: true },
    ],
    [
      "llama that was not finetuned rotates",
      () => rulesOf("llama", { "rope.scaling.finetuned": bool(false) }),
      { causal: true, rope: interleaved },
    ],
    ["bloom", () => rulesOf("bloom"), { causal: true, alibi: "geometric" }],
    ["mpt", () => rulesOf("mpt", { "attention.max_alibi_bias": f32(8) }), { causal: true, alibi: "geometric" }],
    [
      "baichuan of 40 layers",
      () => rulesOf("baichuan", { block_count: u32(40) }),
      { causal: true, alibi: "geometric" },
    ],
    ["bert", () => rulesOf("bert"), { causal: false }],
    ["bert that is causal", () => rulesOf("bert", { "attention.causal": bool(true) }), { causal: true }],
    [
      "an architecture that is not known",
      async () => {
        const { config } = await layerOf(keys("new", { ...window, ...eps }), [...tensors(), ...norms], 0, {
          pairing: "half",
        });
        return Object.fromEntries(Object.entries(config).filter(([field]) => !(field in DIMS)));
      },
      { causal: true, window: { left: 511 }, rope: half, qkNorm: { kind: "per-head", eps: Math.fround(1e-5) } },
    ],
    [
      "a llama with rows as in the checkpoint",
      async () => (await layerOf(keys("llama"), tensors(), 0, { pairing: "half" })).config,
      { ...DIMS, causal: true, rope: half },
    ],
  ])("%s", async (_name, read, want) => {
    expect(await read()).toEqual(want);
  });

  test("norms over all heads, of olmo2", async () => {
    const all = [
      vector("blk.0.attn_q_norm.weight", floats(random, q)),
      vector("blk.0.attn_k_norm.weight", floats(random, kv)),
    ];
    const { config, weights } = await layerOf(keys("olmo2", eps), [...tensors(), ...all]);
    expect(config.qkNorm).toEqual({ kind: "full", eps: Math.fround(1e-5) });
    expect([weights.qNorm?.length, weights.kNorm?.length]).toEqual([q, kv]);
    using kernels = await kernelsOf("simd");
    createAttention(kernels, config, widen(weights)).release();
  });

  test("the norm of a single key head is over all heads where that of queries is", async () => {
    const written = [
      stored("blk.0.attn_q.weight", zeros(q, DIMS.dModel)),
      stored("blk.0.attn_k.weight", zeros(32, DIMS.dModel)),
      stored("blk.0.attn_v.weight", zeros(32, DIMS.dModel)),
      stored("blk.0.attn_output.weight", zeros(DIMS.dModel, q)),
      vector("blk.0.attn_q_norm.weight", floats(random, q)),
      vector("blk.0.attn_k_norm.weight", floats(random, 32)),
    ];
    const { config } = await layerOf(keys("olmo2", { ...eps, "attention.head_count_kv": u32(1) }), written);
    expect(config.qkNorm?.kind).toBe("full");
  });

  test("heads that differ from layer to layer, counts of 64 bits, and heads by dModel", async () => {
    const more = {
      "attention.head_count_kv": list(5, [4, 2, 1]),
      embedding_length: u64(64n),
      "attention.head_count": u32(4),
    };
    expect((await layerOf(keys("llama", more), tensors(1), 1)).config.numKvHeads).toBe(2);
    const { "llama.attention.key_length": _, "llama.attention.value_length": __, ...rest } = keys("llama");
    const written = [16 * 4, 16 * 2, 16 * 2].map((rows, i) => stored(`blk.0.attn_${"qkv"[i]}.weight`, zeros(rows, 64)));
    const { config } = await layerOf(rest, [...written, stored("blk.0.attn_output.weight", zeros(64, 64))]);
    expect([config.headDim, config.valueDim]).toEqual([16, 16]);
  });

  test("the factors of Llama 3 stretch as its formula does", async () => {
    const scaling = {
      kind: "llama3",
      factor: 32,
      lowFreqFactor: 1,
      highFreqFactor: 4,
      originalMaxSeqLen: 8192,
    } as const;
    const rope = { theta: 500_000, pairing: "interleaved", dim: 32 } as const;
    // What a converter writes: how much slower each pair turns.
    const frequencies = Array.from({ length: 16 }, (_, i) => 500_000 ** ((-2 * i) / 32));
    const factors = Float32Array.from(frequencies, (f) => {
      const turns = (8192 * f) / (2 * Math.PI);
      const share = Math.min(1, Math.max(0, (turns - 1) / 3));
      return f / ((1 - share) * (f / 32) + share * f);
    });
    const { config } = await layerOf(keys("llama", { "rope.freq_base": f32(500_000) }), [
      ...tensors(),
      vector("rope_freqs.weight", factors),
    ]);
    expect(config.rope).toEqual({ theta: 500_000, pairing: "interleaved", scaling: { kind: "factors", factors } });
    const positions = [0, 1, 100, 10_000];
    const [got, want] = [{ kind: "factors", factors } as const, scaling].map((each) =>
      ropeTables({ ...rope, scaling: each }, positions),
    );
    // A factor is rounded to float32, which turns a pair by 2^-24 of its angle, of at most 10,000 radians.
    const far = got!.cos.data.reduce((most, c, i) => Math.max(most, Math.abs(c - want!.cos.data[i]!)), 0);
    expect(far).toBeLessThan(10_000 * 2 ** -24 + 2 ** -23);
    using kernels = await kernelsOf("simd");
    createAttention(kernels, config, widen((await layerOf(keys("llama"))).weights)).release();

    const ones = [...tensors(), vector("rope_freqs.weight", new Float32Array(16).fill(1))];
    expect((await layerOf(keys("llama"), ones)).config.rope).toEqual(interleaved);
  });
});

describe("what is refused", () => {
  const without = (name: string, list = tensors()) => list.filter((each) => each.name !== name);
  const ones = (length: number) => new Float32Array(length).fill(1);
  const eps = { "attention.layer_norm_rms_epsilon": f32(1e-5) };
  const yarn = { "rope.scaling.type": text("yarn"), "rope.scaling.factor": f32(4) };

  test.each<[string, Record<string, Typed>, Written[], string]>([
    ["no architecture", { "llama.block_count": u32(1) }, tensors(), "got undefined"],
    ["an architecture that is a number", { ...keys("llama"), "general.architecture": u32(7) }, tensors(), "got 7"],
    ["an architecture of Object.prototype", keys("toString"), tensors(), 'got "toString"'],
    [
      "no dModel",
      { "general.architecture": text("llama"), "llama.block_count": u32(1) },
      tensors(),
      'key "llama.embedding_length" expected an integer >= 1, got undefined',
    ],
    [
      "no heads",
      keys("llama", { "attention.head_count": u32(0) }),
      tensors(),
      'key "llama.attention.head_count" expected an integer >= 1, got 0',
    ],
    [
      "heads in words",
      keys("llama", { "attention.head_count": text("4") }),
      tensors(),
      'key "llama.attention.head_count" expected an integer >= 1, got "4"',
    ],
    [
      "2^40 heads",
      keys("llama", { "attention.head_count": u64(2n ** 40n) }),
      tensors(),
      'key "llama.attention.head_count" expected an integer >= 1, got 1099511627776n',
    ],
    [
      "heads for no layer",
      keys("llama", { "attention.head_count_kv": list(4, []) }),
      tensors(),
      'key "llama.attention.head_count_kv" expected an integer >= 1 for layer 0, got undefined',
    ],
    [
      "a layer without heads",
      keys("llama", { "attention.head_count_kv": list(4, [0, 2]) }),
      tensors(),
      'key "llama.attention.head_count_kv" expected heads in layer 0, since layers without attention are unsupported, got 0',
    ],
    [
      "heads that do not share",
      keys("llama", { "attention.head_count_kv": u32(3) }),
      tensors(),
      'key "llama.attention.head_count_kv" expected a divisor of 4 heads, got 3',
    ],
    [
      "half a headDim",
      { ...keys("llama", { "attention.head_count": u32(6), "attention.key_length": f32(10.5) }) },
      tensors(),
      'key "llama.attention.key_length" expected an integer >= 1, got 10.5',
    ],
    [
      "a theta of NaN",
      keys("llama", { "rope.freq_base": f32(Number.NaN) }),
      tensors(),
      'key "llama.rope.freq_base" expected a finite float32 number > 0, got NaN',
    ],
    [
      "an infinite theta",
      keys("llama", { "rope.freq_base": f32(Number.POSITIVE_INFINITY) }),
      tensors(),
      'key "llama.rope.freq_base" expected a finite float32 number > 0, got Infinity',
    ],
    [
      "a flag that is a number",
      keys("llama", { "attention.causal": u32(1) }),
      tensors(),
      'key "llama.attention.causal" expected true or false, got 1',
    ],
    [
      "an odd share of the head",
      keys("llama", { "rope.dimension_count": u32(5) }),
      tensors(),
      `key "llama.rope.dimension_count" expected an even integer up to the head's 32, got 5`,
    ],
    [
      "more than the head",
      keys("llama", { "rope.dimension_count": u32(34) }),
      tensors(),
      `key "llama.rope.dimension_count" expected an even integer up to the head's 32, got 34`,
    ],
    [
      "longrope",
      keys("llama", { "rope.scaling.type": text("longrope") }),
      tensors(),
      'key "llama.rope.scaling.type" expected "none", "linear" or "yarn", since others are unsupported, got "longrope"',
    ],
    [
      "longrope's factors",
      keys("phi3"),
      [...tensors(), vector("rope_factors_long.weight", ones(16))],
      'tensor "rope_factors_long.weight" expected to be absent, since longrope is unsupported, got it',
    ],
    [
      "a factor of yarn that is read in two ways",
      keys("llama", { ...yarn, "rope.scaling.attn_factor": f32(1.2) }),
      tensors(),
      `key "llama.rope.scaling.attn_factor" expected absent, since it is unsupported, got ${Math.fround(1.2)}`,
    ],
    [
      "keys of another size in layers with a window",
      keys("llama", { "attention.key_length_swa": u32(16) }),
      tensors(),
      'key "llama.attention.key_length_swa" expected absent, since it is unsupported, got 16',
    ],
    [
      "values of another size in layers with a window",
      keys("llama", { "attention.value_length_swa": u32(64) }),
      tensors(),
      'key "llama.attention.value_length_swa" expected absent, since it is unsupported, got 64',
    ],
    [
      "another rotation in layers with a window",
      keys("llama", { "rope.dimension_count": u32(16), "rope.dimension_count_swa": u32(32) }),
      tensors(),
      'key "llama.rope.dimension_count_swa" expected absent, since it is unsupported, got 32',
    ],
    [
      "sections of mrope",
      keys("llama", { "rope.dimension_sections": list(4, [8, 8]) }),
      tensors(),
      'key "llama.rope.dimension_sections" expected absent, since it is unsupported, got Uint32Array',
    ],
    [
      "clamped projections",
      keys("olmo", { "attention.clamp_kqv": f32(8) }),
      tensors(),
      'key "olmo.attention.clamp_kqv" expected absent, since it is unsupported, got 8',
    ],
    [
      "latent ranks",
      keys("llama", { "attention.kv_lora_rank": u32(512) }),
      tensors(),
      'key "llama.attention.kv_lora_rank" expected absent, since it is unsupported, got 512',
    ],
    [
      "bounds of yarn that cross",
      keys("llama", { ...yarn, "rope.scaling.yarn_beta_fast": f32(1), "rope.scaling.yarn_beta_slow": f32(4) }),
      tensors(),
      'key "llama.rope.scaling.yarn_beta_fast" (rope.scaling.betaFast) expected a finite number >= betaSlow (4), got 1',
    ],
    [
      "a theta below 1",
      keys("llama", { "rope.freq_base": f32(0.5) }),
      tensors(),
      'key "llama.rope.freq_base" (rope.theta) expected a finite number >= 1, got 0.5',
    ],
    [
      "a softcap that no model has",
      keys("gemma2", { attn_logit_softcapping: f32(3e38) }),
      tensors(),
      `key "gemma2.attn_logit_softcapping" expected a number from 1e-6 to 1e6, got ${Math.fround(3e38)}`,
    ],
    [
      "another ALiBi",
      keys("mpt", { "attention.max_alibi_bias": f32(16) }),
      tensors(),
      'key "mpt.attention.max_alibi_bias" expected 0 or 8, that of the published slopes, got 16',
    ],
    [
      "a window that looks both ways",
      keys("bert", { "attention.sliding_window": u32(9) }),
      tensors(),
      'key "bert.attention.sliding_window" expected none in a layer that is not causal, got 9',
    ],
    [
      "a pattern that ends early",
      keys("gemma3", { "attention.sliding_window": u32(9), "attention.sliding_window_pattern": list(7, []) }),
      tensors(),
      'key "gemma3.attention.sliding_window_pattern" expected an integer >= 0 for layer 0, got undefined',
    ],
    [
      "factors beside a factor",
      keys("llama", { "rope.scaling.factor": f32(2) }),
      [...tensors(), vector("rope_freqs.weight", ones(16))],
      'key "llama.rope.scaling.factor" expected 1 beside a tensor of factors, got 2',
    ],
    [
      "too few factors",
      keys("llama"),
      [...tensors(), vector("rope_freqs.weight", ones(8))],
      'key "llama.rope.dimension_count" expected two for each of the 8 factors, got 32',
    ],
    [
      "a factor below 1",
      keys("llama"),
      [...tensors(), vector("rope_freqs.weight", ones(16).fill(0.5))],
      'tensor "rope_freqs.weight" expected finite factors >= 1, got 0.5',
    ],
    [
      "factors in rows",
      keys("llama"),
      [...tensors(), stored("rope_freqs.weight", zeros(4, 4))],
      'tensor "rope_freqs.weight" expected one dimension of at most 32768, got [4, 4]',
    ],
    [
      "no such layer's tensors",
      keys("llama"),
      tensors(1),
      'tensor "blk.0.attn_q.weight" expected shape [128, 64], got no such tensor',
    ],
    [
      "a layer of another file of a split model",
      { ...keys("llama"), "split.count": u16(3) },
      tensors(1),
      'tensor "blk.0.attn_q.weight" expected shape [128, 64], got no such tensor in this one of 3 files',
    ],
    [
      "no output",
      keys("llama"),
      without("blk.0.attn_output.weight"),
      'tensor "blk.0.attn_output.weight" expected shape [64, 128], got no such tensor',
    ],
    [
      "wrong keys",
      keys("llama"),
      [...without("blk.0.attn_k.weight"), stored("blk.0.attn_k.weight", zeros(64, 32))],
      'tensor "blk.0.attn_k.weight" expected shape [64, 64], got [64, 32]',
    ],
    [
      "a wrong bias",
      keys("qwen2"),
      [...tensors(), vector("blk.0.attn_q.bias", ones(64))],
      'tensor "blk.0.attn_q.bias" expected shape [128], got [64]',
    ],
    [
      "fused beside separate",
      keys("llama"),
      [...tensors(), stored("blk.0.attn_qkv.weight", zeros(q + 2 * kv, 64))],
      'tensor "blk.0.attn_q.weight" expected to be absent, since the layer would be read without it, got it',
    ],
    [
      "a gate",
      keys("llama"),
      [...tensors(), stored("blk.0.attn_gate.weight", zeros(2, 2))],
      'tensor "blk.0.attn_gate.weight" expected to be absent, since the layer would be read without it, got it',
    ],
    [
      "a norm with a bias",
      keys("qwen3", eps),
      [...tensors(), vector("blk.0.attn_q_norm.bias", ones(32))],
      'tensor "blk.0.attn_q_norm.bias" expected to be absent, since the layer would be read without it, got it',
    ],
    [
      "one norm of two",
      keys("qwen3", eps),
      [...tensors(), vector("blk.0.attn_q_norm.weight", ones(32))],
      'tensor "blk.0.attn_q_norm.weight" expected beside "blk.0.attn_k_norm.weight", both or neither, got one of them',
    ],
    [
      "norms of two kinds",
      keys("qwen3", eps),
      [...tensors(), vector("blk.0.attn_q_norm.weight", ones(32)), vector("blk.0.attn_k_norm.weight", ones(kv))],
      `tensor "blk.0.attn_k_norm.weight" expected shape [32], got [${kv}]`,
    ],
    [
      "norms that are no RMS norms",
      keys("stablelm", eps),
      [...tensors(), vector("blk.0.attn_q_norm.weight", ones(32)), vector("blk.0.attn_k_norm.weight", ones(32))],
      'tensor "blk.0.attn_q_norm.weight" expected to be absent, since the norm of stablelm is unsupported, got it',
    ],
    [
      "norms without an epsilon",
      keys("qwen3"),
      [...tensors(), vector("blk.0.attn_q_norm.weight", ones(32)), vector("blk.0.attn_k_norm.weight", ones(32))],
      'key "qwen3.attention.layer_norm_rms_epsilon" expected a finite float32 number > 0, got undefined',
    ],
    [
      "matrices of another shape",
      keys("llama"),
      [
        ...without("blk.0.attn_v.weight"),
        { name: "blk.0.attn_v.weight", type: 14, shape: [kv, 256], bytes: new Uint8Array(kv * 210) },
      ],
      'tensor "blk.0.attn_v.weight" expected shape [64, 64], got [64, 256]',
    ],
  ])("%s", async (_what, metadata, written, said) => {
    const refused = layerOf(metadata, written);
    await expect(refused).rejects.toBeInstanceOf(HeadwiseError);
    await expect(refused).rejects.toMatchObject({ code: "BAD_FILE" });
    const { message } = (await refused.catch((error) => error)) as Error;
    expect(message.slice(-said.length)).toBe(said);
    expect(message).toMatch(/^readGgufLayer: /);
  });

  test("matrices of K-quants are widened, whatever else the layer has", async () => {
    const wide = keys("llama", { embedding_length: u32(256) });
    const bytes = Uint8Array.from({ length: q * 210 }, (_, i) => (i * 37) % 101);
    const written = [
      { name: "blk.0.attn_q.weight", type: 14, shape: [q, 256], bytes },
      stored("blk.0.attn_k.weight", zeros(kv, 256)),
      stored("blk.0.attn_v.weight", zeros(kv, 256)),
      stored("blk.0.attn_output.weight", zeros(256, q)),
    ];
    const { weights } = await layerOf(wide, written);
    const file = await openGguf(writeGguf({ tensors: [written[0] as Written] }));
    expect(weights.wq).toMatchObject({ dtype: "F32", shape: [q, 256] });
    expect(toFloats(weights.wq as StoredTensor)).toEqual(toFloats(await file.read("blk.0.attn_q.weight")));
  });

  test("a type that cannot be read is named", async () => {
    const wide = keys("llama", { embedding_length: u32(256) });
    const written = [
      { name: "blk.0.attn_q.weight", type: 15, shape: [q, 256], bytes: new Uint8Array(q * 292) },
      stored("blk.0.attn_k.weight", zeros(kv, 256)),
      stored("blk.0.attn_v.weight", zeros(kv, 256)),
      stored("blk.0.attn_output.weight", zeros(256, q)),
    ];
    await expect(layerOf(wide, written)).rejects.toThrow(
      /readGgufLayer: tensor "blk\.0\.attn_q\.weight" expected F32, .* or IQ3_S, got Q8_K$/,
    );
  });

  test("wrong arguments are named", async () => {
    const file = await openGguf(writeGguf({ metadata: keys("llama"), tensors: tensors() }));
    for (const wrong of [undefined, null, 3, {}, { tensors: new Map(), metadata: new Map() }])
      await expect(readGgufLayer(wrong as never, 0)).rejects.toThrow(
        /^readGgufLayer: file expected metadata, tensors, read and/,
      );
    await expect(readGgufLayer(file, 8)).rejects.toThrow(
      new RangeError("readGgufLayer: layer expected an integer from 0 to 7, got 8"),
    );
    await expect(readGgufLayer(file, -1)).rejects.toThrow("readGgufLayer: layer expected an integer >= 0, got -1");
    await expect(readGgufLayer(file, 0, { pairing: "neox" as never })).rejects.toThrow(
      new RangeError('readGgufLayer: options.pairing expected "half" or "interleaved", got "neox"'),
    );
    await expect(readGgufLayer(file, 0, { paring: "half" } as never)).rejects.toThrow(
      new TypeError('readGgufLayer: options expected only pairing, got "paring"'),
    );
  });
});
