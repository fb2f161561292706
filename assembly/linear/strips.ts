import { MADD_FUSES } from "../math/simd";
import { F32Ptr } from "../types";
import { linear_nx8 } from "./tile";

// How rows of linear_f32 are dealt out to its tile (tile.ts). Each height is a function of its own: engines compile these
// one by one when they are hot, and a start waits for the one that it needs alone.

function linear_3x8(
  c: F32Ptr,
  init: F32Ptr,
  a: F32Ptr,
  b: F32Ptr,
  k: i32,
  cStride: usize,
  initStride: usize,
  aStride: usize,
): void {
  linear_nx8(3, c, init, a, b, k, cStride, initStride, aStride);
}

function linear_4x8(
  c: F32Ptr,
  init: F32Ptr,
  a: F32Ptr,
  b: F32Ptr,
  k: i32,
  cStride: usize,
  initStride: usize,
  aStride: usize,
): void {
  linear_nx8(4, c, init, a, b, k, cStride, initStride, aStride);
}

function linear_5x8(
  c: F32Ptr,
  init: F32Ptr,
  a: F32Ptr,
  b: F32Ptr,
  k: i32,
  cStride: usize,
  initStride: usize,
  aStride: usize,
): void {
  linear_nx8(5, c, init, a, b, k, cStride, initStride, aStride);
}

function linear_6x8(
  c: F32Ptr,
  init: F32Ptr,
  a: F32Ptr,
  b: F32Ptr,
  k: i32,
  cStride: usize,
  initStride: usize,
  aStride: usize,
): void {
  linear_nx8(6, c, init, a, b, k, cStride, initStride, aStride);
}

/**
 * out[rows, 8·panels] = init + x[rows, k] · w for at least three rows, from panels that lie panelBytes apart.
 * out and init lie outStep and initStep bytes apart for each panel, and outBytes and initBytes for each row; those of init
 * are 0 where all read the same.
 */
export function linear_strips(
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  rows: i32,
  panels: i32,
  k: i32,
  outStep: usize,
  outBytes: usize,
  initStep: usize,
  initBytes: usize,
  xBytes: usize,
  panelBytes: usize,
): void {
  // Where madd is two instructions there are the registers for six rows, but not the issue slots.
  const tallest = MADD_FUSES ? 6 : 5;
  while (rows > 0) {
    // Strips as equal as they can be: 7 rows are 4 + 3, so that no strip has fewer than three.
    const strips = (rows + tallest - 1) / tallest;
    const n = (rows + strips - 1) / strips;
    let o = out;
    let from = init;
    let b = w;
    for (let p = 0; p < panels; p++) {
      if (n == 3) linear_3x8(o, from, x, b, k, outBytes, initBytes, xBytes);
      else if (n == 4) linear_4x8(o, from, x, b, k, outBytes, initBytes, xBytes);
      else if (n == 5) linear_5x8(o, from, x, b, k, outBytes, initBytes, xBytes);
      else linear_6x8(o, from, x, b, k, outBytes, initBytes, xBytes);
      o += outStep;
      from += initStep;
      b += panelBytes;
    }
    rows -= n;
    out += <usize>n * outBytes;
    init += <usize>n * initBytes;
    x += <usize>n * xBytes;
  }
}
