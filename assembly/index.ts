import { MADD_FUSES } from "./simd";

// The kernels of floats, which every instance has. scripts/abi.mjs reads this table and those of weights.ts and caches.ts
// while asc compiles and writes src/abi.ts.

export { attention_f32 } from "./attention";
export { append_f32, gather_f32 } from "./cache";
export { merge_heads_f32, split_heads_f32 } from "./heads";
export { linear_f32 } from "./linear_f32";
export { HEAP_BASE } from "./module";
export { rms_norm_f32 } from "./norm";
export { pack_columns_f32, pack_rows_f32 } from "./pack";
export { rope_f32 } from "./rope";
export { scores_f32 } from "./scores";
export { masked_softmax_f32 } from "./softmax";

/** 1 in the relaxed build. */
export { MADD_FUSES as RELAXED };
