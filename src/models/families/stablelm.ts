// StableLM: a quarter of a head rotates, layer norms, and in some sizes one norm before both branches.

import type { AttentionRules } from "./attention-rules.ts";
import { type Family, HEAD_NORMS, LAYER_NORM, ONE_NORM } from "./family.ts";

const attention: AttentionRules = {
  types: "stablelm",
  gguf: {},
  rope: { share: 0.25 },
  layerNormFlag: "qk_layernorm",
};

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [
  {
    attention,
    gguf: { oneNorm: true },
    namesOf: (facts) => (facts.flag("use_parallel_residual", false) ? { norms: ONE_NORM } : {}),
    norm: LAYER_NORM,
    headNorm: { ...HEAD_NORMS, each: "apart" },
    parallel: (facts) => facts.flag("use_parallel_residual", false),
    biases: (facts) => (facts.flag("use_qkv_bias", false) ? ["qkv", "norm"] : ["norm"]),
  },
];
