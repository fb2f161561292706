import { MADD_FUSES } from "./simd";

// The exports table. scripts/abi.mjs reads it while asc compiles and writes src/abi.ts.

export { attention_f32 } from "./attention_f32";
export { append_f32, gather_f32 } from "./cache";
export { merge_heads_f32, split_heads_f32 } from "./heads";
export { linear_f16 } from "./linear_f16";
export { linear_f32 } from "./linear_f32";
export { linear_q4 } from "./linear_q4";
export { linear_q8 } from "./linear_q8";
export { rms_norm_f32 } from "./norm";
export { pack_columns_f32, pack_rows_f32 } from "./pack";
export {
  pack_columns_f16,
  pack_rows_f16,
  repack_columns_f16,
  repack_rows_f16,
} from "./pack_f16";
export { pack_q4, repack_q4 } from "./pack_q4";
export { pack_q8, repack_q8 } from "./pack_q8";
export { quantize_rows } from "./quantize";
export { rope_f32 } from "./rope";
export { scores_f32 } from "./scores";
export { masked_softmax_f32 } from "./softmax";
export { weighted_sum_f32 } from "./weighted_sum";

/** 1 in the relaxed build. */
export const RELAXED: i32 = MADD_FUSES ? 1 : 0;

/** The first address that no static table uses. */
export const HEAP_BASE: usize = __heap_base;
