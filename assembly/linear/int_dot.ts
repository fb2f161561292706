import { PANEL_BYTES } from "../layout";
import { F32Ptr, U8Ptr } from "../types";
import { int_dot_i8_nx8, PATH_I8, PATH_I8_EMULATED } from "./int_dot_i8";
import { int_dot_i8_1x32, int_dot_i8_2x16 } from "./int_dot_i8_skinny";
import { int_dot_i16_nx8 } from "./int_dot_i16";

// Exact products of integer rows: what linear_q8 and linear_q4 are made of. Strides are in bytes.
//
// The second factor w is a panel of 8 columns in pairs of k, [k/2][8][2] int8, k a multiple of 4. The first one, x, has 14
// bits, or 7 or 8, in one of two forms. On the path of i16 pairs it is int16 in sequence, and a pair is multiplied in one
// instruction. On the two paths of i8 it is one or two planes of 7-bit digits, the upper one first, and four k are
// multiplied at a time: in one instruction on CPUs that have it, in five on others, or emulated in three. Sums are exact
// either way: up to 2048 k of 14 bits, they fit an i32.

/** i16 pairs: the path that every build has. */
export const PATH_I16: i32 = 0;

/** Bit 0 of a mode: x has 7 or 8 bits instead of 14, and scales of blocks. The two bits above it are the path. */
export const FAST: i32 = 1;

// @ts-ignore: decorator
@inline
export function path_of(mode: i32): i32 {
  return (mode >> 1) & 3;
}

/**
 * C[rows, 8] = init[rows, 8] + Σ scales[8] · (A[rows] · B[8] over a group of k) for 1 to 4 rows of i16 and a panel: the
 * products and their sum are exact; then each group is scaled and added, unfused, in ascending order. A group is `group` k, the last
 * may have fewer. The weights of one group and the next lie `gap` bytes apart, and where that is not 0, the scales of the next
 * lie there. Where aBlocks is not 0, there lie the scales of A by blocks (quantize_rows.ts), rows aStride apart, and scales[8] of a
 * group are multiplied by that of its inputs first. C may be init.
 */
export function int_dot_i16(
  rows: i32,
  c: F32Ptr,
  cStride: usize,
  init: F32Ptr,
  initStride: usize,
  scales: F32Ptr,
  a: U8Ptr,
  aStride: usize,
  aBlocks: usize,
  b: U8Ptr,
  k: i32,
  group: i32,
  gap: usize,
): void {
  if (rows == 4) int_dot_i16_nx8(4, c, cStride, init, initStride, scales, a, aStride, aBlocks, b, k, group, gap);
  else if (rows == 3) int_dot_i16_nx8(3, c, cStride, init, initStride, scales, a, aStride, aBlocks, b, k, group, gap);
  else if (rows == 2) int_dot_i16_nx8(2, c, cStride, init, initStride, scales, a, aStride, aBlocks, b, k, group, gap);
  else int_dot_i16_nx8(1, c, cStride, init, initStride, scales, a, aStride, aBlocks, b, k, group, gap);
}

/**
 * The same on a path of i8, a constant, for any number of rows and panels, with C for init. A has `planes` planes of digits
 * `plane` bytes apart; the sums of panels lie sumStride apart. One and two rows of digits read four and two panels at a time,
 * each from a part of the matrix of its own.
 */
// @ts-ignore: decorator
@inline
function dot_rows(
  path: i32,
  rows: i32,
  planes: i32,
  c: F32Ptr,
  cStride: usize,
  scales: F32Ptr,
  sums: U8Ptr,
  sumStride: usize,
  a: U8Ptr,
  aStride: usize,
  plane: usize,
  aBlocks: usize,
  b: U8Ptr,
  bStride: usize,
  panels: i32,
  k: i32,
  group: i32,
  gap: usize,
): void {
  const aStep = planes == 2 ? plane : aStride;
  while (rows > 0) {
    const left = rows * planes;
    // The engine's product needs no register besides its sum, so that six rows fit.
    const digits = path == PATH_I8 && left >= 6 ? 6 : min(left, 4);
    const wide = digits > 2 ? 0 : 4 / digits;
    let p = 0;
    if (wide > 0) {
      const each = panels / wide;
      const cFar = <usize>each * PANEL_BYTES;
      const bFar = bStride * each;
      const sFar = sumStride * each;
      for (; p < each; p++) {
        const o = c + <usize>p * PANEL_BYTES;
        const at = bStride * p;
        const sum = sums + sumStride * p;
        if (wide == 4) int_dot_i8_1x32(path, o, cFar, scales + at, sum, sFar, a, aBlocks, b + at, bFar, k, group, gap);
        else
          int_dot_i8_2x16(path, planes, o, cFar, cStride, scales + at, sum, sFar, a, aStep, aBlocks, b + at, bFar, k, group, gap);
      }
      p *= wide;
    }
    const n = panels - p;
    const o = c + <usize>p * PANEL_BYTES;
    const at = b + bStride * p;
    const sum = sums + sumStride * p;
    const s = scales + bStride * p;
    const as = aStride;
    const zs = sumStride;
    if (path == PATH_I8 && digits == 6)
      int_dot_i8_nx8(path, 6, planes, o, cStride, s, sum, zs, a, as, plane, aBlocks, at, bStride, n, k, group, gap);
    else if (digits == 4)
      int_dot_i8_nx8(path, 4, planes, o, cStride, s, sum, zs, a, as, plane, aBlocks, at, bStride, n, k, group, gap);
    else if (digits == 3)
      int_dot_i8_nx8(path, 3, planes, o, cStride, s, sum, zs, a, as, plane, aBlocks, at, bStride, n, k, group, gap);
    else if (digits == 2)
      int_dot_i8_nx8(path, 2, planes, o, cStride, s, sum, zs, a, as, plane, aBlocks, at, bStride, n, k, group, gap);
    else int_dot_i8_nx8(path, 1, planes, o, cStride, s, sum, zs, a, as, plane, aBlocks, at, bStride, n, k, group, gap);
    const taken = digits / planes;
    rows -= taken;
    c += cStride * taken;
    a += aStride * taken;
    aBlocks += aStride * taken;
  }
}

/** By the engine's product of four. */
export function int_dot_i8(
  rows: i32,
  planes: i32,
  c: F32Ptr,
  cStride: usize,
  scales: F32Ptr,
  sums: U8Ptr,
  sumStride: usize,
  a: U8Ptr,
  aStride: usize,
  plane: usize,
  aBlocks: usize,
  b: U8Ptr,
  bStride: usize,
  panels: i32,
  k: i32,
  group: i32,
  gap: usize,
): void {
  dot_rows(PATH_I8, rows, planes, c, cStride, scales, sums, sumStride, a, aStride, plane, aBlocks, b, bStride, panels, k, group, gap);
}

/** By three instructions. */
export function int_dot_i8_emulated(
  rows: i32,
  planes: i32,
  c: F32Ptr,
  cStride: usize,
  scales: F32Ptr,
  sums: U8Ptr,
  sumStride: usize,
  a: U8Ptr,
  aStride: usize,
  plane: usize,
  aBlocks: usize,
  b: U8Ptr,
  bStride: usize,
  panels: i32,
  k: i32,
  group: i32,
  gap: usize,
): void {
  dot_rows(
    PATH_I8_EMULATED,
    rows,
    planes,
    c,
    cStride,
    scales,
    sums,
    sumStride,
    a,
    aStride,
    plane,
    aBlocks,
    b,
    bStride,
    panels,
    k,
    group,
    gap,
  );
}
