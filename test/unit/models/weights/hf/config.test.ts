import { expect, test } from "vitest";
import { HeadwiseError } from "../../../../../src/base/util/errors.ts";
import { alibiSlopes } from "../../../../../src/layers/attention/config.ts";
import type { HfAttentionConfig } from "../../../../../src/models/families/attention-rules.ts";
import { LATENTS } from "../../../../../src/models/families/index.ts";
import { fromHfConfig, type HfConfigOptions } from "../../../../../src/models/weights/hf-config.ts";

const half = "half" as const;
const llama = {
  model_type: "llama",
  hidden_size: 4096,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  num_hidden_layers: 32,
  rope_theta: 500_000,
};
const llama3 = {
  rope_type: "llama3",
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
};
const qwen2 = {
  model_type: "qwen2",
  hidden_size: 896,
  num_attention_heads: 14,
  num_key_value_heads: 2,
  num_hidden_layers: 24,
  rope_theta: 1_000_000,
  sliding_window: 32_768,
  max_window_layers: 21,
  use_sliding_window: false,
};
const qwen3 = {
  model_type: "qwen3",
  hidden_size: 1024,
  num_attention_heads: 16,
  num_key_value_heads: 8,
  head_dim: 128,
  rms_norm_eps: 1e-6,
  rope_theta: 1_000_000,
  sliding_window: null,
  use_sliding_window: false,
};
const gemma2 = {
  model_type: "gemma2",
  hidden_size: 2304,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  head_dim: 256,
  query_pre_attn_scalar: 256,
  attn_logit_softcapping: 50,
  sliding_window: 4096,
  rope_theta: 10_000,
};
const gemma3 = {
  model_type: "gemma3_text",
  hidden_size: 1152,
  num_attention_heads: 4,
  num_key_value_heads: 1,
  head_dim: 256,
  query_pre_attn_scalar: 256,
  attn_logit_softcapping: null,
  rms_norm_eps: 1e-6,
  rope_theta: 1_000_000,
  rope_local_base_freq: 10_000,
  sliding_window: 512,
  sliding_window_pattern: 6,
};
const gptOss = {
  model_type: "gpt_oss",
  hidden_size: 2880,
  num_attention_heads: 64,
  num_key_value_heads: 8,
  head_dim: 64,
  num_hidden_layers: 24,
  sliding_window: 128,
  rope_theta: 150_000,
  max_position_embeddings: 131_072,
  rope_scaling: {
    rope_type: "yarn",
    factor: 32,
    beta_fast: 32,
    beta_slow: 1,
    original_max_position_embeddings: 4096,
    truncate: false,
  },
};
const phi3 = {
  model_type: "phi3",
  hidden_size: 3072,
  num_attention_heads: 32,
  num_key_value_heads: 32,
  rope_theta: 10_000,
  rope_scaling: null,
  sliding_window: 2047,
};
const falcon = {
  model_type: "falcon",
  hidden_size: 4544,
  num_attention_heads: 71,
  multi_query: true,
  new_decoder_architecture: false,
  alibi: false,
};
const whisper = {
  model_type: "whisper",
  d_model: 384,
  encoder_layers: 4,
  decoder_layers: 4,
  encoder_attention_heads: 6,
  decoder_attention_heads: 6,
};
const t5 = { model_type: "t5", d_model: 1024, num_heads: 128, d_kv: 128, num_layers: 24 };
const bert = { model_type: "bert", hidden_size: 768, num_attention_heads: 12, num_hidden_layers: 12 };
const gpt2 = { model_type: "gpt2", n_embd: 768, n_head: 12, n_layer: 12 };

const shape = (dModel: number, numHeads: number, numKvHeads: number, headDim: number) => ({
  dModel,
  numHeads,
  numKvHeads,
  headDim,
});
const qwen3Norm = { kind: "per-head", eps: 1e-6 } as const;
const gemma3Norm = { kind: "per-head", onePlus: true, eps: 1e-6 } as const;
const yarn = { kind: "yarn", factor: 32, originalMaxSeqLen: 4096, betaFast: 32, betaSlow: 1, truncate: false } as const;

