// Small layers of DeepSeek: config.json, and seeded tensors by the names below the layer's prefix.

import type { Tensor } from "../../src/base/tensor/tensor.ts";
import type { Random } from "../../src/tools/diagnostics/random.ts";
import type { DeepseekJson } from "./deepseek-oracle.ts";

const yarn = { type: "yarn", original_max_position_embeddings: 64, beta_fast: 32, beta_slow: 1 } as const;

/** DeepSeek-V2-Lite in small: queries without latents, yarn. No two sizes are equal. */
export const V2: DeepseekJson = {
  ...{ model_type: "deepseek_v2", hidden_size: 24, num_attention_heads: 3, num_hidden_layers: 2, rms_norm_eps: 1e-2 },
  ...{ q_lora_rank: null, kv_lora_rank: 10, qk_nope_head_dim: 7, qk_rope_head_dim: 8, v_head_dim: 5 },
  ...{ rope_theta: 10_000, rope_scaling: { ...yarn, factor: 8, mscale: 0.7, mscale_all_dim: 0.7 } },
};

/** DeepSeek-V3 in small, with biases, and a factor on cos and sin. */
export const V3: DeepseekJson = {
  ...V2,
  ...{ model_type: "deepseek_v3", q_lora_rank: 12, attention_bias: true, rope_interleave: true },
  rope_scaling: { ...yarn, factor: 40, mscale: 1, mscale_all_dim: 0.5 },
};

/** The tensors of a layer, with biases if the file says so. */
export function deepseekTensors(random: Random, json: DeepseekJson): Record<string, Tensor> {
  const { hidden_size: d, num_attention_heads: heads, q_lora_rank: qRank, kv_lora_rank: rank } = json;
  const { qk_nope_head_dim: nope, qk_rope_head_dim: rope, v_head_dim: value } = json;
  const matrix = (rows: number, columns: number) => ({
    data: random.floats(rows * columns).map((w) => (2 * w) / Math.sqrt(columns)),
    shape: [rows, columns],
  });
  const vector = (length: number, around: number) => ({
    data: random.floats(length).map((w) => around + w / 4),
    shape: [length],
  });
  const queries: Record<string, Tensor> =
    qRank === null
      ? { "q_proj.weight": matrix(heads * (nope + rope), d) }
      : {
          "q_a_proj.weight": matrix(qRank, d),
          "q_a_layernorm.weight": vector(qRank, 1),
          "q_b_proj.weight": matrix(heads * (nope + rope), qRank),
        };
  const biases: Record<string, Tensor> = {
    ...(qRank !== null && { "q_a_proj.bias": vector(qRank, 0) }),
    "kv_a_proj_with_mqa.bias": vector(rank + rope, 0),
    "o_proj.bias": vector(d, 0),
  };
  return {
    ...queries,
    "kv_a_proj_with_mqa.weight": matrix(rank + rope, d),
    "kv_a_layernorm.weight": vector(rank, 1),
    "kv_b_proj.weight": matrix(heads * (nope + value), rank),
    "o_proj.weight": matrix(d, heads * value),
    ...(json.attention_bias === true && biases),
  };
}

/** Tensors with a prefix before their names. */
export const under = <T>(prefix: string, tensors: Readonly<Record<string, T>>): Record<string, T> =>
  Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [prefix + name, tensor]));
