import { MADD_FUSES } from "./simd";

// The exports table. scripts/abi.mjs reads it while asc compiles and writes src/abi.ts.

export { attention_f32 } from "./attention_f32";
export { append_f32, gather_f32 } from "./cache";
export { merge_heads_f32, split_heads_f32 } from "./heads";
export { linear_f32 } from "./linear_f32";
export { rms_norm_f32 } from "./norm";
export { pack_columns_f32, pack_rows_f32 } from "./pack";
export { rope_f32 } from "./rope";
export { scores_f32 } from "./scores";
export { masked_softmax_f32 } from "./softmax";
export { weighted_sum_f32 } from "./weighted_sum";

/** 1 in the relaxed build. */
export const RELAXED: i32 = MADD_FUSES ? 1 : 0;

/** The first address that no static table uses. */
export const HEAP_BASE: usize = __heap_base;