test.each<[model: string, json: object, layer: number, want: HfAttentionConfig]>([
  [
    "Llama-3.1-8B",
    { ...llama, head_dim: null, rope_scaling: llama3 },
    31,
    {
      ...shape(4096, 32, 8, 128),
      causal: true,
      rope: {
        theta: 500_000,
        pairing: half,
        scaling: { kind: "llama3", factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxSeqLen: 8192 },
      },
    },
  ],
  [
    "Llama with rope_parameters",
    { ...llama, rope_theta: undefined, rope_parameters: { ...llama3, rope_theta: 500_000 } },
    0,
    {
      ...shape(4096, 32, 8, 128),
      causal: true,
      rope: {
        theta: 500_000,
        pairing: half,
        scaling: { kind: "llama3", factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxSeqLen: 8192 },
      },
    },
  ],
  [
    "Llama 1, with as many key-value heads and linear scaling by its old name",
    { model_type: "llama", hidden_size: 4096, num_attention_heads: 32, rope_scaling: { type: "linear", factor: 4 } },
    0,
    {
      ...shape(4096, 32, 32, 128),
      causal: true,
      rope: { theta: 10_000, pairing: half, scaling: { kind: "linear", factor: 4 } },
    },
  ],
  [
    "SmolLM2-135M",
    {
      ...llama,
      hidden_size: 576,
      num_attention_heads: 9,
      num_key_value_heads: 3,
      rope_theta: 100_000,
      rope_interleaved: false,
    },
    0,
    {
      ...shape(576, 9, 3, 64),
      causal: true,
      rope: { theta: 100_000, pairing: half },
    },
  ],
  [
    "Mistral-7B v0.1",
    { ...llama, model_type: "mistral", rope_theta: 10_000, sliding_window: 4096 },
    7,
    {
      ...shape(4096, 32, 8, 128),
      causal: true,
      window: { left: 4095 },
      rope: { theta: 10_000, pairing: half },
    },
  ],
  [
    "Mistral-7B v0.3, without a window",
    { ...llama, model_type: "mistral", sliding_window: null },
    7,
    {
      ...shape(4096, 32, 8, 128),
      causal: true,
      rope: { theta: 500_000, pairing: half },
    },
  ],
  [
    "Mistral whose file leaves its class's window out",
    { ...llama, model_type: "mistral" },
    0,
    {
      ...shape(4096, 32, 8, 128),
      causal: true,
      window: { left: 4095 },
      rope: { theta: 500_000, pairing: half },
    },
  ],
  [
    "Qwen2.5-0.5B, with its window off",
    qwen2,
    23,
    { ...shape(896, 14, 2, 64), causal: true, rope: { theta: 1_000_000, pairing: half } },
  ],
  [
    "Qwen2 with layer_types and its window off",
    { ...qwen2, use_sliding_window: undefined, layer_types: ["sliding_attention"] },
    0,
    { ...shape(896, 14, 2, 64), causal: true, rope: { theta: 1_000_000, pairing: half } },
  ],
  [
    "Qwen2 with its window on, below max_window_layers",
    { ...qwen2, use_sliding_window: true },
    20,
    {
      ...shape(896, 14, 2, 64),
      causal: true,
      rope: { theta: 1_000_000, pairing: half },
    },
  ],
  [
    "Qwen2 with its window on, from max_window_layers",
    { ...qwen2, use_sliding_window: true },
    21,
    {
      ...shape(896, 14, 2, 64),
      causal: true,
      window: { left: 32_767 },
      rope: { theta: 1_000_000, pairing: half },
    },
  ],
  [
    "Qwen2.5 with YaRN",
    {
      ...qwen2,
      max_position_embeddings: 32_768,
      rope_scaling: { type: "yarn", factor: 4, original_max_position_embeddings: 32_768 },
    },
    0,
    {
      ...shape(896, 14, 2, 64),
      causal: true,
      rope: { theta: 1_000_000, pairing: half, scaling: { kind: "yarn", factor: 4, originalMaxSeqLen: 32_768 } },
    },
  ],
  [
    "Qwen3-0.6B",
    qwen3,
    27,
    { ...shape(1024, 16, 8, 128), causal: true, qkNorm: qwen3Norm, rope: { theta: 1_000_000, pairing: half } },
  ],
  [
    "OLMo 2",
    { ...llama, model_type: "olmo2", rms_norm_eps: 1e-6 },
    0,
    {
      ...shape(4096, 32, 8, 128),
      causal: true,
      qkNorm: { kind: "full", eps: 1e-6 },
      rope: { theta: 500_000, pairing: half },
    },
  ],
  [
    "Gemma 7B",
    {
      ...llama,
      model_type: "gemma",
      hidden_size: 3072,
      num_attention_heads: 16,
      num_key_value_heads: 16,
      head_dim: 256,
    },
    0,
    {
      ...shape(3072, 16, 16, 256),
      causal: true,
      rope: { theta: 500_000, pairing: half },
    },
  ],
  [
    "Gemma-2-2B, a sliding layer",
    gemma2,
    24,
    {
      ...shape(2304, 8, 4, 256),
      causal: true,
      window: { left: 4095 },
      scale: 1 / 16,
      softcap: 50,
      rope: { theta: 10_000, pairing: half },
    },
  ],
  [
    "Gemma-2-27B, a full layer",
    {
      ...gemma2,
      hidden_size: 4608,
      num_attention_heads: 32,
      num_key_value_heads: 16,
      head_dim: 128,
      query_pre_attn_scalar: 144,
    },
    25,
    {
      ...shape(4608, 32, 16, 128),
      causal: true,
      scale: 1 / 12,
      softcap: 50,
      rope: { theta: 10_000, pairing: half },
    },
  ],
  [
    "Gemma-3-1B, a sliding layer",
    gemma3,
    4,
    {
      ...shape(1152, 4, 1, 256),
      causal: true,
      window: { left: 511 },
      scale: 1 / 16,
      qkNorm: gemma3Norm,
      rope: { theta: 10_000, pairing: half },
    },
  ],
  [
    "Gemma-3-1B, a full layer",
    gemma3,
    5,
    {
      ...shape(1152, 4, 1, 256),
      causal: true,
      scale: 1 / 16,
      qkNorm: gemma3Norm,
      rope: { theta: 1_000_000, pairing: half },
    },
  ],
  [
    "Gemma-3-4B, whose file leaves out what its class assumes, a full layer",
    {
      model_type: "gemma3",
      text_config: {
        hidden_size: 2560,
        num_hidden_layers: 34,
        sliding_window: 1024,
        rope_scaling: { rope_type: "linear", factor: 8 },
      },
    },
    11,
    {
      ...shape(2560, 8, 4, 256),
      causal: true,
      qkNorm: gemma3Norm,
      rope: { theta: 1_000_000, pairing: half, scaling: { kind: "linear", factor: 8 } },
    },
  ],
  [
    "Gemma-3-4B, a sliding layer, which is not scaled",
    {
      model_type: "gemma3",
      text_config: { hidden_size: 2560, sliding_window: 1024, rope_scaling: { rope_type: "linear", factor: 8 } },
    },
    0,
    {
      ...shape(2560, 8, 4, 256),
      causal: true,
      window: { left: 1023 },
      qkNorm: gemma3Norm,
      rope: { theta: 10_000, pairing: half },
    },
  ],
  [
    "Gemma 3 with layer_types and rope_parameters by type",
    {
      ...gemma3,
      rope_theta: undefined,
      sliding_window_pattern: undefined,
      layer_types: ["full_attention", "sliding_attention"],
      rope_parameters: {
        full_attention: { rope_type: "default", rope_theta: 2_000_000 },
        sliding_attention: { rope_type: "default", rope_theta: 20_000 },
      },
    },
    1,
    {
      ...shape(1152, 4, 1, 256),
      causal: true,
      window: { left: 511 },
      scale: 1 / 16,
      qkNorm: gemma3Norm,
      rope: { theta: 20_000, pairing: half },
    },
  ],
  [
    "Phi-3-mini-4k",
    phi3,
    0,
    { ...shape(3072, 32, 32, 96), causal: true, window: { left: 2046 }, rope: { theta: 10_000, pairing: half } },
  ],
  [
    "Phi-4-mini, which rotates three quarters of a head",
    { ...phi3, num_attention_heads: 24, num_key_value_heads: 8, partial_rotary_factor: 0.75, sliding_window: null },
    0,
    {
      ...shape(3072, 24, 8, 128),
      causal: true,
      rope: { theta: 10_000, pairing: half, dim: 96 },
    },
  ],
  [
    "gpt-oss-20b, an even layer",
    gptOss,
    0,
    {
      ...shape(2880, 64, 8, 64),
      causal: true,
      window: { left: 127 },
      rope: { theta: 150_000, pairing: half, scaling: yarn },
    },
  ],
  [
    "gpt-oss-20b, an odd layer",
    gptOss,
    23,
    { ...shape(2880, 64, 8, 64), causal: true, rope: { theta: 150_000, pairing: half, scaling: yarn } },
  ],
  [
    "gpt-oss with layer_types",
    { ...gptOss, layer_types: ["full_attention", "sliding_attention"] },
    0,
    { ...shape(2880, 64, 8, 64), causal: true, rope: { theta: 150_000, pairing: half, scaling: yarn } },
  ],
  [
    "YaRN with its factor left to the lengths, and mscale",
    {
      ...gptOss,
      rope_scaling: {
        rope_type: "yarn",
        original_max_position_embeddings: 4096,
        mscale: 1,
        mscale_all_dim: 0.75,
        attention_factor: 1.25,
      },
    },
    1,
    {
      ...shape(2880, 64, 8, 64),
      causal: true,
      rope: {
        theta: 150_000,
        pairing: half,
        scaling: {
          kind: "yarn",
          factor: 32,
          originalMaxSeqLen: 4096,
          attentionFactor: 1.25,
          mscale: 1,
          mscaleAllDim: 0.75,
        },
      },
    },
  ],
  [
    "YaRN whose mscale and mscale_all_dim of 0 mean their defaults",
    { ...gptOss, rope_scaling: { ...gptOss.rope_scaling, mscale: 0, mscale_all_dim: 0 } },
    1,
    { ...shape(2880, 64, 8, 64), causal: true, rope: { theta: 150_000, pairing: half, scaling: yarn } },
  ],
  ["GPT-2 small", gpt2, 11, { ...shape(768, 12, 12, 64), causal: true }],
  [
    "GPT-2 that divides by the layer",
    { ...gpt2, scale_attn_by_inverse_layer_idx: true },
    3,
    { ...shape(768, 12, 12, 64), causal: true, scale: 1 / 32 },
  ],
  [
    "GPT-2 that does not divide by the head's width",
    { ...gpt2, scale_attn_weights: false },
    3,
    { ...shape(768, 12, 12, 64), causal: true, scale: 1 },
  ],
  [
    "GPT-NeoX 20B",
    { model_type: "gpt_neox", hidden_size: 6144, num_attention_heads: 64, rotary_pct: 0.25, rotary_emb_base: 10_000 },
    0,
    {
      ...shape(6144, 64, 64, 96),
      causal: true,
      rope: { theta: 10_000, pairing: half, dim: 24 },
      fused: "grouped",
    },
  ],
  [
    "Falcon-7B",
    falcon,
    31,
    { ...shape(4544, 71, 1, 64), causal: true, rope: { theta: 10_000, pairing: half }, fused: "qkv" },
  ],
  [
    "Falcon-40B",
    { ...falcon, hidden_size: 8192, num_attention_heads: 128, num_kv_heads: 8, new_decoder_architecture: true },
    0,
    {
      ...shape(8192, 128, 8, 64),
      causal: true,
      rope: { theta: 10_000, pairing: half },
      fused: "grouped",
    },
  ],
  [
    "Falcon-RW-1B",
    { ...falcon, hidden_size: 2048, num_attention_heads: 32, multi_query: false, alibi: true },
    0,
    {
      ...shape(2048, 32, 32, 64),
      causal: true,
      alibi: alibiSlopes(32).map((slope) => slope / 8),
      fused: "grouped",
    },
  ],
  ["BERT-base", bert, 11, { ...shape(768, 12, 12, 64), causal: false }],
  ["BERT as a decoder", { ...bert, is_decoder: true }, 0, { ...shape(768, 12, 12, 64), causal: true }],
])("%s", (_, json, layer, want) => {
  expect(fromHfConfig(JSON.stringify(json), layer)).toStrictEqual(want);
  expect(fromHfConfig(JSON.parse(JSON.stringify(json)) as object, layer)).toStrictEqual(want);
});

