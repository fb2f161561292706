import { PANEL, PANEL_BYTES } from "../layout";
import { MADD_FUSES } from "../math/simd";
import { F32Ptr, F32PtrOrNull, LinearShape, LinearShapePtr } from "../types";
import { linear_1x8, linear_1x32 } from "./gemv";
import { linear_2x16, linear_2x24, linear_3x16 } from "./skinny";
import { linear_strips } from "./strips";

/** Elements of k in a weight block: three panels of it are 384 KB, which stay in an L2 of 512 KB while the rows pass by. */
const KC = 4096;
/**
 * Elements of k in a block for 2 to FEW_ROWS rows: as long as a page of virtual memory, at whose end hardware stops prefetching
 * a stream anyway. The first two rows read three panels of it, 12 KB, and the others find them in L1.
 */
const PAGE_KC = 128;
/** More rows make so many products of a block that reading it does not count. */
const FEW_ROWS = 32;

/** A matrix of more than 2 to this power bytes is expected in memory, a smaller one in a cache. */
const CACHED_BITS = 24;

/** Where a missing bias is read: as many floats as the widest tile has columns. */
const zeros = memory.data(128, 16);

/**
 * out[m, n] = x[m, k] · w[n, k]ᵀ + bias[n] for rows m in begin..end and n in 0..8·panels.
 * w is packed [panels][k][8] and bias holds 8·panels floats or is null. Row m of out and of x lies m·outStride and
 * m·xStride floats behind the first; out rows have room for 8·panels floats and out overlaps no input. 4-byte
 * alignment is enough. Each element has one accumulator that starts from the bias (or +0) and takes k in ascending
 * order, in every tile, so that its bits do not depend on the rows computed with it.
 */
export function linear_f32(
  out: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  bias: F32PtrOrNull,
  shape: LinearShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<LinearShape>(shape);
  const panels = s.panels;
  const k = s.k;
  assert(panels > 0 && k > 0, "linear_f32: panels and k must be positive");
  assert(s.outStride >= panels * PANEL && s.xStride >= k, "linear_f32: strides must hold a row");
  const outBytes = <usize>s.outStride << 2;
  const xBytes = <usize>s.xStride << 2;
  const panelBytes = <usize>k * PANEL_BYTES;
  const biasStep: usize = bias ? <usize>PANEL_BYTES : 0;
  const rows = end - begin;
  out += <usize>begin * outBytes;
  x += <usize>begin * xBytes;
  const first = bias ? bias : zeros;
  const kc = rows > 1 && rows <= FEW_ROWS ? PAGE_KC : KC;
  // Five rows are faster as one strip, if memory can deliver one stream in time. By the stride of out, because threads share a
  // matrix in tiles of fewer panels.
  const pairs = rows > 1 && rows != 3 && (rows != 5 || (outBytes * <usize>k - 1) >> CACHED_BITS != 0);
  for (let p = 0; p < panels; ) {
    const n = group_panels(rows, panels - p);
    const each = (panels - p) / n;
    const wStep = panelBytes * each;
    const outStep = <usize>each * PANEL_BYTES;
    const startStep = biasStep * each;
    for (const end = p + each; p < end; p++) {
      const o = out + <usize>p * PANEL_BYTES;
      const start = first + biasStep * p;
      const b = w + panelBytes * p;
      if (n == 4) linear_1x32(o, start, x, b, k, outStep, startStep, wStep);
      else
        for (let i = 0; i < k; i += kc) {
          const block = b + <usize>i * PANEL_BYTES;
          if (i + kc < k || p + 1 < end) touch(block + <usize>min(kc, k - i) * PANEL_BYTES, n, wStep);
          // The first block starts from the bias, the others from what is there.
          group_block(
            n > 1 && pairs,
            rows,
            n,
            o,
            i > 0 ? o : start,
            x + (<usize>i << 2),
            block,
            min(kc, k - i),
            outStep,
            outBytes,
            i > 0 ? outStep : startStep,
            i > 0 ? outBytes : 0,
            xBytes,
            wStep,
          );
        }
    }
    p += each * (n - 1);
  }
}

/**
 * Panels of a group. They are read at the same time, because memory delivers several streams faster than one, and come
 * from as many parts of the matrix, so that a stream begins once in a call: hardware does not prefetch where it begins;
 * fewer where madd is two instructions, whose tiles are narrower. The last four are taken by twos rather than as 3 + 1.
 */
function group_panels(rows: i32, left: i32): i32 {
  const most = rows == 1 ? 4 : MADD_FUSES && rows != 3 && left != 4 ? 3 : 2;
  return rows == 1 && left < 4 ? 1 : min(most, left);
}

/**
 * out[rows, 8·panels] = init + x[rows, k] · w for a group of panels, which lie wStep bytes apart. With `pairs`, two rows take
 * all panels at once and bring them into a cache, where the others find them: up to two more pairs, so that strips of six are
 * left, one of which may be of five, and then these. out and init lie outStep and initStep bytes apart for each panel, and
 * outBytes and initBytes for each row; those of init are 0 where all read the same.
 */
function group_block(
  pairs: bool,
  rows: i32,
  panels: i32,
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  k: i32,
  outStep: usize,
  outBytes: usize,
  initStep: usize,
  initBytes: usize,
  xBytes: usize,
  wStep: usize,
): void {
  if (pairs)
    do {
      if (panels == 3) linear_2x24(out, init, x, w, k, outStep, outBytes, initStep, initBytes, xBytes, wStep);
      else linear_2x16(out, init, x, w, k, outStep, outBytes, initStep, initBytes, xBytes, wStep);
      rows -= 2;
      out += outBytes * 2;
      init += initBytes * 2;
      x += xBytes * 2;
    } while (rows != 3 && (rows + 1) % 6 > 1);
  if (MADD_FUSES && rows == 3 && panels == 2)
    return linear_3x16(out, init, x, w, k, outStep, outBytes, initStep, initBytes, xBytes, wStep);
  if (rows > 2) return linear_strips(out, init, x, w, rows, panels, k, outStep, outBytes, initStep, initBytes, xBytes, wStep);
  for (; rows > 0; rows--) {
    linear_1x8(out, init, x, w, k);
    out += outBytes;
    init += initBytes;
    x += xBytes;
  }
}

/**
 * Reads a byte of each panel, where the next block begins, or the next panel. A stream waits for memory where a page starts; loads
 * that do not depend on each other wait together, and while products are made.
 */
function touch(at: usize, panels: i32, step: usize): void {
  for (; panels > 0; panels--) {
    load<u8>(at);
    at += step;
  }
}
