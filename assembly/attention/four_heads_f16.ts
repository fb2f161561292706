import { PANEL_BYTES, PANEL_BYTES_16 } from "../layout";
import { BEFORE, even, kept_bits, odd, store_columns } from "../linear/f16_skinny";
import { widen_rows } from "../math/half";
import { madd } from "../math/simd";
import { F32Ptr, U16Ptr } from "../types";
import { element_of, has_non_finite, note, start_even, start_odd } from "./f16_lines";
import { unscale } from "./f16_page";
import { pv_panel } from "./pv";
import { STATE_BYTES, STRIP_BYTES } from "./state";

// The order of four_heads.ts on pages of f16, which the tile widens as f16_lines.ts says. A is times 2^112.

/**
 * C_i[8] = alpha_i · C_i + A_i[n] · B_i[n, 8] for one row of each of four kv heads i, whatever the halves of B are. `wide` is
 * room for a panel as floats.
 */
export function four_heads_f16(
  cPtr: F32Ptr,
  cStride: usize,
  state: usize,
  aPtr: F32Ptr,
  bPtr: U16Ptr,
  bApart: usize,
  n: i32,
  wide: F32Ptr,
): void {
  if (!f16_four_heads_4x8(cPtr, cStride, state, aPtr, bPtr, bApart, n)) return;
  for (let i = 0; i < 4; i++) {
    widen_rows(wide, bPtr, n, false);
    unscale(wide, wide + <usize>n * PANEL_BYTES);
    pv_panel(1, cPtr, cStride, state, aPtr, wide, n, 0);
    cPtr += cStride;
    state += STATE_BYTES;
    aPtr += STRIP_BYTES;
    bPtr += bApart;
  }
}

/**
 * The same unless a B is not finite: then returns 1 and leaves C as it was.
 *
 * 4x8 tile, 13 v128: acc00..acc31 = 8 | line, its even or odd columns = 2 | a<row> = 1 | kept, seen = 2
 * A [4][n] row stride STRIP_BYTES · B_i [n][8] halves, bApart apart · C [4][8] row stride cStride
 * n not unrolled · every sum takes n in ascending order
 */
function f16_four_heads_4x8(
  cPtr0: F32Ptr,
  cStride: usize,
  state: usize,
  aPtr0: F32Ptr,
  bPtr0: U16Ptr,
  bApart: usize,
  n: i32,
): i32 {
  const kept = kept_bits(false);
  let seen = i32x4.splat(0);
  const cPtr1 = cPtr0 + cStride;
  const cPtr2 = cPtr1 + cStride;
  const cPtr3 = cPtr2 + cStride;
  let acc00 = start_even(true, cPtr0, state);
  let acc01 = start_odd(true, cPtr0, state);
  let acc10 = start_even(true, cPtr1, state + STATE_BYTES);
  let acc11 = start_odd(true, cPtr1, state + STATE_BYTES);
  let acc20 = start_even(true, cPtr2, state + STATE_BYTES * 2);
  let acc21 = start_odd(true, cPtr2, state + STATE_BYTES * 2);
  let acc30 = start_even(true, cPtr3, state + STATE_BYTES * 3);
  let acc31 = start_odd(true, cPtr3, state + STATE_BYTES * 3);
  bPtr0 -= BEFORE;
  let bPtr1 = bPtr0 + bApart;
  let bPtr2 = bPtr1 + bApart;
  let bPtr3 = bPtr2 + bApart;
  const aEnd = aPtr0 + (<usize>n << 2);
  do {
    const a0 = element_of(true, 0, aPtr0);
    let line = v128.load(bPtr0, BEFORE);
    seen = note(seen, line);
    acc00 = madd(a0, even(false, bPtr0, line, kept), acc00);
    acc01 = madd(a0, odd(false, line, kept), acc01);
    const a1 = element_of(true, 1, aPtr0);
    line = v128.load(bPtr1, BEFORE);
    seen = note(seen, line);
    acc10 = madd(a1, even(false, bPtr1, line, kept), acc10);
    acc11 = madd(a1, odd(false, line, kept), acc11);
    const a2 = element_of(true, 2, aPtr0);
    line = v128.load(bPtr2, BEFORE);
    seen = note(seen, line);
    acc20 = madd(a2, even(false, bPtr2, line, kept), acc20);
    acc21 = madd(a2, odd(false, line, kept), acc21);
    const a3 = element_of(true, 3, aPtr0);
    line = v128.load(bPtr3, BEFORE);
    seen = note(seen, line);
    acc30 = madd(a3, even(false, bPtr3, line, kept), acc30);
    acc31 = madd(a3, odd(false, line, kept), acc31);
    aPtr0 += 4;
    bPtr0 += PANEL_BYTES_16;
    bPtr1 += PANEL_BYTES_16;
    bPtr2 += PANEL_BYTES_16;
    bPtr3 += PANEL_BYTES_16;
  } while (aPtr0 < aEnd);
  if (has_non_finite(seen)) return 1;
  store_columns(cPtr0, acc00, acc01);
  store_columns(cPtr1, acc10, acc11);
  store_columns(cPtr2, acc20, acc21);
  store_columns(cPtr3, acc30, acc31);
  return 0;
}
