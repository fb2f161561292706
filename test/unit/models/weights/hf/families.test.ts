// What each supported model differs in, on small files. The first families are in config.test.ts.

import { expect, test } from "vitest";
import type { HfAttentionConfig } from "../../../../../src/models/families/attention-rules.ts";
import { LAYERS } from "../../../../../src/models/families/index.ts";
import { fromHfConfig } from "../../../../../src/models/weights/hf-config.ts";

/** GQA with heads of 16 floats. */
const sizes = { hidden_size: 64, num_attention_heads: 4, num_key_value_heads: 2, num_hidden_layers: 8 };
const shape = { dModel: 64, numHeads: 4, numKvHeads: 2, headDim: 16 };
const mha = { ...shape, numKvHeads: 4 };
const rope = (theta = 10_000, more: object = {}) => ({ rope: { theta, pairing: "half" as const, ...more } });
const interleaved = (theta = 10_000, more: object = {}) => rope(theta, { pairing: "interleaved", ...more });
const perHead = (eps: number) => ({ qkNorm: { kind: "per-head" as const, eps } });
const full = (eps: number) => ({ qkNorm: { kind: "full" as const, eps } });
const left = (tokens: number) => ({ window: { left: tokens - 1 } });
const causal = { ...shape, causal: true };
const encoder = { ...mha, causal: false };
const ones = { n_embd: 64, n_head: 4, n_layer: 8 };
const bart = {
  ...{ d_model: 64, encoder_layers: 2, decoder_layers: 8 },
  ...{ encoder_attention_heads: 2, decoder_attention_heads: 4 },
};
const t5 = { d_model: 64, num_heads: 4, d_kv: 16, num_layers: 8 };
const plain = { hidden_size: 64, num_attention_heads: 4, num_hidden_layers: 8 };
const llama3 = {
  kind: "llama3",
  ...{ factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxSeqLen: 8192 },
} as const;
const yarn = { kind: "yarn", factor: 4, originalMaxSeqLen: 512 } as const;