test("an encoder-decoder model has three kinds of attention, and heads and layers of its own on each side", () => {
  const lopsided = { ...whisper, encoder_layers: 2, decoder_attention_heads: 3 };
  const encoder = { ...shape(384, 6, 6, 64), causal: false };
  expect(fromHfConfig(whisper, 3, "encoder")).toStrictEqual(encoder);
  expect(fromHfConfig(whisper, { layer: 3, part: "encoder" })).toStrictEqual(encoder);
  expect(fromHfConfig(lopsided, 3, "decoder")).toMatchObject({ numHeads: 3, headDim: 128, causal: true });
  expect(fromHfConfig(lopsided, { layer: 3, part: "cross" })).toMatchObject({
    numHeads: 3,
    headDim: 128,
    causal: false,
  });
  expect(() => fromHfConfig(lopsided, 3, "encoder")).toThrow(
    new RangeError("fromHfConfig: layer expected an integer from 0 to 1, got 3"),
  );
  const more = { ...t5, num_decoder_layers: 30 };
  expect(fromHfConfig(more, { layer: 29, part: "decoder", relativeBias: true })).toMatchObject({
    causal: true,
    scale: 1,
  });
  expect(() => fromHfConfig(t5, 24, "cross")).toThrow("layer expected an integer from 0 to 23, got 24");
});

