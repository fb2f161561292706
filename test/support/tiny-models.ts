// Small decoders with random weights, one for each way in which families differ, as folders in memory.

import type { Tensor } from "../../src/base/tensor/tensor.ts";
import { writeSafetensors } from "../../src/files/safetensors/safetensors.ts";
import { readDecoder } from "../../src/models/spec/read-spec.ts";
import type { Decoder } from "../../src/models/spec/tensors.ts";
import { expectedTensors, resolveHead } from "../../src/models/spec/tensors.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";

const SMALL = { hidden_size: 40, intermediate_size: 52, num_hidden_layers: 2, vocab_size: 67 };
const GROUPED = { num_attention_heads: 4, num_key_value_heads: 2, head_dim: 12, max_position_embeddings: 512 };
const EXPERTS = { num_experts: 5, num_experts_per_tok: 2, moe_intermediate_size: 20, norm_topk_prob: true };

/** config.json of tiny models. */
export const TINY = {
  llama: { model_type: "llama", ...SMALL, ...GROUPED, tie_word_embeddings: true },
  gemma2: {
    ...{ model_type: "gemma2", ...SMALL, ...GROUPED, sliding_window: 9, query_pre_attn_scalar: 20 },
    ...{ final_logit_softcapping: 8, attn_logit_softcapping: 5 },
  },
  gpt2: { model_type: "gpt2", n_embd: 36, n_head: 3, n_layer: 2, n_positions: 320, vocab_size: 67 },
  phi: { model_type: "phi", ...SMALL, num_attention_heads: 5, max_position_embeddings: 512, qk_layernorm: true },
  qwen3_moe: { model_type: "qwen3_moe", ...SMALL, ...GROUPED, ...EXPERTS },
  qwen2_moe: {
    ...{
      model_type: "qwen2_moe",
      ...SMALL,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      max_position_embeddings: 512,
    },
    ...{ ...EXPERTS, shared_expert_intermediate_size: 28 },
  },
  gpt_oss: {
    model_type: "gpt_oss",
    ...SMALL,
    ...GROUPED,
    num_local_experts: 4,
    num_experts_per_tok: 2,
    sliding_window: 9,
  },
  deepseek_v3: {
    ...{ model_type: "deepseek_v3", ...SMALL, num_attention_heads: 4, num_key_value_heads: 4, q_lora_rank: 20 },
    ...{ kv_lora_rank: 16, qk_nope_head_dim: 12, qk_rope_head_dim: 8, v_head_dim: 10, n_routed_experts: 8, n_group: 4 },
    ...{ topk_group: 2, num_experts_per_tok: 3, n_shared_experts: 1, moe_intermediate_size: 16, rope_theta: 10_000 },
    ...{ first_k_dense_replace: 1, max_position_embeddings: 512 },
  },
} as const;

export type TinyName = keyof typeof TINY;

const SCAN = { mamba_n_heads: 6, mamba_d_head: 10, mamba_d_state: 7, mamba_n_groups: 2, mamba_expand: 2 };

