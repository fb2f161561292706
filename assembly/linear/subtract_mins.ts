import { BLOCK, MINS_SCRATCH, PANEL_BYTES, SIGNED } from "../layout";
import { dot_i16 } from "../math/simd";
import { F32Ptr, LinearShape, LinearShapePtr, U8Ptr } from "../types";
import { BLOCK_SHIFT, block_at } from "./block_layout";
import { FAST, PATH_I16, path_of } from "./int_dot";
import { DIGIT_BIAS, DIGIT_BITS } from "./int_dot_i8";
import { blocks_of, padded, ROW_HEAD, row_bytes } from "./quantize_rows";

/** Lanes of sums that a tile adds up side by side: four rows by a panel, or a row by four panels. */
const STREAMS = 4;

/** Blocks whose sums of activations are kept at a time. */
const CHUNK = MINS_SCRATCH / (STREAMS * 4);

/**
 * out[m, n] -= xScale[m] · Σb min[b, n] · (Σ of x[m, k] over the k of block b), for rows m in begin..end and n in 0..8·panels:
 * what linear_q8 and linear_q4 leave out where a weight is scale · integer - min. x is as they read it, mins are
 * [panels][K / block][8], block 16 or 32. scratch: MINS_SCRATCH bytes (layout.ts), 16-byte aligned. Sums of x are exact, blocks are
 * added in ascending order, CHUNK at a time, and nothing is fused. Of fast rows, each sum is first multiplied by the scale of its block.
 */
export function subtract_mins(
  out: F32Ptr,
  x: U8Ptr,
  mins: F32Ptr,
  scratch: F32Ptr,
  shape: LinearShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<LinearShape>(shape);
  const panels = s.panels;
  const block = s.block;
  const mode = s.mode;
  assert(panels > 0 && s.k > 0, "subtract_mins: panels and k must be positive");
  assert(block == BLOCK || block << 1 == BLOCK, "subtract_mins: a block must have 16 or 32 inputs");
  const outBytes = <usize>s.outStride << 2;
  const xBytes = row_bytes(s.k);
  const length = padded(s.k);
  const blocks = length / block;
  const xBlocks = blocks_of(x, s.k, mode);
  const minBytes = <usize>blocks * PANEL_BYTES;
  for (let r = begin; r < end; r += STREAMS) {
    const rows = min(STREAMS, end - r);
    const row = x + xBytes * r;
    for (let first = 0; first < blocks; first += CHUNK) {
      const count = min(CHUNK, blocks - first);
      for (let i = 0; i < rows; i++) {
        const integers = row + xBytes * i + ROW_HEAD;
        const at = xBlocks + xBytes * (r + i) + (<usize>(first * block) >> BLOCK_SHIFT);
        sum_blocks(scratch + (<usize>(i * CHUNK) << 2), integers, at, length, first, block, count, mode);
      }
      const m = mins + <usize>first * PANEL_BYTES;
      for (let p = 0, n = 0; p < panels; p += n) {
        const o = out + outBytes * r + <usize>p * PANEL_BYTES;
        const at = m + minBytes * p;
        const wide = rows == 1 && p + STREAMS <= panels;
        n = wide ? STREAMS : 1;
        if (wide) tile(o, PANEL_BYTES, row, 0, scratch, 0, at, minBytes, count, STREAMS);
        else tile(o, outBytes, row, xBytes, scratch, CHUNK << 2, at, 0, count, rows);
      }
    }
  }
}

/** to[i] = the sum of x over block first + i, for `count` blocks of a row of `length` integers in the form of `mode`. */
function sum_blocks(to: F32Ptr, x: U8Ptr, xBlocks: usize, length: i32, first: i32, block: i32, count: i32, mode: i32): void {
  const path = path_of(mode);
  const fast = (mode & FAST) != 0;
  const ones = i16x8.splat(1);
  x += <usize>(first * block) << (path == PATH_I16 ? 1 : 0);
  for (let i = 0; i < count; i++) {
    let sum = i32x4.splat(0);
    let lower = i32x4.splat(0);
    for (let j = 0; j < block; j += 8) {
      if (path == PATH_I16) {
        sum = dot_i16(v128.load(x), ones, sum);
        x += 16;
      } else {
        sum = dot_i16(mode & SIGNED ? v128.load8x8_s(x) : v128.load8x8_u(x), ones, sum);
        if (!fast) lower = dot_i16(v128.load8x8_u(x + length), ones, lower);
        x += 8;
      }
    }
    let total = sum_lanes(sum);
    if (path != PATH_I16) {
      const raise = fast ? load<i32>(block_at(xBlocks), 4) : DIGIT_BIAS;
      total -= block * raise;
      if (!fast) total = (total << DIGIT_BITS) + sum_lanes(lower);
    }
    store<f32>(to + (<usize>i << 2), fast ? <f32>total * load<f32>(block_at(xBlocks)) : <f32>total);
    xBlocks += block >> BLOCK_SHIFT;
  }
}