test.each<[prefix: string, causal: boolean]>([
  ["model.decoder.layers.3.self_attn.", true],
  ["model.encoder.layers.3.self_attn.", false],
  ["decoder.layers.3.encoder_attn", false],
])("the part of an encoder-decoder model is found in the prefix %s", (prefix, causal) => {
  expect(fromHfConfig(whisper, { layer: 3, prefix }).causal).toBe(causal);
});

test("without part and prefix, and with both that differ, an encoder-decoder model is refused", () => {
  for (const prefix of [undefined, "", "layers.0.self_attn."])
    expect(() => fromHfConfig(whisper, { ...(prefix !== undefined && { prefix }) })).toThrow(
      'fromHfConfig: part expected "encoder", "decoder" or "cross" (or a prefix that names one), since "whisper" has all three, got undefined',
    );
  expect(() => fromHfConfig(whisper, { part: "encoder", prefix: "model.decoder.layers.0.self_attn." })).toThrow(
    new RangeError(
      'fromHfConfig: part expected "decoder", as in prefix "model.decoder.layers.0.self_attn.", got "encoder"',
    ),
  );
});

test("a model of one side has no other part", () => {
  const opt = { ...llama, model_type: "opt" };
  expect(fromHfConfig(opt, { prefix: "model.decoder.layers.0.self_attn." }).causal).toBe(true);
  expect(fromHfConfig(bert, { part: "encoder", prefix: "bert.encoder.layer.0.attention." }).causal).toBe(false);
  expect(fromHfConfig(llama, 0, "decoder").causal).toBe(true);
  expect(() => fromHfConfig(llama, 0, "encoder")).toThrow(
    new RangeError('fromHfConfig: part expected "decoder" for "llama", which has no other part, got "encoder"'),
  );
  expect(() => fromHfConfig(llama, { prefix: "model.layers.3.cross_attn." })).toThrow(
    new RangeError(
      'fromHfConfig: prefix expected "decoder" for "llama", which has no other part, got "model.layers.3.cross_attn."',
    ),
  );
  const decoder = { ...bert, is_decoder: true, add_cross_attention: true };
  expect(fromHfConfig(decoder, { prefix: "encoder.layer.0.crossattention." }).causal).toBe(false);
  expect(() => fromHfConfig(bert, 0, "cross")).toThrow('part expected "encoder" for "bert"');
});

