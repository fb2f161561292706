import { PANEL, PANEL_BYTES } from "../layout";
import { F32Ptr } from "../types";

/**
 * out[p, i, c] = w[8p + c, i], w [n][k] -> out [ceil(n / 8)][k][8], both dense, for panels begin..end. Columns beyond n are
 * +0. Bits are copied. out must not overlap w.
 */
export function pack_rows_f32(out: F32Ptr, w: F32Ptr, n: i32, k: i32, begin: i32, end: i32): void {
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "pack_rows_f32: begin..end must lie within the panels");
  const rowBytes = <usize>k << 2;
  for (let p = begin; p < end; p++) {
    const panel = out + <usize>p * k * PANEL_BYTES;
    const row = p * PANEL;
    const from = w + <usize>row * rowBytes;
    pack_quarter(panel, from, min(4, n - row), k, rowBytes);
    pack_quarter(panel + 16, from + (rowBytes << 2), min(4, n - row - 4), k, rowBytes);
  }
}

/** Four columns of a panel from up to four rows of w: squares of 4 x 4 are turned over, what is left goes one by one. */
function pack_quarter(to: usize, from: usize, rows: i32, k: i32, rowBytes: usize): void {
  const wide = rows == 4 ? k & ~3 : 0;
  for (let i = 0; i < wide; i += 4) {
    const at = from + (<usize>i << 2);
    const a = v128.load(at);
    const b = v128.load(at + rowBytes);
    const c = v128.load(at + (rowBytes << 1));
    const d = v128.load(at + rowBytes * 3);
    const ab = v128.shuffle<f32>(a, b, 0, 4, 1, 5);
    const cd = v128.shuffle<f32>(c, d, 0, 4, 1, 5);
    const ab_high = v128.shuffle<f32>(a, b, 2, 6, 3, 7);
    const cd_high = v128.shuffle<f32>(c, d, 2, 6, 3, 7);
    const square = to + <usize>i * PANEL_BYTES;
    v128.store(square, v128.shuffle<f64>(ab, cd, 0, 2));
    v128.store(square, v128.shuffle<f64>(ab, cd, 1, 3), 32);
    v128.store(square, v128.shuffle<f64>(ab_high, cd_high, 0, 2), 64);
    v128.store(square, v128.shuffle<f64>(ab_high, cd_high, 1, 3), 96);
  }
  for (let i = wide; i < k; i++)
    for (let column = 0; column < 4; column++) {
      const value = column < rows ? load<u32>(from + <usize>column * rowBytes + (<usize>i << 2)) : 0;
      store<u32>(to + <usize>i * PANEL_BYTES + (<usize>column << 2), value);
    }
}

/**
 * The same from w [k][n], whose rows are cut into pieces of eight, for rows begin..end of k: out[p, i, c] = w[i, 8p + c].
 */
export function pack_columns_f32(out: F32Ptr, w: F32Ptr, n: i32, k: i32, begin: i32, end: i32): void {
  assert(begin >= 0 && end <= k, "pack_columns_f32: begin..end must lie within k");
  const panels = (n + PANEL - 1) / PANEL;
  const panelBytes = <usize>k * PANEL_BYTES;
  for (let i = begin; i < end; i++) {
    let from = w + ((<usize>i * n) << 2);
    let to = out + <usize>i * PANEL_BYTES;
    for (let p = 0; p < panels; p++) {
      const columns = n - p * PANEL;
      if (columns >= PANEL) {
        v128.store(to, v128.load(from));
        v128.store(to, v128.load(from, 16), 16);
      } else
        for (let column = 0; column < PANEL; column++)
          store<u32>(to + (<usize>column << 2), column < columns ? load<u32>(from + (<usize>column << 2)) : 0);
      from += 32;
      to += panelBytes;
    }
  }
}