// @ts-ignore: decorator
@inline
function sum_lanes(v: v128): i32 {
  return i32x4.extract_lane(v, 0) + i32x4.extract_lane(v, 1) + i32x4.extract_lane(v, 2) + i32x4.extract_lane(v, 3);
}

/**
 * out[8] -= scale · Σb min[b, 8] · sums[b] for `streams` of them, 1 to 4: what they write, their rows of x, whose heads have the
 * scales, their sums and their mins lie as far apart as each stride says.
 */
function tile(
  out: F32Ptr,
  outStride: usize,
  x: U8Ptr,
  xStride: usize,
  sums: F32Ptr,
  sumStride: usize,
  mins: F32Ptr,
  minStride: usize,
  blocks: i32,
  streams: i32,
): void {
  // Streams beyond the last one compute the first one again.
  const s1: usize = streams > 1 ? 1 : 0;
  const s2: usize = streams > 2 ? 2 : 0;
  const s3: usize = streams > 3 ? 3 : 0;
  const sums1 = sumStride * s1;
  const sums2 = sumStride * s2;
  const sums3 = sumStride * s3;
  let mins1 = mins + minStride * s1;
  let mins2 = mins + minStride * s2;
  let mins3 = mins + minStride * s3;
  let acc00 = f32x4.splat(0);
  let acc01 = f32x4.splat(0);
  let acc10 = f32x4.splat(0);
  let acc11 = f32x4.splat(0);
  let acc20 = f32x4.splat(0);
  let acc21 = f32x4.splat(0);
  let acc30 = f32x4.splat(0);
  let acc31 = f32x4.splat(0);
  for (const end = sums + (<usize>blocks << 2); sums < end; sums += 4) {
    let sum = v128.load32_splat(sums);
    acc00 = f32x4.add(acc00, f32x4.mul(v128.load(mins), sum));
    acc01 = f32x4.add(acc01, f32x4.mul(v128.load(mins, 16), sum));
    sum = v128.load32_splat(sums + sums1);
    acc10 = f32x4.add(acc10, f32x4.mul(v128.load(mins1), sum));
    acc11 = f32x4.add(acc11, f32x4.mul(v128.load(mins1, 16), sum));
    sum = v128.load32_splat(sums + sums2);
    acc20 = f32x4.add(acc20, f32x4.mul(v128.load(mins2), sum));
    acc21 = f32x4.add(acc21, f32x4.mul(v128.load(mins2, 16), sum));
    sum = v128.load32_splat(sums + sums3);
    acc30 = f32x4.add(acc30, f32x4.mul(v128.load(mins3), sum));
    acc31 = f32x4.add(acc31, f32x4.mul(v128.load(mins3, 16), sum));
    mins += PANEL_BYTES;
    mins1 += PANEL_BYTES;
    mins2 += PANEL_BYTES;
    mins3 += PANEL_BYTES;
  }
  subtract(out, x, acc00, acc01);
  if (streams > 1) subtract(out + outStride, x + xStride, acc10, acc11);
  if (streams > 2) subtract(out + outStride * 2, x + xStride * 2, acc20, acc21);
  if (streams > 3) subtract(out + outStride * 3, x + xStride * 3, acc30, acc31);
}

/** out[8] -= the scale at the head of a row of x · acc. */
// @ts-ignore: decorator
@inline
function subtract(out: F32Ptr, x: U8Ptr, acc0: v128, acc1: v128): void {
  const scale = v128.load32_splat(x);
  v128.store(out, f32x4.sub(v128.load(out), f32x4.mul(acc0, scale)));
  v128.store(out, f32x4.sub(v128.load(out, 16), f32x4.mul(acc1, scale)), 16);
}