test("self-attention of T5 needs a caller who passes its bias; cross-attention has none", () => {
  expect(() => fromHfConfig(t5, 0, "encoder")).toThrow(
    'fromHfConfig: model_type expected attention without relative positions, or options.relativeBias for a caller that passes their bias to attend, got "t5"',
  );
  const want = { ...shape(1024, 128, 128, 128), causal: false, scale: 1 };
  expect(fromHfConfig(t5, { part: "encoder", relativeBias: true })).toStrictEqual(want);
  expect(fromHfConfig(t5, 0, "cross")).toStrictEqual(want);
});

test("an unknown model is read by the rules of a known one, which refuse what they would ignore", () => {
  const unknown = { ...llama, model_type: "llama_2030", rms_norm_eps: 1e-5, attention_bias: false, vocab_size: 10 };
  expect(fromHfConfig(unknown, { as: "llama" })).toStrictEqual(fromHfConfig(llama));
  expect(() => fromHfConfig(unknown)).toThrow(
    /^fromHfConfig: model_type expected a supported one \(nearest: "llama"\), or options\.as with the one whose rules apply, got "llama_2030"$/,
  );
  const refused =
    (fields: object, as = "llama") =>
    () =>
      fromHfConfig({ ...unknown, ...fields }, { as });
  expect(refused({ no_rope_layers: [1, 1, 1, 0] })).toThrow(
    'fromHfConfig: no_rope_layers expected none, since the rules of "llama" have no layers without RoPE, got Array',
  );
  expect(refused({ attn_output_gate: true })).toThrow(
    'fromHfConfig: model_type expected attention that this package computes, got "llama_2030", which has gates of attention (attn_output_gate)',
  );
  expect(refused({ kv_lora_rank: 512 })).toThrow('got "llama_2030", which has latent attention (MLA) (kv_lora_rank)');
  expect(refused({ v_head_dim: 64 })).toThrow(
    'v_head_dim expected none, since the rules of "llama" have no values of another width, got 64',
  );
  expect(refused({ v_head_dim: 128, no_rope_layers: [1, 1], use_sliding_window: false })).not.toThrow();
  for (const field of ["sliding_window", "global_head_dim", "attn_sink_size", "rope_percent", "partial_key_norm"])
    expect(refused({ [field]: 3 })).toThrow(
      `fromHfConfig: ${field} expected none, since the rules of "llama" would ignore it, got 3`,
    );
  expect(refused({ use_rope: false })).toThrow("use_rope expected none");
  expect(refused({ is_decoder: false })).toThrow("is_decoder expected none");
  expect(refused({ mlp_layer_types: ["dense"] })).not.toThrow();
  expect(refused({ sliding_window: 7, max_window_layers: 9, use_sliding_window: false }, "qwen2")).not.toThrow();
});

