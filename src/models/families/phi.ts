// Phi-1, 1.5 and 2: half of a head rotates, one layer norm before both branches, biases. Phi-3: Llama with fused matrices.

import type { AttentionRules } from "./attention-rules.ts";
import { type Biases, type Family, FUSED_MLP, HEAD_NORMS, LAYER_NORM, ONE_NORM } from "./family.ts";

const attention: AttentionRules = {
  types: "phi",
  gguf: { names: "phi2" },
  rope: { share: 0.5 },
  layerNormFlag: "qk_layernorm",
};
const attention3: AttentionRules = { types: "phi3", gguf: {}, window: {} };

export const layers: readonly AttentionRules[] = [attention, attention3];

export const biases: Biases = [["phi", () => ["qkv", "o", "mlp", "norm", "headNorm", "head"]]];

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    names: {
      projections: ["q_proj", "k_proj", "v_proj", "dense"],
      norms: ONE_NORM,
      mlp: { up: "fc1", down: "fc2" },
      finalNorm: "final_layernorm",
    },
    norm: LAYER_NORM,
    activation: { word: "gelu_new" },
    plain: true,
    headNorm: HEAD_NORMS,
    parallel: () => true,
  },
  { attention: attention3, gguf: {}, names: { mlp: FUSED_MLP, projections: ["qkv_proj", "o_proj"] } },
];
