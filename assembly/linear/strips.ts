import { linear_x8 } from "./tile";
import { MADD_FUSES } from "../math/simd";
import { F32Ptr } from "../types";

/**
 * out[rows, 8·panels] = init + x[rows, k] · w for at least three rows, from panels that lie `depth` · 8 floats apart.
 * init lies initStep bytes apart for each panel and initBytes for each row, 0 where all read the same.
 */
export function linear_strips(
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  rows: i32,
  panels: i32,
  k: i32,
  outBytes: usize,
  initStep: usize,
  initBytes: usize,
  xBytes: usize,
  depth: i32,
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
      if (MADD_FUSES && n == 6) linear_x8(6, o, from, x, b, k, outBytes, initBytes, xBytes);
      else if (n == 5) linear_x8(5, o, from, x, b, k, outBytes, initBytes, xBytes);
      else if (n == 4) linear_x8(4, o, from, x, b, k, outBytes, initBytes, xBytes);
      else linear_x8(3, o, from, x, b, k, outBytes, initBytes, xBytes);
      o += 32;
      from += initStep;
      b += <usize>depth << 5;
    }
    rows -= n;
    out += <usize>n * outBytes;
    init += <usize>n * initBytes;
    x += <usize>n * xBytes;
  }
}
