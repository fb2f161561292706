import { VALUE_PANEL_BYTES } from "../cache/page";
import { PANEL_BYTES, PANEL_BYTES_16 } from "../layout";
import { BEFORE, even, kept_bits, odd, store_columns } from "../linear/f16_skinny";
import { madd } from "../math/simd";
import { F32Ptr, U16Ptr } from "../types";
import { element_of, F16_CHUNK_BYTES, has_non_finite, note, start_even, start_odd } from "./f16_lines";
import { is_finite } from "./pv";
import { CHUNK_BYTES, STATE_BYTES, STRIP_BYTES } from "./state";

// Tiles of attention on pages of f16 (f16_tile.ts) for strips of one and two rows: more keys or columns at a time, in panels
// that lie apart, for the reason in few_rows.ts.

/**
 * f16_nx8 (f16_tile.ts) for one row and 32 keys or columns in four panels.
 *
 * 1x32 tile, 13 v128: acc00..acc07 = 8 | line, its even or odd columns = 2 | a0 = 1 | kept, seen = 2
 * A [n] · B four panels [n][8] halves, bStride apart · C four panels, cApart apart
 * n not unrolled · every sum takes n in ascending order
 */
// @ts-ignore: decorator
@inline
function f16_1x32(
  values: bool,
  cPtr0: F32Ptr,
  cApart: usize,
  state: usize,
  aPtr0: F32Ptr,
  bPtr0: U16Ptr,
  bStride: usize,
  n: i32,
  check: i32,
): i32 {
  const kept = kept_bits(false);
  let seen = i32x4.splat(0);
  const cPtr1 = cPtr0 + cApart;
  const cPtr2 = cPtr1 + cApart;
  const cPtr3 = cPtr2 + cApart;
  let acc00 = start_even(values, cPtr0, state);
  let acc01 = start_odd(values, cPtr0, state);
  let acc02 = start_even(values, cPtr1, state);
  let acc03 = start_odd(values, cPtr1, state);
  let acc04 = start_even(values, cPtr2, state);
  let acc05 = start_odd(values, cPtr2, state);
  let acc06 = start_even(values, cPtr3, state);
  let acc07 = start_odd(values, cPtr3, state);
  bPtr0 -= BEFORE;
  let bPtr1 = bPtr0 + bStride;
  let bPtr2 = bPtr1 + bStride;
  let bPtr3 = bPtr2 + bStride;
  const aEnd = aPtr0 + (<usize>n << 2);
  do {
    const a0 = v128.load32_splat(aPtr0);
    let line = v128.load(bPtr0, BEFORE);
    seen = note(seen, line);
    acc00 = madd(a0, even(false, bPtr0, line, kept), acc00);
    acc01 = madd(a0, odd(false, line, kept), acc01);
    line = v128.load(bPtr1, BEFORE);
    seen = note(seen, line);
    acc02 = madd(a0, even(false, bPtr1, line, kept), acc02);
    acc03 = madd(a0, odd(false, line, kept), acc03);
    line = v128.load(bPtr2, BEFORE);
    seen = note(seen, line);
    acc04 = madd(a0, even(false, bPtr2, line, kept), acc04);
    acc05 = madd(a0, odd(false, line, kept), acc05);
    line = v128.load(bPtr3, BEFORE);
    seen = note(seen, line);
    acc06 = madd(a0, even(false, bPtr3, line, kept), acc06);
    acc07 = madd(a0, odd(false, line, kept), acc07);
    aPtr0 += 4;
    bPtr0 += PANEL_BYTES_16;
    bPtr1 += PANEL_BYTES_16;
    bPtr2 += PANEL_BYTES_16;
    bPtr3 += PANEL_BYTES_16;
  } while (aPtr0 < aEnd);
  if (has_non_finite(seen)) return 1;
  if (values && check != 0) {
    const low = f32x4.add(f32x4.add(acc00, acc01), f32x4.add(acc02, acc03));
    const high = f32x4.add(f32x4.add(acc04, acc05), f32x4.add(acc06, acc07));
    if (!is_finite(f32x4.add(low, high))) return 1;
  }
  store_columns(cPtr0, acc00, acc01);
  store_columns(cPtr1, acc02, acc03);
  store_columns(cPtr2, acc04, acc05);
  store_columns(cPtr3, acc06, acc07);
  return 0;
}

/**
 * The same for two rows and 16 keys or columns in two panels.
 *
 * 2x16 tile, 14 v128: acc00..acc13 = 8 | line, b0 = 2 | a0 a1 = 2 | kept, seen = 2
 * A two rows as in f16_nx8 · B two panels [n][8] halves, bStride apart · C rows cStride, panels cApart apart
 * n not unrolled · every sum takes n in ascending order
 */
