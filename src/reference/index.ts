/**
 * A readable twin of every kernel: the same name and arguments, with arrays instead of addresses, plain loops, and sums in
 * double precision. Tests compare the kernels with these functions, and a debugger can step through them. `attendReference` is a
 * whole layer in the same way, on one page.
 * @packageDocumentation
 */

import type { Reference } from "../wasm/abi.ts";
import { activate_f32, add_scaled_f32, cap_logits_f32 } from "./activations.ts";
import { attention_f32, attention_pages } from "./attention.ts";
import { attention_statistics } from "./attention_statistics.ts";
import { append_f32, append_pages, gather_f32, gather_pages } from "./cache.ts";
import { gather_rows_f32, route_f32, scatter_rows_f32 } from "./experts.ts";
import { widen_f16 } from "./half.ts";
import { quantize_rows } from "./integers.ts";
import { append_latents, attention_latents, gather_latents } from "./latents.ts";
import { linear_f16, linear_f32, linear_q4, linear_q8, repeat_dots, subtract_mins } from "./linear.ts";
import { layer_norm_f32, rms_norm_f32 } from "./norm.ts";
import {
  pack_blocks,
  pack_columns_f16,
  pack_columns_f32,
  pack_mins,
  pack_q4,
  pack_q8,
  pack_rows_f16,
  pack_rows_f32,
  repack_columns_f16,
  repack_q4,
  repack_q8,
  repack_rows_f16,
} from "./pack.ts";
import { rope_f32 } from "./rope.ts";
import { embed_rows, merge_heads_f32, split_heads_f32, top_k_f32 } from "./rows.ts";
import { masked_softmax_f32, scores_f32, scores_pages, softmax_sums_f32, weighted_sum_f32 } from "./softmax.ts";

/** All twins by the names of their kernels. */
export const reference: Reference = {
  activate_f32,
  add_scaled_f32,
  append_f32,
  append_latents,
  append_pages,
  attention_f32,
  attention_latents,
  attention_pages,
  attention_statistics,
  cap_logits_f32,
  embed_rows,
  gather_f32,
  gather_latents,
  gather_pages,
  gather_rows_f32,
  layer_norm_f32,
  linear_f16,
  linear_f32,
  linear_q4,
  linear_q8,
  masked_softmax_f32,
  merge_heads_f32,
  pack_columns_f16,
  pack_columns_f32,
  pack_blocks,
  pack_mins,
  pack_q4,
  pack_q8,
  pack_rows_f16,
  pack_rows_f32,
  quantize_rows,
  repack_columns_f16,
  repack_q4,
  repack_q8,
  repack_rows_f16,
  repeat_dots,
  rms_norm_f32,
  rope_f32,
  route_f32,
  scatter_rows_f32,
  scores_f32,
  scores_pages,
  split_heads_f32,
  subtract_mins,
  softmax_sums_f32,
  top_k_f32,
  weighted_sum_f32,
  widen_f16,
};

export type { CheckedConfig } from "../layers/attention/config.ts";
export { attendReference, type ReferenceOptions, type ReferenceWeights } from "./attend.ts";
export type { Reference };
export {
  activate_f32,
  add_scaled_f32,
  append_f32,
  append_latents,
  append_pages,
  attention_f32,
  attention_latents,
  attention_pages,
  attention_statistics,
  cap_logits_f32,
  embed_rows,
  gather_f32,
  gather_latents,
  gather_pages,
  gather_rows_f32,
  layer_norm_f32,
  linear_f16,
  linear_f32,
  linear_q4,
  linear_q8,
  masked_softmax_f32,
  merge_heads_f32,
  pack_blocks,
  pack_columns_f16,
  pack_columns_f32,
  pack_mins,
  pack_q4,
  pack_q8,
  pack_rows_f16,
  pack_rows_f32,
  quantize_rows,
  repack_columns_f16,
  repack_q4,
  repack_q8,
  repack_rows_f16,
  repeat_dots,
  rms_norm_f32,
  rope_f32,
  route_f32,
  scatter_rows_f32,
  scores_f32,
  scores_pages,
  softmax_sums_f32,
  split_heads_f32,
  subtract_mins,
  top_k_f32,
  weighted_sum_f32,
  widen_f16,
};
