// The kernels of weights that are not float32: a module of its own, on the memory of that of index.ts.

export { linear_codebook } from "./linear/codebook";
export { linear_f16 } from "./linear/f16";
export {
  pack_columns_f16,
  pack_rows_f16,
  repack_columns_f16,
  repack_rows_f16,
} from "./linear/pack_f16";
export { pack_blocks, pack_mins } from "./linear/pack_blocks";
export { pack_codebook } from "./linear/pack_codebook";
export { pack_q4, repack_q4 } from "./linear/pack_q4";
export { pack_q4_k } from "./linear/pack_q4_k";
export { pack_q8, repack_q8 } from "./linear/pack_q8";
export { linear_q4 } from "./linear/q4";
export { linear_q4_k } from "./linear/q4_k";
export { linear_lookup } from "./linear/lookup";
export { pack_lookup } from "./linear/pack_lookup";
export { linear_q8 } from "./linear/q8";
export { quantize_rows } from "./linear/quantize_rows";
export { repeat_dots } from "./linear/repeat_dots";
export { subtract_mins } from "./linear/subtract_mins";
export { HEAP_BASE, RELAXED, STAMP } from "./module";
