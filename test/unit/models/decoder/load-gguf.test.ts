// Whole models in GGUF: each architecture against its form of Hugging Face.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Tensor } from "../../../../src/base/tensor/tensor.ts";
import type { Kernels } from "../../../../src/entries/core.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { GGUF_DECODERS } from "../../../../src/models/families/index.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { gguf } from "../../../../src/models/spec/read-gguf.ts";
import { bytesOf, u32, writeGguf } from "../../../support/gguf-writer.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { ggufModel, realTensors, tinyGguf } from "../../../support/tiny-gguf.ts";
import { HYBRIDS, TINY, TINY_FEATURES, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
});
afterAll(() => kernels.release());

const SMALL = { hidden_size: 40, intermediate_size: 52, num_hidden_layers: 2, vocab_size: 67 };
const LENGTH = { max_position_embeddings: 512 };
const GROUPED = { num_attention_heads: 4, num_key_value_heads: 2, head_dim: 12, ...LENGTH };
const NARROW = { num_attention_heads: 4, num_key_value_heads: 2, ...LENGTH };
const RMS = { rms_norm_eps: 2 ** -14 };
const LAYER = { layer_norm_eps: 2 ** -14 };
const LLAMA = { model_type: "llama", ...SMALL, ...GROUPED, ...RMS };
const BLOOM = { model_type: "bloom", hidden_size: 40, n_head: 4, n_layer: 2, vocab_size: 67, seq_length: 512 };
const FALCON = {
  ...{ model_type: "falcon", hidden_size: 40, num_hidden_layers: 2, vocab_size: 67 },
  ...{ num_attention_heads: 4, ...LENGTH, layer_norm_epsilon: 2 ** -14 },
};
const NEOX = { model_type: "gpt_neox", ...SMALL, num_attention_heads: 4, ...LENGTH, ...LAYER, rotary_pct: 0.4 };
const PHI3 = { model_type: "phi3", ...SMALL, ...NARROW, ...RMS, tie_word_embeddings: false };
const STABLE = { model_type: "stablelm", ...SMALL, ...NARROW, ...LAYER, partial_rotary_factor: 0.4 };
const LATENT = {
  ...{ ...TINY.deepseek_v3, ...RMS, n_group: 4, topk_group: 2, routed_scaling_factor: 1.5 },
  rope_scaling: { type: "yarn", factor: 4, original_max_position_embeddings: 64, mscale: 1, mscale_all_dim: 1 },
};
const MULTIPLIERS = {
  attention_multiplier: 0.25,
  embedding_multiplier: 3,
  residual_multiplier: 0.5,
  logits_scaling: 4,
};
const YARN = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 64 };
const GEMMA3 = {
  ...{ model_type: "gemma3_text", ...SMALL, ...GROUPED, ...RMS, num_hidden_layers: 7, sliding_window: 9 },
  ...{ query_pre_attn_scalar: 12, rope_theta: 1_000_000 },
};
const GPT_OSS = { ...TINY.gpt_oss, ...RMS, rope_theta: 150_000 };
const GRANITE = { model_type: "granite", ...SMALL, ...NARROW, ...RMS, ...MULTIPLIERS };
const SIGMOID = {
  ...{ n_routed_experts: 5, n_shared_experts: 1, num_experts_per_tok: 2, moe_intermediate_size: 16 },
  ...{ first_k_dense_replace: 1, norm_topk_prob: true, routed_scaling_factor: 1.5 },
};
const ERNIE_MOE = {
  ...{ model_type: "ernie4_5_moe", ...SMALL, ...GROUPED, ...RMS, rope_theta: 500_000, moe_num_experts: 5 },
  ...{ moe_k: 2, moe_num_shared_experts: 2, moe_intermediate_size: 16, moe_layer_start_index: 1 },
};
const GLM_MOE = {
  ...{ model_type: "glm4_moe", ...SMALL, ...GROUPED, ...RMS, ...SIGMOID, partial_rotary_factor: 0.5 },
  use_qk_norm: true,
};
const MINIMAX = {
  ...{ model_type: "minimax_m2", ...SMALL, ...GROUPED, ...RMS, rope_theta: 10_000, rotary_dim: 6 },
  ...{ num_local_experts: 5, num_experts_per_tok: 2 },
};
const GROWING = { rope_theta: 10_000, rope_scaling: { ...YARN, llama_4_scaling_beta: 0.125 } };