const CASES: readonly (readonly [type: string, json: object, layer: number, want: HfAttentionConfig])[] = [
  ["arcee", sizes, 0, { ...causal, ...rope() }],
  ["apertus", { ...sizes, rope_theta: 1e6, rope_scaling: null }, 0, { ...causal, ...perHead(1e-5), ...rope(1e6) }],
  ["apertus", { ...sizes, qk_norm: true }, 0, { ...causal, ...perHead(1e-5), ...rope(12e6, { scaling: llama3 }) }],
  ["biogpt", plain, 0, { ...mha, causal: true }],
  [
    "bloom",
    { hidden_size: 64, n_head: 4, n_layer: 8 },
    7,
    { ...mha, causal: true, alibi: "geometric", fused: "grouped" },
  ],
  ["bloom", { n_embed: 64, num_attention_heads: 4 }, 7, { ...mha, causal: true, alibi: "geometric", fused: "grouped" }],
  ["cohere", { ...sizes, use_qk_norm: false }, 0, { ...causal, ...interleaved() }],
  ["cohere2", { ...sizes, sliding_window: 9 }, 2, { ...causal, ...left(9), ...interleaved() }],
  ["cohere2", { ...sizes, sliding_window: 9 }, 3, causal],
  ["cohere2", { ...sizes, sliding_window_pattern: 2 }, 0, { ...causal, ...left(4096), ...interleaved() }],
  [
    "dbrx",
    { d_model: 64, n_heads: 4, n_layers: 8, attn_config: { kv_n_heads: 2, rope_theta: 5e5, clip_qkv: null } },
    0,
    { ...causal, ...rope(5e5) },
  ],
  ["deepseek", sizes, 0, { ...causal, ...rope() }],
  [
    "dots1",
    { ...sizes, sliding_window: 5, max_window_layers: 3 },
    3,
    { ...causal, ...left(5), ...perHead(1e-6), ...rope() },
  ],
  ["dots1", { ...sizes, sliding_window: 5, max_window_layers: 3 }, 2, { ...causal, ...perHead(1e-6), ...rope() }],
  ["ernie4_5", sizes, 0, { ...causal, ...interleaved(5e5) }],
  ["ernie4_5_moe", sizes, 0, { ...causal, ...interleaved(5e5) }],
  ["exaone", { ...sizes, num_hidden_layers: undefined, num_layers: 8 }, 7, { ...causal, ...rope() }],
  ["exaone4", { ...sizes, sliding_window: 7 }, 0, { ...causal, ...left(7), ...perHead(1e-5), ...rope() }],
  ["exaone4", { ...sizes, sliding_window: 7 }, 3, { ...causal, ...perHead(1e-5) }],
  ["exaone4", { ...sizes, sliding_window: null }, 3, { ...causal, ...perHead(1e-5), ...rope() }],
  ["flex_olmo", sizes, 0, { ...causal, ...full(1e-6), ...rope(5e5) }],
  ["glm", { ...sizes, head_dim: 16 }, 0, { ...causal, ...interleaved(1e4, { dim: 8 }) }],
  ["glm4", { ...sizes, head_dim: 16, partial_rotary_factor: 0.25 }, 0, { ...causal, ...interleaved(1e4, { dim: 4 }) }],
  ["glm4_moe", { ...sizes, use_qk_norm: true }, 0, { ...causal, ...perHead(1e-5), ...rope(1e4, { dim: 8 }) }],
  ["glm4_moe", sizes, 0, { ...causal, ...rope(1e4, { dim: 8 }) }],
  [
    "gpt_neo",
    { hidden_size: 64, num_heads: 4, num_layers: 8, attention_layers: ["global", "local"] },
    1,
    { ...mha, causal: true, ...left(256), scale: 1 },
  ],
  [
    "gpt_neo",
    { hidden_size: 64, num_heads: 4, num_layers: 8, window_size: 5 },
    3,
    { ...mha, causal: true, ...left(5), scale: 1 },
  ],
  [
    "gpt_neo",
    {
      hidden_size: 64,
      num_heads: 4,
      attention_types: [
        [["local"], 2],
        [["global"], 2],
      ],
    },
    3,
    { ...mha, causal: true, scale: 1 },
  ],
  ["gptj", { ...ones, rotary_dim: 8 }, 0, { ...mha, causal: true, ...interleaved(1e4, { dim: 8 }) }],
  ["granite", { ...sizes, attention_multiplier: 0.3 }, 0, { ...causal, scale: 0.3, ...rope() }],
  ["granitemoe", sizes, 0, { ...causal, scale: 1, ...rope() }],
  ["granitemoeshared", { ...sizes, attention_multiplier: 0.5 }, 0, { ...causal, scale: 0.5, ...rope() }],
  ["helium", { ...sizes, head_dim: 16 }, 0, { ...causal, ...interleaved(1e5) }],
  ["internlm3", { ...sizes, head_dim: null }, 0, { ...causal, ...rope() }],
  ["internlm2", sizes, 0, { ...causal, ...rope(), fused: "grouped" }],
  ["lfm2", { ...sizes, layer_types: ["conv", "full_attention"] }, 1, { ...causal, ...perHead(1e-5), ...rope(1e6) }],
  ["lfm2_moe", { ...sizes, full_attn_idxs: [1], norm_eps: 1e-4 }, 1, { ...causal, ...perHead(1e-4), ...rope(1e6) }],
  ["minicpm", { ...sizes, scale_emb: 12, scale_depth: 1.4 }, 0, { ...causal, ...rope() }],
  ["minimax", { ...sizes, layer_types: ["full_attention"] }, 0, { ...causal, ...rope(1e6) }],
  ["minimax", { ...sizes, sliding_window: 6 }, 0, { ...causal, ...left(6), ...rope(1e6) }],
  [
    "minimax_m2",
    { ...sizes, head_dim: 16, rotary_dim: 8, use_qk_norm: true, attn_type_list: [1, 1] },
    0,
    { ...causal, ...full(1e-6), ...rope(5e6, { dim: 8 }) },
  ],
  [
    "ministral",
    { ...sizes, layer_types: ["full_attention", "sliding_attention"], sliding_window: 6 },
    1,
    { ...causal, ...left(6), ...rope() },
  ],
  ["mixtral", { ...sizes, sliding_window: null }, 0, { ...causal, ...rope(1e6) }],
  ["mixtral", { ...sizes, sliding_window: 6 }, 0, { ...causal, ...left(6), ...rope(1e6) }],
  [
    "mpt",
    {
      d_model: 64,
      n_heads: 4,
      n_layers: 8,
      attn_config: { alibi: true, alibi_bias_max: 8, clip_qkv: null, qk_ln: false, softmax_scale: 0.2 },
    },
    0,
    { ...mha, causal: true, alibi: "geometric", scale: 0.2 },
  ],
  ["nemotron", sizes, 0, { ...causal, ...rope(1e4, { dim: 8 }) }],
  [
    "vaultgemma",
    { ...sizes, head_dim: 16, sliding_window: 9, query_pre_attn_scalar: 25 },
    0,
    { ...causal, ...left(9), scale: 0.2, softcap: 50, ...rope() },
  ],
  ["olmo", { ...sizes, clip_qkv: null }, 0, { ...causal, ...rope() }],
  [
    "olmo3",
    {
      ...sizes,
      rope_theta: 5e5,
      sliding_window: 5,
      rope_scaling: { rope_type: "yarn", factor: 4, original_max_position_embeddings: 512 },
    },
    0,
    { ...causal, ...left(5), ...full(1e-5), ...rope(5e5) },
  ],
  [
    "olmo3",
    {
      ...sizes,
      rope_theta: 5e5,
      sliding_window: 5,
      rope_scaling: { rope_type: "yarn", factor: 4, original_max_position_embeddings: 512 },
    },
    3,
    { ...causal, ...full(1e-5), ...rope(5e5, { scaling: yarn }) },
  ],
  ["olmoe", sizes, 0, { ...causal, ...full(1e-5), ...rope() }],
  ["openai-gpt", ones, 0, { ...mha, causal: true }],
  ["opt", { ...plain, do_layer_norm_before: true }, 0, { ...mha, causal: true }],
  ["orion", sizes, 0, { ...causal, ...rope() }],
  ["phi", { ...sizes, qk_layernorm: false }, 0, { ...causal, ...rope(1e4, { dim: 8 }) }],
  ["phimoe", { ...sizes, sliding_window: 9 }, 0, { ...causal, ...left(9), ...rope(1e6) }],
  ["qwen2_moe", { ...sizes, use_sliding_window: false, sliding_window: 0 }, 0, { ...causal, ...rope() }],
  [
    "qwen2_moe",
    { ...sizes, use_sliding_window: true, sliding_window: 5, max_window_layers: 4 },
    2,
    { ...causal, ...left(5), ...rope() },
  ],
  [
    "qwen2_moe",
    { ...sizes, use_sliding_window: true, sliding_window: 5, max_window_layers: 4 },
    3,
    { ...causal, ...rope() },
  ],
  [
    "qwen3_moe",
    { ...sizes, use_sliding_window: true, sliding_window: 5 },
    3,
    { ...causal, ...left(5), ...perHead(1e-6), ...rope() },
  ],
  ["qwen3_moe", { ...sizes, mlp_only_layers: [1], rms_norm_eps: 1e-3 }, 3, { ...causal, ...perHead(1e-3), ...rope() }],
  ["seed_oss", { ...sizes, head_dim: 16 }, 0, { ...causal, ...rope() }],
  ["smollm3", { ...sizes, rope_theta: 5e4, no_rope_layers: [1, 1, 0] }, 2, causal],
  ["smollm3", { ...sizes, rope_theta: 5e4, no_rope_layers: [1, 1, 0] }, 1, { ...causal, ...rope(5e4) }],
  ["smollm3", { ...sizes, no_rope_layer_interval: 4 }, 3, causal],
  ["smollm3", sizes, 4, { ...causal, ...rope(2e6) }],
  ["smollm3", { ...sizes, use_sliding_window: true, sliding_window: 5 }, 3, { ...causal, ...left(5) }],
  ["stablelm", { ...sizes, qk_layernorm: false }, 0, { ...causal, ...rope(1e4, { dim: 4 }) }],
  ["starcoder2", { ...sizes, sliding_window: 11 }, 5, { ...causal, ...left(11), ...rope() }],
  ["starcoder2", { ...sizes, sliding_window: null }, 5, { ...causal, ...rope() }],
  ["xglm", { d_model: 64, attention_heads: 4, num_layers: 8 }, 7, { ...mha, causal: true }],
  ["xverse", sizes, 0, { ...causal, ...rope() }],
  ["distilbert", { dim: 64, n_heads: 4, n_layers: 8 }, 7, encoder],
  [
    "nomic_bert",
    { ...plain, rope_parameters: { rope_theta: 1000, rope_type: "default" } },
    0,
    { ...encoder, ...rope(1000) },
  ],
  [
    "nomic_bert",
    { ...ones, rotary_emb_base: 1000, rotary_emb_fraction: 0.5, causal: false },
    0,
    { ...encoder, ...rope(1000, { dim: 8 }) },
  ],
  ["modernbert", { ...plain, local_attention: 16 }, 1, { ...encoder, window: { left: 8, right: 8 }, ...rope() }],
  [
    "modernbert",
    { ...plain, local_attention: 16, local_rope_theta: null },
    1,
    { ...encoder, window: { left: 8, right: 8 }, ...rope(160_000) },
  ],
  ["modernbert", { ...plain, local_attention: 16, global_rope_theta: 8e4 }, 3, { ...encoder, ...rope(8e4) }],
  ["eurobert", plain, 0, { ...encoder, ...rope() }],
  ["gte", plain, 0, { ...encoder, ...rope(160_000) }],
  ["new", { ...plain, position_embedding_type: "rope" }, 0, { ...encoder, ...rope() }],
  ["jina_embeddings_v3", plain, 0, { ...encoder, ...rope(20_000) }],
  ["esm", { ...plain, position_embedding_type: "rotary" }, 0, { ...encoder, ...rope() }],
  ["esm", { ...plain, position_embedding_type: "absolute" }, 0, encoder],
  ["roformer", { ...plain, rotary_value: false }, 0, { ...encoder, ...interleaved() }],
  ["clip_text_model", plain, 0, { ...mha, causal: true }],
  ...(
    [
      ...["albert", "camembert", "data2vec-text", "electra", "ernie", "layoutlm", "megatron-bert", "xlm-roberta"],
      ...["xlm-roberta-xl", "audio-spectrogram-transformer", "beit", "clip_vision_model", "data2vec-audio", "deit"],
      ...["dinov2", "dinov2_with_registers", "hubert", "ijepa", "siglip_text_model", "siglip_vision_model"],
      ...["unispeech", "unispeech-sat", "vit", "vit_mae", "vit_msn", "wav2vec2", "yolos"],
    ] as const
  ).map((type) => [type, plain, 7, encoder] as const),
];

