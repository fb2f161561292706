import { PANEL, PANEL_BYTES } from "../layout";
import { MADD_FUSES } from "../math/simd";
import { F32Ptr, F32PtrOrNull, LinearShape, LinearShapePtr } from "../types";
import { linear_1x8, linear_1x32 } from "./gemv";
import { linear_2x16, linear_2x24, linear_3x16 } from "./skinny";
import { linear_strips } from "./strips";

/** Elements of k in a weight block: three panels of it are 384 KB, which stay in an L2 of 512 KB while the rows pass by. */
const KC = 4096;
/** Bytes of a page of virtual memory, at whose end hardware stops prefetching a stream. */
const PAGE_BYTES = 4096;
/** A matrix of more bytes is expected in memory, a smaller one in a cache. */
const CACHED_BYTES: usize = 16 << 20;

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
  // By the stride of out, because threads share a matrix in tiles of fewer panels.
  const cached = outBytes * <usize>k <= CACHED_BYTES;
  // Five rows are faster as one strip, if memory can deliver one stream in time.
  const pairs = rows > 1 && rows != 3 && (rows != 5 || !cached);
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
      if (!cached && rows > 1) touch_pages(b, n, wStep, panelBytes);
      if (n == 4) linear_1x32(o, start, x, b, k, outStep, startStep, wStep);
      else if (MADD_FUSES && rows == 3 && n == 2)
        linear_3x16(o, start, x, b, k, outStep, outBytes, startStep, xBytes, wStep);
      else
        for (let i = 0; i < k; i += KC)
          // The first block starts from the bias, the others from what is there.
          group_block(
            n > 1 && pairs,
            rows,
            n,
            o,
            i > 0 ? o : start,
            x + (<usize>i << 2),
            b + <usize>i * PANEL_BYTES,
            min(KC, k - i),
            outStep,
            outBytes,
            i > 0 ? outStep : startStep,
            i > 0 ? outBytes : 0,
            xBytes,
            wStep,
          );
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
 * all panels at once and bring them into L2, where the others find them: up to two more pairs, so that strips of six are
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
  if (rows > 2) return linear_strips(out, init, x, w, rows, panels, k, outStep, outBytes, initStep, initBytes, xBytes, wStep);
  for (; rows > 0; rows--) {
    linear_1x8(out, init, x, w, k);
    out += outBytes;
    init += initBytes;
    x += xBytes;
  }
}

/**
 * Reads a byte every PAGE_BYTES of panels. A stream waits for memory at the start of every page; loads that do not depend on
 * each other wait together.
 */
function touch_pages(at: usize, panels: i32, step: usize, bytes: usize): void {
  for (; panels > 0; panels--) {
    for (let i: usize = 0; i < bytes; i += PAGE_BYTES) load<u8>(at + i);
    at += step;
  }
}
