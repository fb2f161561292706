// GPT-BigCode (StarCoder 1): GPT-2 with one head of keys and values, and matrices [outputs, inputs].

import type { AttentionRules } from "./attention-rules.ts";
import { ALL_BIASES, type Biases, type Family, LAYER_NORM_EPSILON } from "./family.ts";
import { GPT2_FIELDS, GPT2_NAMES, gpt2MlpDim } from "./gpt2.ts";

const attention: AttentionRules = {
  types: "gpt_bigcode",
  gguf: { names: "starcoder" },
  names: GPT2_FIELDS,
  rope: false,
  more: (file, { numHeads, headDim }) => ({
    ...(file.flag("multi_query", true)
      ? { numKvHeads: 1, fused: "qkv" as const }
      : { numKvHeads: numHeads, fused: "grouped" as const }),
    ...(file.flag("scale_attn_weights", true) ? { scale: 1 / Math.sqrt(headDim) } : { scale: 1 }),
  }),
};

export const biases: Biases = [["gpt_bigcode", ALL_BIASES]];

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    names: GPT2_NAMES,
    attentionNames: { query_key_value: "c_attn", dense: "c_proj" },
    norm: LAYER_NORM_EPSILON,
    activation: { fields: ["activation_function"], word: "gelu_pytorch_tanh" },
    plain: true,
    mlpDim: gpt2MlpDim,
    embed: (facts) => ({ positions: { offset: 0, rows: facts.count("n_positions", 1024) } }),
    lengthField: "n_positions",
    tied: true,
    only: { add_cross_attention: [false] },
    ignored: [
      ...["attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner", "validate_runner_input"],
      ...["max_sequence_length", "max_batch_size", "pre_allocate_kv_cache", "n_ctx", "multi_query"],
    ],
  },
];
