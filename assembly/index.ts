// The kernels of floats, which every instance has. scripts/abi.mjs reads this table and those of weights.ts and caches.ts
// while asc compiles and writes src/wasm/abi.ts.

export { attention_f32 } from "./attention/attention";
export { append_f32, gather_f32 } from "./cache/append_gather";
export { linear_f32 } from "./linear/f32";
export { pack_columns_f32, pack_rows_f32 } from "./linear/pack_f32";
export { HEAP_BASE, RELAXED, STAMP } from "./module";
export { merge_heads_f32, split_heads_f32 } from "./pointwise/heads";
export { rms_norm_f32 } from "./pointwise/rms_norm";
export { rope_f32 } from "./pointwise/rope";
export { scores_f32 } from "./unfused/scores";
export { masked_softmax_f32 } from "./unfused/softmax";