/** Files have no factors, limits of steps or biases of these. */
const ONES = { key_multiplier: 1, ssm_multipliers: [1, 1, 1, 1, 1], mlp_multipliers: [1, 1], mamba_rms_norm: false };
const GRANITE_4 = { ...HYBRIDS.granitemoehybrid, ...RMS, ...MULTIPLIERS };
const GATE_FIRST = { mamba_rms_norm: true, mamba_norm_before_gate: false };
const STEPS = { time_step_limit: [0, "Infinity"] };
const LFM2_MOE = {
  ...{ model_type: "lfm2_moe", ...SMALL, ...GROUPED, norm_eps: 2 ** -14, layer_types: ["conv", "full_attention"] },
  ...{ num_experts: 5, num_experts_per_tok: 2, moe_intermediate_size: 20, num_dense_layers: 1, rope_theta: 10_000 },
};

/**
 * config.json of families, by the architecture of their GGUF files. llama.cpp loads these files, but for DeepSeek-V2 without queries of
 * low rank, which it reads in models of 26 or 27 layers alone.
 */
const CASES: readonly (readonly [architecture: string, what: string, config: object])[] = [
  ["arcee", "", { model_type: "arcee", ...SMALL, ...GROUPED, ...RMS }],
  ["bloom", "", { ...BLOOM, layer_norm_epsilon: 2 ** -14 }],
  [
    "chatglm",
    "",
    {
      model_type: "glm",
      ...SMALL,
      ...NARROW,
      ...RMS,
      num_attention_heads: 2,
      num_key_value_heads: 1,
      head_dim: 20,
      partial_rotary_factor: 0.5,
    },
  ],
  [
    "cohere2",
    "",
    {
      model_type: "cohere2",
      ...SMALL,
      ...NARROW,
      ...LAYER,
      num_hidden_layers: 4,
      sliding_window: 9,
      logit_scale: 0.25,
    },
  ],
  ["command-r", "", { model_type: "cohere", ...SMALL, ...NARROW, ...LAYER, logit_scale: 0.25 }],
  ["deepseek2", "V3", LATENT],
  [
    "deepseek2",
    "V2",
    { ...LATENT, model_type: "deepseek_v2", q_lora_rank: null, n_group: 1, topk_group: 1, topk_method: "greedy" },
  ],
  [
    "deepseek2",
    "V2 with groups",
    { ...LATENT, model_type: "deepseek_v2", q_lora_rank: null, topk_method: "group_limited_greedy" },
  ],
  ["falcon", "one key head", FALCON],
  ["falcon", "two norms", { ...FALCON, num_kv_heads: 2, new_decoder_architecture: true }],
  ["gemma", "", { model_type: "gemma", ...SMALL, ...GROUPED, ...RMS }],
  ["gemma2", "", { ...TINY.gemma2, ...RMS, query_pre_attn_scalar: 12 }],
  ["gemma3", "", GEMMA3],
  ["gemma3", "linear scaling", { ...GEMMA3, rope_scaling: { rope_type: "linear", factor: 8 } }],
  // With all gates: of these, files of both forms divide by another number.
  ["gemma3n", "", { ...TINY_FEATURES.gemma3n_text, ...RMS, activation_sparsity_pattern: [0, 0, 0, 0, 0] }],
  ["gemma4", "", { ...TINY_FEATURES.gemma4_text, ...RMS }],
  ["gemma4", "experts", { ...TINY_FEATURES.gemma4_moe, ...RMS, final_logit_softcapping: 5 }],
  ["glm4", "", { model_type: "glm4", ...SMALL, ...GROUPED, ...RMS, partial_rotary_factor: 0.5 }],
  ["gpt-oss", "", GPT_OSS],
  ["gpt-oss", "yarn", { ...GPT_OSS, rope_scaling: { ...YARN, truncate: false } }],
  ["gpt2", "", { ...TINY.gpt2, layer_norm_epsilon: 2 ** -14 }],
  ["gptneox", "parallel", NEOX],
  ["gptneox", "in turn", { ...NEOX, use_parallel_residual: false }],
  ["granite", "", GRANITE],
  ["llama", "", { ...LLAMA, tie_word_embeddings: true }],
  [
    "llama",
    "Llama 3",
    {
      ...LLAMA,
      tie_word_embeddings: false,
      rope_theta: 500_000,
      rope_scaling: {
        rope_type: "llama3",
        factor: 8,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 64,
      },
    },
  ],
  ["llama", "linear scaling", { ...LLAMA, rope_scaling: { rope_type: "linear", factor: 4 } }],
  [
    "llama",
    "Mixtral",
    { ...LLAMA, model_type: "mixtral", num_local_experts: 5, num_experts_per_tok: 2, rope_theta: 1_000_000 },
  ],
  [
    "mpt",
    "",
    {
      model_type: "mpt",
      d_model: 40,
      n_heads: 4,
      n_layers: 2,
      max_seq_len: 512,
      vocab_size: 67,
      layer_norm_epsilon: 2 ** -14,
      no_bias: true,
    },
  ],
  ["bitnet", "", { model_type: "bitnet", ...SMALL, ...GROUPED, ...RMS, hidden_act: "silu", rope_theta: 10_000 }],
  ["dots1", "", { model_type: "dots1", ...SMALL, ...GROUPED, ...RMS, ...SIGMOID }],
  ["ernie4_5-moe", "", ERNIE_MOE],
  ["ernie4_5-moe", "no shared experts", { ...ERNIE_MOE, moe_num_shared_experts: 0 }],
  ["exaone4", "", { model_type: "exaone4", ...SMALL, ...GROUPED, ...RMS, sliding_window: null }],
  ["glm4moe", "", GLM_MOE],
  ["glm4moe", "no norms", { ...GLM_MOE, use_qk_norm: false, attention_bias: true }],
  ["hunyuan-dense", "", { model_type: "hunyuan_v1_dense", ...SMALL, ...GROUPED, ...RMS }],
  ["minimax-m2", "", MINIMAX],
  ["mistral3", "", { model_type: "ministral3", ...SMALL, ...GROUPED, ...RMS, ...GROWING }],
  ["nemotron", "", { model_type: "nemotron", ...SMALL, ...GROUPED, norm_eps: 2 ** -14, partial_rotary_factor: 0.5 }],
  ["olmo", "", { model_type: "olmo", ...SMALL, ...GROUPED, clip_qkv: 0.5 }],
  ["qwen2vl", "", { model_type: "qwen2_vl_text", ...SMALL, ...NARROW, ...RMS, rope_theta: 10_000 }],
  ["qwen3vl", "", { model_type: "qwen3_vl_text", ...SMALL, ...GROUPED, ...RMS, rope_theta: 10_000 }],
  ["qwen3vlmoe", "", { ...TINY.qwen3_moe, ...RMS, model_type: "qwen3_vl_moe_text", rope_theta: 10_000 }],
  ["seed_oss", "", { model_type: "seed_oss", ...SMALL, ...GROUPED, ...RMS, attention_bias: true }],
  ["starcoder", "", { ...TINY_FEATURES.gpt_bigcode, layer_norm_epsilon: 2 ** -14 }],
  ["falcon-h1", "", { ...HYBRIDS.falcon_h1, ...LENGTH, ...RMS, ...ONES, rope_theta: 10_000 }],
  ["falcon-h1", "a norm", { ...HYBRIDS.falcon_h1, ...LENGTH, ...RMS, ...ONES, ...GATE_FIRST, rope_theta: 10_000 }],
  ["granitehybrid", "RoPE", { ...GRANITE_4, position_embedding_type: "rope", rope_theta: 10_000 }],
  ["granitehybrid", "no bias", { ...GRANITE_4, mamba_conv_bias: false }],
  ["granitehybrid", "", GRANITE_4],
  ["lfm2", "", { ...HYBRIDS.lfm2, norm_eps: 2 ** -14, conv_bias: false, rope_theta: 10_000 }],
  ["lfm2moe", "", LFM2_MOE],
  ["mamba2", "", { ...HYBRIDS.mamba2, ...LENGTH, layer_norm_epsilon: 2 ** -14, ...STEPS, use_bias: false }],
  ["nemotron_h", "", { ...HYBRIDS.nemotron_h, layer_norm_epsilon: 2 ** -14 }],
  ["qwen35", "", { ...HYBRIDS.qwen3_5_text, ...RMS }],
  ["qwen35moe", "", { ...HYBRIDS.qwen3_next, ...RMS, model_type: "qwen3_5_moe_text" }],
  ["qwen3next", "", { ...HYBRIDS.qwen3_next, ...RMS }],
  ["olmo2", "", { model_type: "olmo2", ...SMALL, ...NARROW, ...RMS }],
  [
    "olmo2",
    "OLMo 3",
    {
      model_type: "olmo3",
      ...SMALL,
      ...NARROW,
      ...RMS,
      num_hidden_layers: 4,
      sliding_window: 9,
      rope_scaling: YARN,
    },
  ],
  [
    "phi2",
    "",
    {
      model_type: "phi",
      ...SMALL,
      num_attention_heads: 4,
      ...LENGTH,
      ...LAYER,
      partial_rotary_factor: 0.4,
      tie_word_embeddings: false,
    },
  ],
  ["phi3", "window", { ...PHI3, sliding_window: 9 }],
  [
    "phi3",
    "longrope",
    {
      ...PHI3,
      original_max_position_embeddings: 64,
      sliding_window: null,
      rope_scaling: { type: "longrope", short_factor: [1, 1.25, 1.5, 2, 2.5], long_factor: [1, 2, 3, 5, 8] },
    },
  ],
  ["ernie4_5", "", { model_type: "ernie4_5", ...SMALL, ...GROUPED, ...RMS, rope_theta: 500_000 }],
  [
    "olmoe",
    "",
    {
      model_type: "olmoe",
      ...{ ...SMALL, ...NARROW, ...RMS, num_experts: 5, num_experts_per_tok: 2, norm_topk_prob: false },
    },
  ],
  ["qwen2", "", { model_type: "qwen2", ...SMALL, ...NARROW, ...RMS }],
  [
    "qwen2",
    "yarn",
    {
      model_type: "qwen2",
      ...SMALL,
      ...NARROW,
      ...RMS,
      rope_scaling: YARN,
    },
  ],
  ["qwen2moe", "", { ...TINY.qwen2_moe, ...RMS, norm_topk_prob: false }],
  ["qwen3", "", { model_type: "qwen3", ...SMALL, ...GROUPED, ...RMS }],
  ["qwen3moe", "", { ...TINY.qwen3_moe, ...RMS }],
  ["smollm3", "", { model_type: "smollm3", ...SMALL, ...GROUPED, ...RMS, num_hidden_layers: 4, rope_theta: 2_000_000 }],
  ["stablelm", "in turn", STABLE],
  ["stablelm", "parallel", { ...STABLE, use_parallel_residual: true }],
  ["starcoder2", "", { model_type: "starcoder2", ...SMALL, ...NARROW, norm_epsilon: 2 ** -14, sliding_window: null }],
];