/** config.json of tiny models with recurrent layers. */
export const HYBRIDS = {
  lfm2: {
    ...{ model_type: "lfm2", ...SMALL, ...GROUPED, block_auto_adjust_ff_dim: false, num_hidden_layers: 3 },
    ...{ layer_types: ["conv", "full_attention", "conv"], conv_bias: true, hidden_size: 42, conv_L_cache: 4 },
  },
  lfm3: {
    ...{ model_type: "lfm3", ...SMALL, ...GROUPED, num_hidden_layers: 3, sliding_window: 150 },
    ...{ layer_types: ["conv", "full_attention", "sliding_attention"], conv_L_cache: 5 },
  },
  jamba: {
    ...{ model_type: "jamba", ...SMALL, ...GROUPED, num_hidden_layers: 3, attn_layer_period: 3, attn_layer_offset: 1 },
    ...{ hidden_size: 42, mamba_expand: 1, mamba_d_state: 5, mamba_d_conv: 3, mamba_dt_rank: 3, num_experts: 4 },
    ...{ expert_layer_period: 2, expert_layer_offset: 0, mamba_proj_bias: true },
  },
  recurrent_gemma: {
    ...{ model_type: "recurrent_gemma", ...SMALL, ...GROUPED, num_hidden_layers: 3, lru_width: 36, conv1d_width: 3 },
    ...{ block_types: ["recurrent", "attention"], attention_window_size: 150 },
  },
  mamba2: {
    ...{ model_type: "mamba2", hidden_size: 30, num_heads: 6, head_dim: 10, state_size: 9, n_groups: 3, expand: 2 },
    ...{ num_hidden_layers: 2, vocab_size: 67, use_bias: true, time_step_limit: [0.3, 0.9] },
  },
  falcon_h1: {
    ...{ model_type: "falcon_h1", ...SMALL, ...GROUPED, ...SCAN, mamba_rms_norm: true, mamba_norm_before_gate: true },
    ...{ key_multiplier: 0.7, ssm_multipliers: [0.9, 1.1, 0.8, 1.2, 0.7], mlp_multipliers: [0.9, 1.2] },
  },
  nemotron_h: {
    ...{ model_type: "nemotron_h", ...SMALL, ...GROUPED, hybrid_override_pattern: "M-M*-", num_hidden_layers: 5 },
    ...{ mamba_num_heads: 4, mamba_head_dim: 17, ssm_state_size: 16, n_groups: 2, chunk_size: 8 },
  },
  qwen3_5_text: {
    ...{ model_type: "qwen3_5_text", ...SMALL, ...GROUPED, num_hidden_layers: 3, linear_conv_kernel_dim: 3 },
    ...{ layer_types: ["linear_attention", "full_attention", "linear_attention"], linear_key_head_dim: 9 },
    ...{ linear_value_head_dim: 21, linear_num_key_heads: 2, linear_num_value_heads: 6, head_dim: 16 },
  },
  olmo_hybrid: {
    ...{ model_type: "olmo_hybrid", ...SMALL, ...GROUPED, num_hidden_layers: 2, linear_conv_kernel_dim: 2 },
    ...{ layer_types: ["linear_attention", "full_attention"], linear_key_head_dim: 8 },
    ...{ linear_value_head_dim: 12, linear_num_key_heads: 3, linear_num_value_heads: 3 },
  },
  kimi_linear: {
    ...{ model_type: "kimi_linear", ...SMALL, ...EXPERTS, num_hidden_layers: 3, num_attention_heads: 4 },
    ...{ kv_lora_rank: 16, qk_nope_head_dim: 12, qk_rope_head_dim: 6, v_head_dim: 10, num_expert_group: 1 },
    linear_attn_config: {
      ...{ num_heads: 3, head_dim: 10, short_conv_kernel_size: 3, kda_layers: [1, 3], full_attn_layers: [2] },
    },
  },
  qwen3_next: {
    ...{ model_type: "qwen3_next", ...SMALL, ...GROUPED, ...EXPERTS, num_hidden_layers: 2, linear_key_head_dim: 8 },
    ...{ layer_types: ["linear_attention", "full_attention"], shared_expert_intermediate_size: 12 },
    ...{ linear_value_head_dim: 5, linear_num_key_heads: 2, linear_num_value_heads: 4, head_dim: 8 },
  },
  minimax: {
    ...{ model_type: "minimax", ...SMALL, ...GROUPED, num_hidden_layers: 3, num_local_experts: 4 },
    ...{ layer_types: ["linear_attention", "full_attention", "linear_attention"], head_dim: 10 },
    ...{ linear_attn_alpha_factor: 1.5, linear_attn_beta_factor: 0.9, mlp_alpha_factor: 1.3, mlp_beta_factor: 0.7 },
  },
  granitemoehybrid: {
    ...{
      model_type: "granitemoehybrid",
      ...SMALL,
      ...GROUPED,
      ...SCAN,
      shared_intermediate_size: 36,
      num_local_experts: 0,
    },
    ...{ layer_types: ["mamba", "attention"], residual_multiplier: 0.6 },
  },
} as const;

