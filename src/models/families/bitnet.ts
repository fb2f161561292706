// BitNet b1.58 2B4T: norms before the last projections of attention and MLP, whose gate is the square of ReLU.

import type { AttentionRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = {
  types: "bitnet",
  gguf: {},
  defaults: { numKvHeads: 5 },
  rope: { theta: 500_000 },
};

export const decoders = (): Family[] => [
  {
    attention,
    gguf: { activation: () => ({ kind: "swish", alpha: 1 }) },
    names: {
      norms: {
        attentionPre: "input_layernorm",
        attentionSub: "self_attn.attn_sub_norm",
        mlpPre: "post_attention_layernorm",
        mlpSub: "mlp.ffn_sub_norm",
      },
    },
    norm: { eps: 1e-5 },
    activation: { word: "relu2" },
  },
];
