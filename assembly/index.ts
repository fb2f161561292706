// The exports table. scripts/abi.mjs reads it while asc compiles and writes src/abi.ts.

export { rms_norm_f32 } from "./norm";

/** 1 in the relaxed build. */
export const RELAXED: i32 = ASC_FEATURE_RELAXED_SIMD ? 1 : 0;

/** The first address that no static table uses. */
export const HEAP_BASE: usize = __heap_base;
