// Families of 2025 and 2026 as GGUF files, besides hybrids.

import {
  addOne,
  type Config,
  count,
  type Form,
  interleave,
  type Keys,
  number,
  pickRows,
  range,
  type Tensors,
} from "./gguf-forms.ts";
import { bool, f32, list, u32 } from "./gguf-writer.ts";

const SECOND_NORM = { post_attention_layernorm: "post_attention_norm" };
const QKV = /^attn_(q|k|v)\.bias$/;

/** Experts chosen by sigmoids. */
const sigmoidKeys = (config: Config): Keys => ({
  ...{ expert_gating_func: u32(2), expert_weights_norm: bool(config.norm_topk_prob !== false) },
  expert_weights_scale: f32(number(config, "routed_scaling_factor") ?? 1),
  ...{ expert_shared_count: u32(count(config, "n_shared_experts")), expert_group_count: u32(1) },
  ...{ expert_group_used_count: u32(1), leading_dense_block_count: u32(count(config, "first_k_dense_replace")) },
});

const sections = (): Keys => ({ "rope.dimension_sections": list(5, [2, 2, 2, 0]) });

/** Stacked gates and factors of one tensor become two. */
function splitStacked(tensors: Tensors): void {
  for (const [name, tensor] of [...tensors]) {
    const [, at = "", kind] = /^(blk\.\d+\.)mlp\.experts\.(gate_up|down)_proj$/.exec(name) ?? [];
    if (kind === undefined) continue;
    tensors.delete(name);
    const [experts = 0, rows = 0] = tensor.shape;
    const part = (from: number, to: number) => {
      const whole = { data: tensor.data, shape: [experts * rows, ...tensor.shape.slice(2)] };
      const own = pickRows(
        whole,
        range(0, experts).flatMap((expert) => range(expert * rows + from, expert * rows + to)),
      );
      return { data: own.data, shape: [experts, to - from, ...tensor.shape.slice(2)] };
    };
    if (kind === "down") tensors.set(`${at}ffn_down_exps.weight`, tensor);
    else
      for (const [i, which] of ["gate", "up"].entries())
        tensors.set(`${at}ffn_${which}_exps.weight`, part((i * rows) / 2, ((i + 1) * rows) / 2));
  }
}

/** By `model_type`. */
export const NEWER_FORMS: Readonly<Record<string, Form>> = {
  bitnet: { architecture: "bitnet", names: { attn_sub_norm: "attn_sub_norm", ffn_sub_norm: "ffn_sub_norm" } },
  dots1: { architecture: "dots1", keys: sigmoidKeys },
  ernie4_5_moe: {
    architecture: "ernie4_5-moe",
    names: { "moe_statics.e_score_correction_bias": "exp_probs_b.bias" },
    keys: (config) => ({
      ...{ expert_count: u32(count(config, "moe_num_experts")), expert_used_count: u32(count(config, "moe_k")) },
      expert_shared_count: u32(count(config, "moe_num_shared_experts")),
    }),
  },
  exaone4: { architecture: "exaone4", names: SECOND_NORM },
  glm4_moe: { architecture: "glm4moe", biases: QKV, names: SECOND_NORM, keys: sigmoidKeys },
  gpt_bigcode: {
    ...{ architecture: "starcoder", biases: /./, norm: "layer" },
    keys: () => ({ "attention.head_count_kv": u32(1) }),
  },
  hunyuan_v1_dense: {
    architecture: "hunyuan-dense",
    names: { query_layernorm: "attn_q_norm", key_layernorm: "attn_k_norm" },
  },
  minimax_m2: {
    architecture: "minimax-m2",
    names: { "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias" },
    keys: (config) => ({ expert_gating_func: u32(2), "rope.dimension_count": u32(count(config, "rotary_dim")) }),
  },
  ministral3: {
    ...{ architecture: "mistral3", change: interleave },
    keys: (config) => ({
      "attention.temperature_scale": f32(count(config.rope_scaling as Config, "llama_4_scaling_beta")),
    }),
  },
  nemotron: { architecture: "nemotron", norm: "layer", biases: /norm\.bias$/, change: addOne },
  olmo: {
    ...{ architecture: "olmo", norm: "layer", change: interleave },
    keys: (config) => ({
      ...{ "attention.layer_norm_epsilon": f32(1e-5), "attention.clamp_kqv": f32(count(config, "clip_qkv")) },
    }),
  },
  qwen2_vl_text: { architecture: "qwen2vl", biases: QKV, keys: sections },
  qwen3_vl_text: { architecture: "qwen3vl", keys: sections },
  qwen3_vl_moe_text: { architecture: "qwen3vlmoe", keys: sections, change: splitStacked },
  seed_oss: { architecture: "seed_oss", biases: QKV, names: SECOND_NORM },
};