// @ts-ignore: decorator
@inline
function f16_2x16(
  values: bool,
  cPtr0: F32Ptr,
  cStride: usize,
  cApart: usize,
  state: usize,
  aPtr0: F32Ptr,
  bPtr0: U16Ptr,
  bStride: usize,
  n: i32,
  check: i32,
): i32 {
  const kept = kept_bits(false);
  let seen = i32x4.splat(0);
  const cPtr1 = cPtr0 + cStride;
  let acc00 = start_even(values, cPtr0, state);
  let acc01 = start_odd(values, cPtr0, state);
  let acc02 = start_even(values, cPtr0 + cApart, state);
  let acc03 = start_odd(values, cPtr0 + cApart, state);
  let acc10 = start_even(values, cPtr1, state + STATE_BYTES);
  let acc11 = start_odd(values, cPtr1, state + STATE_BYTES);
  let acc12 = start_even(values, cPtr1 + cApart, state + STATE_BYTES);
  let acc13 = start_odd(values, cPtr1 + cApart, state + STATE_BYTES);
  bPtr0 -= BEFORE;
  let bPtr1 = bPtr0 + bStride;
  const bEnd = bPtr0 + <usize>n * PANEL_BYTES_16;
  do {
    const chunkEnd = values ? bEnd : min<usize>(bPtr0 + F16_CHUNK_BYTES, bEnd);
    do {
      const a0 = element_of(values, 0, aPtr0);
      const a1 = element_of(values, 1, aPtr0);
      let line = v128.load(bPtr0, BEFORE);
      seen = note(seen, line);
      let b0 = even(false, bPtr0, line, kept);
      acc00 = madd(a0, b0, acc00);
      acc10 = madd(a1, b0, acc10);
      b0 = odd(false, line, kept);
      acc01 = madd(a0, b0, acc01);
      acc11 = madd(a1, b0, acc11);
      line = v128.load(bPtr1, BEFORE);
      seen = note(seen, line);
      b0 = even(false, bPtr1, line, kept);
      acc02 = madd(a0, b0, acc02);
      acc12 = madd(a1, b0, acc12);
      b0 = odd(false, line, kept);
      acc03 = madd(a0, b0, acc03);
      acc13 = madd(a1, b0, acc13);
      aPtr0 += 4;
      bPtr0 += PANEL_BYTES_16;
      bPtr1 += PANEL_BYTES_16;
    } while (bPtr0 < chunkEnd);
    aPtr0 += CHUNK_BYTES;
  } while (bPtr0 < bEnd);
  if (has_non_finite(seen)) return 1;
  if (values && check != 0) {
    const row0 = f32x4.add(f32x4.add(acc00, acc01), f32x4.add(acc02, acc03));
    const row1 = f32x4.add(f32x4.add(acc10, acc11), f32x4.add(acc12, acc13));
    if (!is_finite(f32x4.add(row0, row1))) return 1;
  }
  store_columns(cPtr0, acc00, acc01);
  store_columns(cPtr0 + cApart, acc02, acc03);
  store_columns(cPtr1, acc10, acc11);
  store_columns(cPtr1 + cApart, acc12, acc13);
  return 0;
}

export function qk_f16_2x16(s: F32Ptr, a: F32Ptr, k: U16Ptr, headDim: i32, count: i32): i32 {
  const panelBytes = <usize>headDim * PANEL_BYTES_16;
  const apart = <usize>count * PANEL_BYTES;
  for (let i = 0; i < count; i++) {
    if (f16_2x16(false, s, STRIP_BYTES, apart, 0, a, k, panelBytes * count, headDim, 0)) return 1;
    s += PANEL_BYTES;
    k += panelBytes;
  }
  return 0;
}

export function qk_f16_1x32(s: F32Ptr, a: F32Ptr, k: U16Ptr, headDim: i32, count: i32): i32 {
  const panelBytes = <usize>headDim * PANEL_BYTES_16;
  const apart = <usize>count * PANEL_BYTES;
  for (let i = 0; i < count; i++) {
    if (f16_1x32(false, s, apart, 0, a, k, panelBytes * count, headDim, 0)) return 1;
    s += PANEL_BYTES;
    k += panelBytes;
  }
  return 0;
}

export function pv_f16_2x16(
  o: F32Ptr,
  row: usize,
  state: usize,
  p: F32Ptr,
  v: U16Ptr,
  n: i32,
  check: i32,
  step: usize,
): i32 {
  return f16_2x16(true, o, row, step * PANEL_BYTES, state, p, v, (VALUE_PANEL_BYTES >> 1) * step, n, check);
}

export function pv_f16_1x32(o: F32Ptr, state: usize, p: F32Ptr, v: U16Ptr, n: i32, check: i32, step: usize): i32 {
  return f16_1x32(true, o, step * PANEL_BYTES, state, p, v, (VALUE_PANEL_BYTES >> 1) * step, n, check);
}