test.each<[options: HfConfigOptions, json: object, error: Error]>([
  [
    { as: "lama" },
    { ...llama, model_type: "x" },
    new RangeError('fromHfConfig: options.as expected a supported model_type (nearest: "llama"), got "lama"'),
  ],
  [
    { as: "llama" },
    qwen3,
    new RangeError('fromHfConfig: options.as expected none for "qwen3", which is supported, got "llama"'),
  ],
  [{ as: 7 as never }, llama, new TypeError("fromHfConfig: options.as expected a string, got 7")],
  [{ prefix: 7 as never }, llama, new TypeError("fromHfConfig: options.prefix expected a string, got 7")],
  [{ relativeBias: 1 as never }, t5, new TypeError("fromHfConfig: options.relativeBias expected true or false, got 1")],
  [
    { parts: "encoder" } as never,
    t5,
    new TypeError('fromHfConfig: options expected only layer, part, prefix, as, relativeBias, maxSeqLen, got "parts"'),
  ],
])("options %o are refused", (options, json, error) => {
  expect(() => fromHfConfig(json, options)).toThrow(error);
});

test.each<[type: string, what: string]>([
  ["deepseek_v32", "latent attention (MLA) to keys that an indexer selects"],
  ["minicpm3", "latent attention (MLA) with longrope"],
  ["qwen3_next", "gated attention beside linear attention"],
  ["rwkv", "state-space layers instead of attention"],
  ["mamba", "state-space layers instead of attention"],
  ["jamba", "state-space or recurrent layers between those of attention"],
  ["gemma3n_text", "a norm of values, and keys that layers share"],
])("%s is refused by name, also with options.as", (type, what) => {
  const message = `fromHfConfig: model_type expected attention that this package computes, got "${type}", which has ${what}`;
  expect(() => fromHfConfig({ ...llama, model_type: type })).toThrow(message);
  expect(() => fromHfConfig({ ...llama, model_type: type }, { as: "llama" })).toThrow(message);
});

test.each([...LATENTS.keys()])("%s is refused with the name of the function that reads it", (type) => {
  const message = `fromHfConfig: model_type expected attention that createAttention computes, got "${type}", whose latent attention (MLA) fromHfLatentConfig reads`;
  expect(() => fromHfConfig({ ...llama, model_type: type })).toThrow(message);
  expect(() => fromHfConfig({ ...llama, model_type: type }, { as: "llama" })).toThrow(message);
});