/** Without biases that no file of the form has. */
function tensorsOf(config: object, as?: string): Map<string, Tensor> {
  const tensors = new Map(realTensors(config, tinyTensors(config), as));
  if ((config as { model_type: string }).model_type === "phi")
    tensors.set("lm_head.bias", { data: Float32Array.from({ length: 67 }, (_, i) => i / 67), shape: [67] });
  return tensors;
}

const IDS = Array.from({ length: 24 }, (_, i) => (i * 29 + 3) % 67);

async function logitsOf(source: Parameters<typeof loadModel>[1]): Promise<Float32Array> {
  using model = await loadModel(kernels, source, { maxSeqLen: 80, gguf });
  using session = createSession(model);
  return forward(session, IDS, { rows: "all" }).logits;
}

/**
 * Rows of queries and keys of these, or value heads, were permuted, so that sums of scores have another order; and the factor of longrope is
 * rounded to float32 in a file. Measured: at most 1.2e-6 of the largest logit.
 */
const ROUNDED = [
  "arcee",
  "granite",
  "granitehybrid",
  "granitemoe",
  "llama",
  "mistral3",
  "olmo",
  "qwen35",
  "qwen35moe",
  "smollm3",
];

const largest = (values: Float32Array) => values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);

/** The largest difference, relative to the largest of `want`. */
const apart = (got: Float32Array, want: Float32Array) =>
  largest(want.map((x, i) => x - (got[i] as number))) / largest(want);