test.each(CASES)("%s %j, layer %i", (type, json, layer, want) => {
  expect(fromHfConfig({ model_type: type, ...json }, layer)).toStrictEqual(want);
});

const SIDED = [
  ...["bart", "blenderbot", "blenderbot-small", "fsmt", "m2m_100", "marian", "mbart", "nllb-moe", "pegasus", "plbart"],
  ...["speech_to_text", "whisper"],
];

test.each(SIDED)("%s has heads and layers of its own on each side", (type) => {
  const json = { model_type: type, ...bart };
  expect(fromHfConfig(json, { layer: 1, part: "encoder" })).toStrictEqual({
    ...{ dModel: 64, numHeads: 2, numKvHeads: 2, headDim: 32 },
    causal: false,
  });
  expect(fromHfConfig(json, { layer: 7, part: "decoder" })).toStrictEqual({ ...mha, causal: true });
  expect(fromHfConfig(json, { layer: 7, part: "cross" })).toStrictEqual({ ...mha, causal: false });
});

const BIASED = ["mt5", "switch_transformers", "t5", "umt5"];

test.each(BIASED)("%s scales by 1", (type) => {
  const json = { model_type: type, ...t5 };
  const options = { layer: 7, relativeBias: true };
  expect(fromHfConfig(json, { ...options, part: "encoder" })).toStrictEqual({ ...encoder, scale: 1 });
  expect(fromHfConfig(json, { ...options, part: "decoder" })).toStrictEqual({ ...mha, causal: true, scale: 1 });
});