const GEMMA_ROPE = {
  full_attention: { rope_type: "proportional", partial_rotary_factor: 0.5, rope_theta: 100_000 },
  sliding_attention: { rope_type: "default", rope_theta: 10_000 },
};
const KINDS = ["sliding_attention", "full_attention"] as const;

/** Those of families that compute what the models above do not. */
export const TINY_FEATURES = {
  diffllama: { model_type: "diffllama", ...SMALL, ...GROUPED, num_attention_heads: 8, num_key_value_heads: 4 },
  afmoe: {
    ...{ model_type: "afmoe", ...SMALL, ...GROUPED, sliding_window: 9, global_attn_every_n_layers: 2 },
    ...{ num_experts: 5, num_experts_per_tok: 2, moe_intermediate_size: 20, num_shared_experts: 1, mup_enabled: true },
  },
  apertus: { model_type: "apertus", ...SMALL, ...GROUPED, rope_scaling: null },
  bitnet: { model_type: "bitnet", ...SMALL, ...GROUPED },
  bitnet_online: {
    ...{ model_type: "bitnet", ...SMALL, ...GROUPED, hidden_size: 64 },
    quantization_config: { quant_method: "bitnet", linear_class: "autobitlinear", quantization_mode: "online" },
  },
  gemma4_unified_text: {
    ...{ model_type: "gemma4_unified_text", ...SMALL, ...GROUPED, sliding_window: 9, global_head_dim: 16 },
    ...{ layer_types: ["sliding_attention", "full_attention"], attention_k_eq_v: true, num_global_key_value_heads: 1 },
    ...{ rope_parameters: GEMMA_ROPE, final_logit_softcapping: 6 },
  },
  gemma4_text: {
    ...{ model_type: "gemma4_text", ...SMALL, ...GROUPED, sliding_window: 9, global_head_dim: 16 },
    ...{ num_hidden_layers: 5, layer_types: [...KINDS, KINDS[0], ...KINDS], num_kv_shared_layers: 2 },
    // Neither a multiple of a panel nor a row for each token.
    ...{ hidden_size_per_layer_input: 10, vocab_size_per_layer_input: 60, use_double_wide_mlp: true },
    ...{ rope_parameters: GEMMA_ROPE, final_logit_softcapping: 6 },
  },
  gemma3n_text: {
    ...{ model_type: "gemma3n_text", ...SMALL, ...GROUPED, sliding_window: 9, intermediate_size: [52, 44, 52, 44, 30] },
    ...{ num_hidden_layers: 5, layer_types: [...KINDS, KINDS[0], ...KINDS], num_kv_shared_layers: 2 },
    ...{ hidden_size_per_layer_input: 10, vocab_size_per_layer_input: 60, laurel_rank: 6, altup_num_inputs: 3 },
    ...{ altup_active_idx: 1, activation_sparsity_pattern: [0.9, 0.3, 0, 0, 0], rope_theta: 100_000 },
  },
  gemma4_moe: {
    ...{ model_type: "gemma4_text", ...SMALL, ...GROUPED, sliding_window: 9, global_head_dim: 16 },
    ...{ layer_types: KINDS, attention_k_eq_v: true, num_global_key_value_heads: 1, hidden_size_per_layer_input: 0 },
    ...{ enable_moe_block: true, num_experts: 5, top_k_experts: 2, moe_intermediate_size: 20 },
    ...{ rope_parameters: GEMMA_ROPE, final_logit_softcapping: null },
  },
  gpt_bigcode: { model_type: "gpt_bigcode", n_embd: 36, n_head: 3, n_layer: 2, n_positions: 320, vocab_size: 67 },
  hunyuan_v1_moe: {
    ...{ model_type: "hunyuan_v1_moe", ...SMALL, ...GROUPED, num_experts: 4, moe_topk: [2, 1] },
    rope_scaling: { type: "dynamic", alpha: 100 },
  },
  llama4_text: {
    ...{ model_type: "llama4_text", ...SMALL, ...GROUPED, num_local_experts: 4, intermediate_size_mlp: 44 },
    ...{ num_experts_per_tok: 2, interleave_moe_layer_step: 2, attention_chunk_size: 9, no_rope_layers: [1, 0] },
    ...{ floor_scale: 16, attn_scale: 0.3 },
  },
  llama4_chunks: {
    ...{ model_type: "llama4_text", ...SMALL, ...GROUPED, moe_layers: [], intermediate_size_mlp: 44 },
    ...{ attention_chunk_size: 128, no_rope_layers: [1, 1] },
  },
  ministral3: {
    ...{ model_type: "ministral3", ...SMALL, ...GROUPED, vocab_size: 67 },
    rope_parameters: {
      ...{ rope_type: "yarn", factor: 4, original_max_position_embeddings: 32, rope_theta: 10_000 },
      llama_4_scaling_beta: 0.2,
    },
  },
  mistral4: {
    ...{ model_type: "mistral4", ...SMALL, num_attention_heads: 4, num_key_value_heads: 4, q_lora_rank: 20 },
    ...{ kv_lora_rank: 16, qk_nope_head_dim: 12, qk_rope_head_dim: 8, v_head_dim: 10, n_routed_experts: 4 },
    ...{ num_experts_per_tok: 2, n_shared_experts: 1, moe_intermediate_size: 16, max_position_embeddings: 512 },
    rope_parameters: {
      ...{ rope_type: "default", original_max_position_embeddings: 32, rope_theta: 10_000 },
      llama_4_scaling_beta: 0.2,
    },
  },
  nanochat: { model_type: "nanochat", ...SMALL, ...GROUPED },
  olmo: { model_type: "olmo", ...SMALL, ...GROUPED, clip_qkv: 0.4 },
  phimoe: { model_type: "phimoe", ...SMALL, ...GROUPED, num_local_experts: 4, num_experts_per_tok: 2 },
} as const;

