import { PANEL_BYTES } from "../layout";
import { bias_row, head_of, is_excluded, keep_row, token_of } from "../mask";
import { AttentionShape, F32Ptr, U8Ptr } from "../types";
import { pv_panel } from "./pv";
import { STATE_ALPHA, STATE_BYTES, STATE_HIGH, STATE_LOW, STRIP_BYTES } from "./state";

// The slow path of attention_f32's PV product: a value is not finite and not every row of the strip attends its key, and
// 0 · NaN is NaN. Keys are classified by the rules, never by a weight of 0: a NaN in an attended key's value propagates even
// where its weight underflowed, as it does on the fast path.

/** States of a strip's rows with an alpha of 1, for outputs that are rescaled already. */
export const RESCALED = memory.data<f32>([
  0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0,
  0, 0, 0, 0, 0, 0, 1, 0, 0,
]);

/**
 * allowed[j] = a bit for each row of the strip that may attend key j of the page, for the keys [first, last). The
 * strip's rows start at row r, the page at key `key`.
 */
export function classify_keys(
  allowed: U8Ptr,
  states: usize,
  rows: i32,
  shape: AttentionShape,
  r: i32,
  key: i32,
  first: i32,
  last: i32,
): void {
  for (let j = first; j < last; j++) store<u8>(allowed + j, 0);
  let bit: u8 = 1;
  for (let i = 0; i < rows; i++) {
    const state = states + STATE_BYTES * i;
    const from = max(first, load<i32>(state, STATE_LOW) - key);
    const to = min(last, load<i32>(state, STATE_HIGH) - key);
    const token = token_of(shape, r + i);
    const head = head_of(shape, r + i);
    const keep = keep_row(shape, head, token);
    const bias = bias_row(shape, head, token);
    for (let j = from; j < to; j++) {
      if (!is_excluded(keep, bias, key + j)) store<u8>(allowed + j, load<u8>(allowed + j) | bit);
    }
    bit <<= 1;
  }
}

/**
 * o[:rows, :8] = alpha · o + sum of weight · value over the allowed keys of [first, last), in ascending order: keys of
 * all rows through the tile, keys of some rows row by row, keys of none not at all.
 */
export function pv_masked(
  o: F32Ptr,
  row: usize,
  states: usize,
  rows: i32,
  s: F32Ptr,
  v: F32Ptr,
  allowed: U8Ptr,
  first: i32,
  last: i32,
): void {
  for (let i = 0; i < rows; i++) {
    const at = o + row * i;
    const alpha = v128.load32_splat(states + STATE_BYTES * i, STATE_ALPHA);
    v128.store(at, f32x4.mul(v128.load(at), alpha));
    v128.store(at, f32x4.mul(v128.load(at, 16), alpha), 16);
  }
  const all: u32 = (1 << rows) - 1;
  for (let from = first; from < last; ) {
    const who: u32 = load<u8>(allowed + from);
    let to = from + 1;
    while (to < last && load<u8>(allowed + to) == who) to++;
    const p = s + (<usize>from << 2);
    const values = v + <usize>from * PANEL_BYTES;
    if (who == all) pv_panel(rows, o, row, RESCALED, p, values, to - from, 0);
    else {
      for (let i = 0; i < rows; i++) {
        if (who & (1 << i)) {
          pv_panel(1, o + row * i, row, RESCALED, p + STRIP_BYTES * i, values, to - from, 0);
        }
      }
    }
    from = to;
  }
}
