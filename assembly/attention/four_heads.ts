import { PANEL_BYTES } from "../layout";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";
import { STATE_ALPHA, STATE_BYTES, STRIP_BYTES } from "./state";

// The tile of attention_f32 for one token whose heads all have keys of their own: one row of each of four kv heads, which are
// neighbours in a page. Keys, and then values, of all four are read side by side from end to end, in four long streams: each
// stream waits for memory where it begins, so that these are faster than four of a quarter of one head.

/**
 * C_i[8] = alpha_i · C_i + A_i[n] · B_i[n, 8] for one row of each of four kv heads i. Returns 0.
 *
 * 4x8 tile, 10 v128: acc00..acc31 = 8 | a row of B_i = 1 | a<row> = 1
 * A [4][n] row stride STRIP_BYTES · B_i [n][8], bApart apart · C [4][8] row stride cStride
 * n not unrolled · every sum takes n in ascending order
 */
export function four_heads_4x8(
  cPtr0: F32Ptr,
  cStride: usize,
  state: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  bApart: usize,
  n: i32,
): i32 {
  const aEnd = aPtr0 + (<usize>n << 2);
  const cPtr1 = cPtr0 + cStride;
  const cPtr2 = cPtr1 + cStride;
  const cPtr3 = cPtr2 + cStride;
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let acc00 = f32x4.mul(v128.load(cPtr0), alpha0);
  let acc01 = f32x4.mul(v128.load(cPtr0, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE_BYTES + STATE_ALPHA);
  let acc10 = f32x4.mul(v128.load(cPtr1), alpha1);
  let acc11 = f32x4.mul(v128.load(cPtr1, 16), alpha1);
  const alpha2 = v128.load32_splat(state, STATE_BYTES * 2 + STATE_ALPHA);
  let acc20 = f32x4.mul(v128.load(cPtr2), alpha2);
  let acc21 = f32x4.mul(v128.load(cPtr2, 16), alpha2);
  const alpha3 = v128.load32_splat(state, STATE_BYTES * 3 + STATE_ALPHA);
  let acc30 = f32x4.mul(v128.load(cPtr3), alpha3);
  let acc31 = f32x4.mul(v128.load(cPtr3, 16), alpha3);
  let bPtr1 = bPtr0 + bApart;
  let bPtr2 = bPtr1 + bApart;
  let bPtr3 = bPtr2 + bApart;
  do {
    const a0 = v128.load32_splat(aPtr0);
    acc00 = madd(a0, v128.load(bPtr0), acc00);
    acc01 = madd(a0, v128.load(bPtr0, 16), acc01);
    const a1 = v128.load32_splat(aPtr0, STRIP_BYTES);
    acc10 = madd(a1, v128.load(bPtr1), acc10);
    acc11 = madd(a1, v128.load(bPtr1, 16), acc11);
    const a2 = v128.load32_splat(aPtr0, STRIP_BYTES * 2);
    acc20 = madd(a2, v128.load(bPtr2), acc20);
    acc21 = madd(a2, v128.load(bPtr2, 16), acc21);
    const a3 = v128.load32_splat(aPtr0, STRIP_BYTES * 3);
    acc30 = madd(a3, v128.load(bPtr3), acc30);
    acc31 = madd(a3, v128.load(bPtr3, 16), acc31);
    aPtr0 += 4;
    bPtr0 += PANEL_BYTES;
    bPtr1 += PANEL_BYTES;
    bPtr2 += PANEL_BYTES;
    bPtr3 += PANEL_BYTES;
  } while (aPtr0 < aEnd);
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  v128.store(cPtr1, acc10);
  v128.store(cPtr1, acc11, 16);
  v128.store(cPtr2, acc20);
  v128.store(cPtr2, acc21, 16);
  v128.store(cPtr3, acc30);
  v128.store(cPtr3, acc31, 16);
  return 0;
}