export type TinyFeature = keyof typeof TINY_FEATURES;

/** The tensors of a model, named as in its file: random, norms near 1. `read` reads its config.json. */
export function tinyTensors(
  config: object,
  seed = 1,
  read: (where: string, config: object) => Decoder = readDecoder,
): Map<string, Tensor> {
  const random = createRandom(seed);
  const decoder = resolveHead(read("tinyTensors", config));
  const { required, optional } = expectedTensors(decoder, decoder.names.roots[0] as string);
  const tensors = new Map<string, Tensor>();
  const add = (name: string, shape: readonly number[]) => {
    const data = random.floats(shape.reduce((product, side) => product * side, 1));
    const scale = shape.length > 1 ? 1 / Math.sqrt(shape.at(-1) as number) : 0.2;
    const shift = shape.length === 1 && name.endsWith("weight") ? 1 : 0;
    tensors.set(name, { data: data.map((x) => shift + scale * x), shape });
  };
  for (const [name, shape] of required) add(name, shape);
  // Biases of norms and MLPs, where a family can have them; the head stays shared.
  for (const [name, shape] of optional) if (!/^lm_head|act_fn/.test(name)) add(name, shape);
  return tensors;
}

/** A folder of a tiny model, as `loadModel` takes it. */
export function tinyFolder(
  config: object,
  tensors: ReadonlyMap<string, Tensor> = tinyTensors(config),
): (name: string) => Uint8Array | undefined {
  const files = new Map([
    ["config.json", new TextEncoder().encode(JSON.stringify(config))],
    ["model.safetensors", writeSafetensors(tensors)],
  ]);
  return (name) => files.get(name);
}
