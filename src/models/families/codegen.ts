// CodeGen: GPT-J with a joint projection, whose rows are in four blocks.

import type { AttentionRules } from "./attention-rules.ts";
import { type Biases, type Family, LAYER_NORM_EPSILON } from "./family.ts";
import { GPT2_FIELDS, GPT2_NAMES, gpt2MlpDim } from "./gpt2.ts";

const attention: AttentionRules = {
  types: "codegen",
  names: GPT2_FIELDS,
  rope: { pairing: "interleaved", dimField: "rotary_dim" },
};

export const biases: Biases = [["codegen", () => ["mlp", "norm", "head"]]];

export const decoders = (): Family[] => [
  {
    attention,
    names: {
      ...GPT2_NAMES,
      projections: ["qkv_proj", "out_proj"],
      norms: { attentionPre: "ln_1" },
      mlp: { up: "fc_in", down: "fc_out" },
    },
    attentionNames: { query_key_value: "qkv_proj", dense: "out_proj" },
    fusedBlocks: 4,
    norm: LAYER_NORM_EPSILON,
    activation: { fields: ["activation_function"], word: "gelu_new" },
    plain: true,
    mlpDim: gpt2MlpDim,
    parallel: () => true,
    lengthField: "n_positions",
    ignored: ["n_ctx", "rotary", "scale_attn_weights", "task_specific_params", "gradient_checkpointing"],
  },
];
