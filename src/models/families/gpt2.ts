// GPT-2: positions by a table, layer norms, biases, matrices [inputs, outputs]. GPT-BigCode (StarCoder 1): the same with one head of
// keys and values, and matrices [outputs, inputs]. GPT-J: some components of a head rotate in neighbouring pairs, and one norm is
// before both branches. CodeGen: GPT-J with a joint projection, whose rows are in four blocks.

import type { AttentionRules, FieldNames, HfAttentionConfig, Shape } from "./attention-rules.ts";
import type { Fields } from "./facts.ts";
import { ALL_BIASES, type Family, LAYER_NORM_EPSILON, type Names, OUT_PROJ } from "./family.ts";

export const GPT2_FIELDS: Partial<FieldNames> = { dModel: ["n_embd"], numHeads: ["n_head"], layers: ["n_layer"] };

const attention: AttentionRules = {
  types: "gpt2",
  gguf: {},
  names: GPT2_FIELDS,
  rope: false,
  more: scaleOf,
};
const attentionJ: AttentionRules = {
  types: "gptj",
  names: GPT2_FIELDS,
  rope: { pairing: "interleaved", dimField: "rotary_dim" },
};
/** No reader of single layers has the tensors of these two. */
const attentionBigCode: AttentionRules = {
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
const attentionCodeGen: AttentionRules = {
  types: "codegen",
  names: GPT2_FIELDS,
  rope: { pairing: "interleaved", dimField: "rotary_dim" },
};

export const layers: readonly AttentionRules[] = [attention, attentionJ];

function scaleOf(file: Fields, { headDim }: Shape, layer: number): Partial<HfAttentionConfig> {
  const byLayer = file.flag("scale_attn_by_inverse_layer_idx", false);
  const byWidth = file.flag("scale_attn_weights", true);
  const scale = (byWidth ? 1 / Math.sqrt(headDim) : 1) / (byLayer ? layer + 1 : 1);
  return byWidth && !byLayer ? {} : { scale };
}

export const GPT2_NAMES: Partial<Names> = {
  roots: ["transformer.", ""],
  embed: "wte",
  positions: "wpe",
  layers: "h",
  attention: "attn.",
  projections: ["c_attn", "c_proj"],
  norms: { attentionPre: "ln_1", mlpPre: "ln_2" },
  mlp: { up: "c_fc", down: "c_proj" },
  finalNorm: "ln_f",
};

const mlpDim = (file: Fields, dModel: number): number => file.count("n_inner", 4 * dModel);

/** What all have in common. */
const ALL: Partial<Family> = { norm: LAYER_NORM_EPSILON, plain: true, mlpDim, lengthField: "n_positions" };
const GELU_NEW: Family["activation"] = { fields: ["activation_function"], word: "gelu_new" };

/** Positions by a table. */
const placed = (): Partial<Family> => ({
  ...ALL,
  gguf: {},
  names: GPT2_NAMES,
  embed: (facts) => ({ positions: { offset: 0, rows: facts.count("n_positions", 1024) } }),
  tied: true,
  only: { add_cross_attention: [false] },
});

/** One norm before both branches. */
const parallel = (projections: readonly string[]): Partial<Family> => ({
  ...ALL,
  names: { ...GPT2_NAMES, projections, norms: { attentionPre: "ln_1" }, mlp: { up: "fc_in", down: "fc_out" } },
  activation: GELU_NEW,
  parallel: () => true,
});

export const decoders = (): Family[] => [
  {
    ...placed(),
    attention,
    layout: "in-out",
    activation: GELU_NEW,
    ignored: ["n_ctx", "reorder_and_upcast_attn", "task_specific_params"],
    biases: ALL_BIASES,
  },
  {
    ...placed(),
    attention: attentionBigCode,
    attentionNames: { query_key_value: "c_attn", dense: "c_proj" },
    activation: { fields: ["activation_function"], word: "gelu_pytorch_tanh" },
    ignored: [
      ...["attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner", "validate_runner_input"],
      ...["max_sequence_length", "max_batch_size", "pre_allocate_kv_cache", "n_ctx", "multi_query"],
    ],
    biases: ALL_BIASES,
  },
  {
    ...parallel(OUT_PROJ),
    attention: attentionJ,
    ignored: ["n_ctx", "rotary", "scale_attn_weights", "task_specific_params"],
    biases: () => ["mlp", "norm", "head"],
  },
  {
    ...parallel(["qkv_proj", "out_proj"]),
    attention: attentionCodeGen,
    attentionNames: { query_key_value: "qkv_proj", dense: "out_proj" },
    fusedBlocks: 4,
    ignored: ["n_ctx", "rotary", "scale_attn_weights", "task_specific_params", "gradient_checkpointing"],
    biases: () => ["mlp", "norm", "head"],
  },
];
