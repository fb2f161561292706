// GPT-NeoX and Pythia: a quarter of a head rotates, layer norms, both branches read the residual unless the file says otherwise.

import type { AttentionRules } from "./attention-rules.ts";
import { type Family, LAYER_NORM } from "./family.ts";

const attention: AttentionRules = {
  types: "gpt_neox",
  gguf: { names: "gptneox" },
  rope: { share: 0.25, shareField: "rotary_pct", thetaField: "rotary_emb_base", oddDim: true },
  fused: "grouped",
};

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    names: {
      roots: ["gpt_neox.", ""],
      embed: "embed_in",
      attention: "attention.",
      projections: ["query_key_value", "dense"],
      mlp: { up: "dense_h_to_4h", down: "dense_4h_to_h" },
      finalNorm: "final_layer_norm",
      head: "embed_out",
    },
    norm: LAYER_NORM,
    activation: { word: "gelu" },
    plain: true,
    parallel: (facts) => facts.flag("use_parallel_residual", true),
    biases: (facts) => (facts.flag("attention_bias", true) ? ["qkv", "o", "mlp", "norm"] : ["mlp", "norm"]),
  },
];
