import { PAIR_BYTES } from "../layout";
import { dot_i16 } from "../math/simd";
import { U8Ptr } from "../types";
import { SUM_BYTES } from "./block_layout";

/**
 * sums[8] = minus the sums of the weights of a panel over each `group` of k, at most 128, as 16 bits. Groups lie `gap` bytes apart.
 */
export function store_sums(sums: U8Ptr, w: U8Ptr, k: i32, group: i32, gap: usize): void {
  const minus = i16x8.splat(-1);
  for (; k > 0; k -= group) {
    let sum0 = i32x4.splat(0);
    let sum1 = i32x4.splat(0);
    for (const end = w + (<usize>min(group, k) << 3); w < end; w += PAIR_BYTES) {
      sum0 = dot_i16(minus, v128.load8x8_s(w), sum0);
      sum1 = dot_i16(minus, v128.load8x8_s(w, 8), sum1);
    }
    v128.store(sums, i16x8.narrow_i32x4_s(sum0, sum1));
    sums += SUM_BYTES;
    w += gap;
  }
}
