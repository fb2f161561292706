// GPT-J: GPT-2's fields, some components of a head rotate in neighbouring pairs, and one norm before both branches.

import type { AttentionRules } from "./attention-rules.ts";
import { type Biases, type Family, LAYER_NORM_EPSILON, OUT_PROJ, SUMMARY } from "./family.ts";
import { GPT2_FIELDS, GPT2_NAMES, gpt2MlpDim } from "./gpt2.ts";

const attention: AttentionRules = {
  types: "gptj",
  names: GPT2_FIELDS,
  rope: { pairing: "interleaved", dimField: "rotary_dim" },
};

export const layers: readonly AttentionRules[] = [attention];

export const biases: Biases = [["gptj", () => ["mlp", "norm", "head"]]];

export const decoders = (): Family[] => [
  {
    attention,
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
    ignored: ["n_ctx", "rotary", "scale_attn_weights", "task_specific_params", ...SUMMARY],
  },
];
