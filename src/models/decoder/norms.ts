// Norms that several families share.

import type { Family } from "./family.ts";

/** Layer norms with the field that most families have for their epsilon. */
export const LAYER_NORM: NonNullable<Family["norm"]> = { kind: "layer", eps: 1e-5, field: "layer_norm_eps" };

/** The same with the field of GPT-2. */
export const LAYER_NORM_EPSILON: NonNullable<Family["norm"]> = { ...LAYER_NORM, field: "layer_norm_epsilon" };

/** Layer norms of the heads of queries and keys. */
export const LAYER_NORMS: NonNullable<Family["headNorm"]> = {
  flag: "qk_layernorm",
  q: "q_layernorm",
  k: "k_layernorm",
};