test("mpnet needs a caller who passes its bias", () => {
  expect(fromHfConfig({ model_type: "mpnet", ...plain }, { relativeBias: true })).toStrictEqual(encoder);
  expect(() => fromHfConfig({ model_type: "mpnet", ...plain })).toThrow(
    "expected attention without relative positions",
  );
});

test("deberta-v2 needs a caller who passes its bias, and scales by the number of its terms", () => {
  const json = { model_type: "deberta-v2", ...plain, pos_att_type: "c2p|p2c" };
  const options = { relativeBias: true };
  expect(fromHfConfig(json, options)).toStrictEqual({ ...encoder, scale: 1 / Math.sqrt(3 * 16) });
  expect(() => fromHfConfig(json)).toThrow("expected attention without relative positions");
});

/** The models of config.test.ts, and one of test/unit/models/encoder/families.test.ts. */
const ELSEWHERE = [
  ...["llama", "mistral", "qwen2", "qwen3", "olmo2", "gemma", "gemma2", "gemma3_text", "phi3", "gpt_oss", "gpt2"],
  ...["gpt_neox", "falcon", "bert", "roberta", "deberta-v2", "embedding_gemma2_text"],
];

test("every supported model has a case", () => {
  const tested = new Set([...CASES.map(([type]) => type), ...SIDED, ...BIASED, "mpnet", ...ELSEWHERE]);
  expect(([...LAYERS.keys()] as string[]).filter((type) => !tested.has(type))).toEqual([]);
});
