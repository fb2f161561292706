import { PANEL, PANEL_BYTES } from "../layout";
import { MADD_FUSES } from "../math/simd";
import { F32Ptr, F32PtrOrNull, LinearShape, LinearShapePtr } from "../types";
import { linear_1x8, linear_1x32 } from "./gemv";
import { linear_2x16, linear_2x24, linear_3x16 } from "./skinny";
import { linear_nx8, linear_strips } from "./tile";

/** Elements of k in a weight block: six rows of x (12 KB) stay in a 32 KB L1 while the panels pass by. */
const KC = 512;
/** Panels of a weight block: 16 · 8 · KC floats are 256 KB, half of a small L2 (512 KB). */
const BLOCK_PANELS = 16;
/** Up to so many rows a block is one panel of the whole k, which the strips read one after the other. */
const FEW_ROWS = 12;

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
  const rows = end - begin;
  out += <usize>begin * outBytes;
  x += <usize>begin * xBytes;
  if (rows == 1) return one_row(out, x, w, bias, panels, k);
  if (rows == 2) return two_rows(out, x, w, bias, panels, k, outBytes, xBytes);
  if (MADD_FUSES && rows == 3) return three_rows(out, x, w, bias, panels, k, outBytes, xBytes);

  const few = rows <= FEW_ROWS;
  const blockPanels = few ? 1 : BLOCK_PANELS;
  const blockK = few ? k : KC;
  for (let p = 0; p < panels; p += blockPanels) {
    const n = min(blockPanels, panels - p);
    const o = out + <usize>p * PANEL_BYTES;
    const b = w + <usize>p * k * PANEL_BYTES;
    for (let i = 0; i < k; i += blockK) {
      // The first block starts from the bias, the others from what is there.
      const init = i > 0 ? o : bias ? bias + <usize>p * PANEL_BYTES : zeros;
      const initStep: usize = i > 0 || bias ? <usize>PANEL_BYTES : 0;
      const initBytes: usize = i > 0 ? outBytes : 0;
      const kc = min(blockK, k - i);
      linear_strips(
        o,
        init,
        x + (<usize>i << 2),
        b + <usize>i * PANEL_BYTES,
        rows,
        n,
        kc,
        outBytes,
        initStep,
        initBytes,
        xBytes,
        k,
      );
    }
  }
}

/** One row by all panels. */
function one_row(out: F32Ptr, x: F32Ptr, w: F32Ptr, bias: F32PtrOrNull, panels: i32, k: i32): void {
  const panelBytes = <usize>k * PANEL_BYTES;
  const initStep: usize = bias ? <usize>PANEL_BYTES : 0;
  let init = bias ? bias : zeros;
  for (; panels >= 4; panels -= 4) {
    linear_1x32(out, init, x, w, k, panelBytes);
    out += PANEL_BYTES * 4;
    init += initStep * 4;
    w += panelBytes * 4;
  }
  for (; panels > 0; panels--) {
    linear_1x8(out, init, x, w, k);
    out += PANEL_BYTES;
    init += initStep;
    w += panelBytes;
  }
}

/** Two rows by all panels. */
function two_rows(
  out: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  bias: F32PtrOrNull,
  panels: i32,
  k: i32,
  outBytes: usize,
  xBytes: usize,
): void {
  const panelBytes = <usize>k * PANEL_BYTES;
  const initStep: usize = bias ? <usize>PANEL_BYTES : 0;
  let init = bias ? bias : zeros;
  // By threes where madd is one instruction and leaves the registers; the last four by twos.
  for (; MADD_FUSES && panels > 2 && panels != 4; panels -= 3) {
    linear_2x24(out, init, x, w, k, outBytes, xBytes, panelBytes);
    out += PANEL_BYTES * 3;
    init += initStep * 3;
    w += panelBytes * 3;
  }
  for (; panels > 1; panels -= 2) {
    linear_2x16(out, init, x, w, k, outBytes, xBytes, panelBytes);
    out += PANEL_BYTES * 2;
    init += initStep * 2;
    w += panelBytes * 2;
  }
  if (panels > 0) {
    linear_1x8(out, init, x, w, k);
    linear_1x8(out + outBytes, init, x + xBytes, w, k);
  }
}

/** Three rows by all panels, where madd is one instruction. */
function three_rows(
  out: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  bias: F32PtrOrNull,
  panels: i32,
  k: i32,
  outBytes: usize,
  xBytes: usize,
): void {
  const panelBytes = <usize>k * PANEL_BYTES;
  const initStep: usize = bias ? <usize>PANEL_BYTES * 2 : 0;
  let init = bias ? bias : zeros;
  for (; panels > 1; panels -= 2) {
    linear_3x16(out, init, x, w, k, outBytes, xBytes, panelBytes);
    out += PANEL_BYTES * 2;
    init += initStep;
    w += panelBytes * 2;
  }
  if (panels > 0) linear_nx8(3, out, init, x, w, k, outBytes, 0, xBytes);
}