test.each<[json: object, message: string]>([
  [
    { ...llama, no_rope_layers: [1, 0] },
    'no_rope_layers expected none, since the rules of "llama" have no layers without RoPE, got Array',
  ],
  [
    { ...llama, clip_qkv: 8 },
    'clip_qkv expected none, since the rules of "llama" have no limits of queries, keys and values, got 8',
  ],
  [{ ...llama, model_type: "olmoe", clip_qkv: 8 }, "clip_qkv expected null, since others are unsupported, got 8"],
  [
    { ...llama, model_type: "phi", qk_layernorm: true },
    "qk_layernorm expected false, since others are unsupported, got true",
  ],
  [
    { ...llama, rope_scaling: { type: "linear", factor: 2, alpha: 1000 } },
    'rope scaling expected only fields that this package knows, since others may change the result, got "alpha"',
  ],
  [
    { ...llama, rope_scaling: { type: "default", mrope_section: [16, 24, 24] } },
    'rope scaling expected only fields that this package knows, since others may change the result, got "mrope_section"',
  ],
  [
    { ...qwen3, layer_types: ["linear_attention"] },
    'layer_types of layer 0 expected "sliding_attention" or "full_attention", since linear attention is unsupported, got "linear_attention"',
  ],
  [
    { ...llama, model_type: "lfm2", layer_types: ["conv"] },
    'layer_types of layer 0 expected "full_attention", since convolutions are unsupported, got "conv"',
  ],
  [
    { ...llama, model_type: "lfm2", full_attn_idxs: [2, 5] },
    'full_attn_idxs expected to contain layer 0, since convolutions are unsupported, got "2, 5"',
  ],
  // What createAttention refuses, with the field of the file.
  [
    { ...gptOss, rope_scaling: { ...gptOss.rope_scaling, beta_fast: 1, beta_slow: 4 } },
    "beta_fast (rope.scaling.betaFast) expected a finite number >= betaSlow (4), got 1",
  ],
  [
    { ...llama, hidden_size: 2 ** 31, head_dim: 64 },
    "hidden_size expected an integer from 1 to 2147483647, got 2147483648",
  ],
  [
    { ...gemma2, attn_logit_softcapping: 1e308 },
    "attn_logit_softcapping expected a number from 1e-6 to 1e6, got 1e+308",
  ],
  [
    { ...llama, num_key_value_heads: 5 },
    "num_attention_heads (numHeads) expected a multiple of numKvHeads (5), got 32",
  ],
  [
    { ...llama, num_attention_heads: 2 ** 17, num_key_value_heads: 1 },
    "num_attention_heads expected an integer from 1 to 65536, got 131072",
  ],
  [{ ...llama, rope_theta: 0.5 }, "rope_theta (rope.theta) expected a finite number >= 1, got 0.5"],
  [
    { ...llama, rope_scaling: { type: "linear", factor: 0.5 } },
    "factor (rope.scaling.factor) expected a finite number >= 1, got 0.5",
  ],
  [{ ...qwen3, rms_norm_eps: 1e300 }, "rms_norm_eps expected a finite float32 number > 0, got 1e+300"],
  [
    { ...gemma2, query_pre_attn_scalar: 1e-320 },
    "query_pre_attn_scalar expected a number from 1e-6 to 1e6, got 1e-320",
  ],
])("%o is refused by the name of its field", (json, message) => {
  const run = () => fromHfConfig(json);
  expect(run).toThrow(HeadwiseError);
  expect(run).toThrow(`fromHfConfig: ${message}`);
});

test("of models of several modalities, the prefix tells which one is meant", () => {
  const vision = { model_type: "siglip_vision_model", hidden_size: 1152, num_attention_heads: 16 };
  const gemma = { model_type: "gemma3", text_config: gemma3, vision_config: vision };
  expect(fromHfConfig(gemma, 5)).toStrictEqual(fromHfConfig(gemma3, 5));
  expect(fromHfConfig(gemma, { prefix: "vision_tower.vision_model.encoder.layers.0.self_attn." })).toStrictEqual({
    ...shape(1152, 16, 16, 72),
    causal: false,
  });
  const clip = { model_type: "clip", text_config: {}, vision_config: { hidden_size: 1024, num_attention_heads: 16 } };
  const text = { ...shape(512, 8, 8, 64), causal: true };
  expect(fromHfConfig(clip, { prefix: "text_model.encoder.layers.0.self_attn." })).toStrictEqual(text);
  expect(fromHfConfig(clip, { prefix: "vision_model.encoder.layers.0.self_attn." })).toStrictEqual({
    ...shape(1024, 16, 16, 64),
    causal: false,
  });
  expect(() => fromHfConfig(clip)).toThrow(
    'model_type expected one model: pass text_config or vision_config of the file, or options.prefix, got "clip"',
  );
  const nested: Record<string, unknown> = { model_type: "gemma3" };
  nested.text_config = nested;
  expect(() => fromHfConfig(nested)).toThrow('model_type expected a supported one (nearest: "gemma3"');
  const pixtral = { model_type: "mistral3", text_config: {}, vision_config: {} };
  expect(() => fromHfConfig(pixtral, { prefix: "vision_tower.transformer." })).toThrow('got "pixtral"');
});

