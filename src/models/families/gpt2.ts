// GPT-2: positions by a table, layer norms, biases, matrices [inputs, outputs]. GPT-J: some components of a head rotate in
// neighbouring pairs, and one norm is before both branches.

import type { AttentionRules, FieldNames, HfAttentionConfig, Shape } from "./attention-rules.ts";
import type { Fields } from "./facts.ts";
import { ALL_BIASES, type Biases, type Family, LAYER_NORM_EPSILON, type Names, OUT_PROJ } from "./family.ts";

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

export const gpt2MlpDim = (file: Fields, dModel: number): number => file.count("n_inner", 4 * dModel);

export const biases: Biases = [
  ["gpt2", ALL_BIASES],
  ["gptj", () => ["mlp", "norm", "head"]],
];

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    names: GPT2_NAMES,
    layout: "in-out",
    norm: LAYER_NORM_EPSILON,
    activation: { fields: ["activation_function"], word: "gelu_new" },
    plain: true,
    mlpDim: gpt2MlpDim,
    embed: (facts) => ({ positions: { offset: 0, rows: facts.count("n_positions", 1024) } }),
    lengthField: "n_positions",
    tied: true,
    only: { add_cross_attention: [false] },
    ignored: ["n_ctx", "reorder_and_upcast_attn", "task_specific_params"],
  },
  {
    attention: attentionJ,
    names: {
      ...GPT2_NAMES,
      projections: OUT_PROJ,
      norms: { attentionPre: "ln_1" },
      mlp: { up: "fc_in", down: "fc_out" },
    },
    norm: LAYER_NORM_EPSILON,
    activation: { fields: ["activation_function"], word: "gelu_new" },
    plain: true,
    mlpDim: gpt2MlpDim,
    parallel: () => true,
    lengthField: "n_positions",
    ignored: ["n_ctx", "rotary", "scale_attn_weights", "task_specific_params"],
  },
];
