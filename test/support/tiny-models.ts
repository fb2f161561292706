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
  for (const [name, shape] of optional) if (!name.startsWith("lm_head")) add(name, shape);
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