test.each<[json: unknown, message: string]>([
  ["{", 'json expected valid JSON, got "{"'],
  ["[]", "config.json expected an object, got Array"],
  ['"llama"', 'config.json expected an object, got "llama"'],
  [{}, "model_type expected a supported one, or options.as"],
  [{ ...llama, hidden_size: undefined }, "hidden_size expected an integer >= 1, got undefined"],
  [{ ...llama, num_attention_heads: "32" }, 'num_attention_heads expected an integer >= 1, got "32"'],
  [{ ...llama, hidden_size: 4100 }, "hidden_size expected a multiple of num_attention_heads (32), got 4100"],
  [{ ...llama, rope_theta: -1 }, "rope_theta expected a finite float32 number > 0, got -1"],
  [{ ...llama, rope_scaling: "linear" }, 'rope_scaling expected an object, got "linear"'],
  [
    { ...llama, rope_scaling: { type: "linear" } },
    "factor of the rope scaling expected a finite float32 number > 0, got undefined",
  ],
  [
    { ...llama, rope_scaling: { ...llama3, original_max_position_embeddings: null } },
    "original_max_position_embeddings expected an integer >= 1, got undefined",
  ],
  [
    { ...llama, rope_scaling: { type: "dynamic", factor: 2 } },
    'rope scaling expected "linear", "llama3", "yarn", or with options.maxSeqLen of fromHfConfig "longrope", or "dynamic" up to max_position_embeddings, since others are unsupported, got "dynamic"',
  ],
  [
    { ...phi3, rope_scaling: { type: "longrope", long_factor: [1], short_factor: [1] } },
    'rope scaling expected "linear", "llama3", "yarn", or with options.maxSeqLen of fromHfConfig "longrope", or "dynamic" up to max_position_embeddings, since others are unsupported, got "longrope"',
  ],
  [
    { ...gptOss, layer_types: ["chunked_attention"] },
    'layer_types of layer 0 expected "sliding_attention" or "full_attention", since attention in chunks is unsupported, got "chunked_attention"',
  ],
  [
    { ...gptOss, layer_types: [] },
    'layer_types of layer 0 expected "sliding_attention" or "full_attention", got undefined',
  ],
  [{ ...gemma2, use_bidirectional_attention: true }, "use_bidirectional_attention expected false, got true"],
  [
    { ...bert, position_embedding_type: "relative_key" },
    'position_embedding_type expected "absolute", since others are unsupported, got "relative_key"',
  ],
  [{ ...falcon, alibi: 1 }, "alibi expected true or false, got 1"],
  [
    { ...gptOss, rope_scaling: { ...gptOss.rope_scaling, mscale: -1 } },
    "mscale expected a number from 1e-6 to 1e6, got -1",
  ],
  [
    { model_type: "gpt_neox", hidden_size: 64, num_attention_heads: 4, rotary_pct: 0.1 },
    "rotary_pct expected a share of head_dim (16) that is an even integer >= 2, got 0.1",
  ],
  [
    { model_type: "gpt_neox", hidden_size: 64, num_attention_heads: 4, rotary_pct: 2 },
    "rotary_pct expected a share of head_dim (16) that is an even integer >= 2, got 2",
  ],
  [
    { ...phi3, partial_rotary_factor: 0.01 },
    "partial_rotary_factor expected a share of head_dim (96) that is an even integer >= 2, got 0.01",
  ],
  [
    { ...phi3, partial_rotary_factor: 0.04 },
    "partial_rotary_factor expected a share of head_dim (96) that is an even integer >= 2, got 0.04",
  ],
])("%o is refused", (json, message) => {
  const run = () => fromHfConfig(json as object);
  expect(run).toThrow(HeadwiseError);
  expect(run).toThrow(`fromHfConfig: ${message}`);
});

test.each(["constructor", "__proto__", "toString", 7])(
  "model_type %o is unknown, whatever Object.prototype has",
  (type) => {
    expect(() => fromHfConfig(`{"model_type":${JSON.stringify(type)}}`)).toThrow(
      "model_type expected a supported one, or options.as",
    );
  },
);

test.each<[args: readonly unknown[], error: Error]>([
  [[7], new TypeError("fromHfConfig: json expected JSON text or an object, got 7")],
  [[null], new TypeError("fromHfConfig: json expected JSON text or an object, got null")],
  [[llama, -1], new RangeError("fromHfConfig: layer expected an integer >= 0, got -1")],
  [[llama, 32], new RangeError("fromHfConfig: layer expected an integer from 0 to 31, got 32")],
  [[llama, "0"], new TypeError('fromHfConfig: layer expected an integer >= 0, got "0"')],
  [[t5, 0, "both"], new RangeError('fromHfConfig: part expected "encoder" or "decoder" or "cross", got "both"')],
])("wrong arguments throw: %o", (args, error) => {
  expect(() => fromHfConfig(...(args as Parameters<typeof fromHfConfig>))).toThrow(error);
});