describe("the logits of a GGUF are those of its safetensors form, to the bit or 2^-19 where rows were permuted", () => {
  test.each(CASES)("%s %s", async (architecture, what, config) => {
    const tensors = tensorsOf(config);
    expect(ggufModel(config, tensors).metadata["general.architecture"]?.value).toBe(architecture);
    const want = await logitsOf(tinyFolder(config, tensors));
    const got = await logitsOf(tinyGguf(config, tensors));
    if (ROUNDED.includes(architecture) || what === "longrope") expect(apart(got, want)).toBeLessThan(2 ** -19);
    else expect(got).toEqual(want);
  });

  test("granitemoe is Mixtral with multipliers: without them, and Granite where all experts are the same", async () => {
    const mixtral = {
      ...{ ...LLAMA, model_type: "mixtral", rope_theta: 10_000 },
      ...{ num_local_experts: 5, num_experts_per_tok: 2 },
    };
    const ones = {
      attention_multiplier: 12 ** -0.5,
      embedding_multiplier: 1,
      residual_multiplier: 1,
      logits_scaling: 1,
    };
    const tensors = tensorsOf(mixtral);
    const routed = await logitsOf(tinyGguf({ ...mixtral, ...ones }, tensors, "granitemoe"));
    expect(apart(routed, await logitsOf(tinyFolder(mixtral, tensors)))).toBeLessThan(2 ** -19);

    const dense = tensorsOf(GRANITE, "granitemoe");
    const same = new Map<string, Tensor>();
    for (const [name, tensor] of dense) {
      const [, at, part, end] = /^(.*)mlp\.(\w+)_proj\.(\w+)$/.exec(name) ?? [];
      if (part === undefined) same.set(name, tensor);
      else
        for (const expert of [0, 1, 2])
          same.set(
            `${at}block_sparse_moe.experts.${expert}.${{ gate: "w1", up: "w3", down: "w2" }[part]}.${end}`,
            tensor,
          );
    }
    for (const layer of [0, 1])
      same.set(`model.layers.${layer}.block_sparse_moe.gate.weight`, { data: new Float32Array(120), shape: [3, 40] });
    const moe = { ...GRANITE, num_local_experts: 3, num_experts_per_tok: 2 };
    const equal = await logitsOf(tinyGguf(moe, same, "granitemoe"));
    expect(apart(equal, await logitsOf(tinyFolder(GRANITE, dense)))).toBeLessThan(2 ** -19);
  });

  test("older files of DeepSeek-V2, which do not state whether weights of experts are divided, are read the same", async () => {
    const [, , config] = CASES.find(([, what]) => what === "V2") as (typeof CASES)[number];
    const tensors = tensorsOf(config);
    const model = ggufModel(config, tensors);
    for (const key of ["expert_weights_norm", "expert_gating_func"]) delete model.metadata[`deepseek2.${key}`];
    expect(await logitsOf(writeGguf(model))).toEqual(await logitsOf(tinyFolder(config, tensors)));
  });

  test("DeepSeek-V2 and V3 without dense layers are read the same", async () => {
    for (const [, , config] of CASES.filter(([name]) => name === "deepseek2")) {
      const sparse = { ...config, first_k_dense_replace: 0 };
      const tensors = tensorsOf(sparse);
      expect(await logitsOf(tinyGguf(sparse, tensors))).toEqual(await logitsOf(tinyFolder(sparse, tensors)));
    }
  });

  test("tensors of one head and one expert, which some programs store without the dimensions of 1, are read the same", async () => {
    const ones = { num_attention_heads: 1, num_key_value_heads: 1, n_routed_experts: 1, num_experts_per_tok: 1 };
    const config = { ...LATENT, ...ones, n_group: 1, topk_group: 1, model_type: "deepseek_v2", topk_method: "greedy" };
    const tensors = tensorsOf(config);
    const model = ggufModel(config, tensors);
    const cut = model.tensors.map(({ shape, ...tensor }) => ({
      ...tensor,
      shape: shape.slice(shape.findIndex((size) => size !== 1)),
    }));
    expect(cut.filter(({ shape }, i) => shape.length !== model.tensors[i]?.shape.length).length).toBeGreaterThan(4);
    expect(await logitsOf(writeGguf({ ...model, tensors: cut }))).toEqual(await logitsOf(tinyFolder(config, tensors)));
  });

  test("the first files of Qwen3-Next, and rows that are vectors, are read the same", async () => {
    const config = { ...HYBRIDS.qwen3_next, ...RMS };
    const tensors = tensorsOf(config);
    const model = ggufModel(config, tensors);
    const { data, shape } = tensors.get("model.layers.0.linear_attn.in_proj_qkvz.weight") as Tensor;
    const older = model.tensors.flatMap((tensor) => {
      const { name } = tensor;
      if (/ffn_gate_inp_shexp/.test(name)) return [{ ...tensor, shape: tensor.shape.slice(1) }];
      if (name === "blk.0.attn_gate.weight") return [];
      return name === "blk.0.attn_qkv.weight"
        ? [{ ...tensor, name: "blk.0.ssm_in.weight", shape, bytes: bytesOf(data as Float32Array) }]
        : [tensor];
    });
    const want = await logitsOf(tinyFolder(config, tensors));
    expect(await logitsOf(writeGguf({ ...model, tensors: older }))).toEqual(want);
  });

  test("layers that predict tokens further ahead are not read", async () => {
    const config = { model_type: "qwen3", ...SMALL, ...GROUPED, ...RMS };
    const tensors = tensorsOf(config);
    const model = ggufModel(config, tensors);
    const { metadata } = model;
    metadata["qwen3.block_count"] = u32(3);
    metadata["qwen3.nextn_predict_layers"] = u32(1);
    const more = model.tensors.filter(({ name }) => name.startsWith("blk.1."));
    const ahead = more.map((tensor) => ({ ...tensor, name: tensor.name.replace("blk.1.", "blk.2.nextn.") }));
    const file = { ...model, tensors: [...model.tensors, ...ahead] };
    expect(await logitsOf(writeGguf(file))).toEqual(await logitsOf(tinyFolder(config, tensors)));
    metadata["qwen3.nextn_predict_layers"] = u32(3);
    await expect(logitsOf(writeGguf(file))).rejects.toThrow(
      'key "qwen3.nextn_predict_layers" expected less than the 3 layers, got 3',
    );
  });

  /** Those that this writer does not write: compared with files of llama.cpp's converter (docs/guide/decoders.md). */
  const CONVERTED = ["apertus", "bitnet", "internlm2", "jamba"];

  test("every architecture is among them, or its files are those of the converter", () => {
    const names = [...CASES.map(([name]) => name), "granitemoe", ...CONVERTED];
    expect([...new Set(names)].sort()).toEqual([...GGUF_DECODERS.keys()].sort());
  });
});
