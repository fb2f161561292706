import { VALUE_PANEL_BYTES } from "../cache/page";
import { PAGE, PANEL, PANEL_BYTES, PANEL_BYTES_16, QUAD } from "../layout";
import { bias_row, head_of, is_masked, keep_row, token_of } from "../mask";
import { MADD_FUSES } from "../math/simd";
import { AttentionShape, F32Ptr, F32PtrOrNull } from "../types";
import { widen_half_values } from "./dequantize";
import { scale_weights, unscale_weights } from "./f16_page";
import { pv_f16 } from "./f16_tile";
import { few_rows } from "./few_rows";
import { four_heads_f16 } from "./four_heads_f16";
import { pv_int } from "./int_tile";
import { pv_panel } from "./pv";
import { pv_causal_4x8, pv_causal_6x8 } from "./pv_causal";
import { classify_keys, pv_masked } from "./pv_masked";
import { quantize_weights } from "./quantize";
import {
  begin_together,
  end_together,
  STATE_BYTES,
  STATE_HIGH,
  STATE_LOW,
  STRIP_BYTES,
  STRIP_ROWS,
  takes_3x16,
  tile_height,
} from "./state";

// The PV product of a strip of rows with the values of one page (page_step.ts): which tiles it takes.

/** The weights of the keys [start, end) as integers, with the values' scales. */
// @ts-ignore: decorator
@inline
export function quantize_rows_of_weights(
  rows: i32,
  s: F32Ptr,
  states: usize,
  scales: F32Ptr,
  shape: AttentionShape,
  r: i32,
  key: i32,
  start: i32,
  end: i32,
): void {
  for (let i = 0; i < rows; i++)
    quantize_row_of_weights(
      s + STRIP_BYTES * i,
      states + STATE_BYTES * i,
      scales,
      shape,
      r + i,
      key,
      start,
      end,
    );
}

/** Those of row r. */
function quantize_row_of_weights(
  row: F32Ptr,
  state: usize,
  scales: F32Ptr,
  shape: AttentionShape,
  r: i32,
  key: i32,
  start: i32,
  end: i32,
): void {
  const token = token_of(shape, r);
  const head = head_of(shape, r);
  const from = max(load<i32>(state, STATE_LOW) - key, start);
  const to = min(load<i32>(state, STATE_HIGH) - key, end);
  let keep = keep_row(shape, head, token);
  let bias = bias_row(shape, head, token);
  if (keep) keep += key;
  if (bias) bias += <usize>key << 2;
  if (from < to) quantize_weights(row, scales, start, end, from, to, keep, bias);
  else quantize_weights(row, scales, start, end, end, end, 0, 0);
}

// @ts-ignore: decorator
@inline
function panels_of(valueDim: i32): i32 {
  return (valueDim + PANEL - 1) / PANEL;
}

/** The PV product of integer weights and values, for the keys [first, last). */
// @ts-ignore: decorator
@inline
export function pv_page_int(
  rows: i32,
  o: F32Ptr,
  states: usize,
  s: F32Ptr,
  v: usize,
  valueDim: i32,
  first: i32,
  last: i32,
): void {
  const panels = panels_of(valueDim);
  const from = first & -QUAD;
  const pairs = (((last + QUAD - 1) & -QUAD) - from) >> 1;
  pv_int(rows, o, <usize>panels * PANEL_BYTES, states, s, from, v + (<usize>from << 3), pairs, panels);
}

/** Whether a strip of tile_height() rows begins together and each row attends one key more than the row before. */
// @ts-ignore: decorator
@inline
export function is_causal_diagonal(rows: i32, states: usize, shape: AttentionShape, key: i32, first: i32): bool {
  if (is_masked(shape) || rows != tile_height() || !begin_together(states, rows, key, first)) return false;
  const high = load<i32>(states, STATE_HIGH);
  for (let i = 1; i < rows; i++) if (load<i32>(states + STATE_BYTES * i, STATE_HIGH) != high + i) return false;
  // Where the page ends before the first row's range does, all rows attend all keys.
  return high - key < PAGE;
}

/** The PV product of such a strip, for the keys [first, last). */
// @ts-ignore: decorator
@inline
export function pv_page_causal(
  o: F32Ptr,
  states: usize,
  s: F32Ptr,
  v: F32Ptr,
  valueDim: i32,
  key: i32,
  first: i32,
  last: i32,
): void {
  const panels = panels_of(valueDim);
  const outputBytes = <usize>panels * PANEL_BYTES;
  const p = s + (<usize>first << 2);
  const values = v + <usize>first * PANEL_BYTES;
  const whole = load<i32>(states, STATE_HIGH) - key - first;
  const steps = last - first - whole;
  for (let c = 0; c < panels; c++) {
    const to = o + <usize>c * PANEL_BYTES;
    const from = values + VALUE_PANEL_BYTES * c;
    if (MADD_FUSES) pv_causal_6x8(to, outputBytes, states, p, from, whole, steps);
    else pv_causal_4x8(to, outputBytes, states, p, from, whole, steps);
  }
}

/**
 * The PV product of any strip, for the keys [first, last). Where not every row attends all of them, each result is checked,
 * and computed again by the rules where it is not finite. Values are floats, or halves where `wide` is room for a page of
 * them as floats: they are widened there once a result or a value is not finite, and what is left is computed from these.
 * `apart` is that of attend_page: such rows attend the same keys.
 */
// @ts-ignore: decorator
@inline
export function pv_page<P>(
  rows: i32,
  o: F32Ptr,
  states: usize,
  s: F32Ptr,
  v: usize,
  wide: F32PtrOrNull,
  apart: usize,
  shape: AttentionShape,
  r: i32,
  key: i32,
  first: i32,
  last: i32,
): void {
  const shared = !is_masked(shape) && begin_together(states, rows, key, first) && end_together(states, rows, key, last);
  const panels = panels_of(shape.valueDim);
  const outputBytes = <usize>panels * PANEL_BYTES;
  const n = last - first;
  const p = s + (<usize>first << 2);
  const check: i32 = shared ? 0 : 1;
  const allowed = s + STRIP_BYTES * STRIP_ROWS;
  let classified = false;
  let halves = isInteger<P>() && wide != 0;
  if (isInteger<P>() && halves) scale_weights(rows, s, first, last);
  // Strips of few rows take several value panels at a time, each from a part of its own: `step` panels apart.
  const paired = rows == 2 || (rows == 3 && takes_3x16() && !halves);
  const most = rows == 1 ? 4 : paired ? 2 : 1;
  const step = panels / most;
  for (let c = 0; c < panels; ) {
    const together = c < step ? most : 1;
    const to = o + <usize>c * PANEL_BYTES;
    if (isInteger<P>() && halves) {
      const from = v + (VALUE_PANEL_BYTES >> 1) * c + <usize>first * PANEL_BYTES_16;
      if (apart != 0) four_heads_f16(to, outputBytes, states, p, from, apart, n, wide);
      else if (pv_f16(rows, together, to, outputBytes, states, p, from, n, check, step)) {
        unscale_weights(rows, s, first, last);
        widen_half_values(wide, v, panels, last);
        v = wide;
        halves = false;
        continue;
      }
    } else {
      const from = v + VALUE_PANEL_BYTES * c + <usize>first * PANEL_BYTES;
      const bApart = apart ? apart : VALUE_PANEL_BYTES * step;
      const failed =
        together > 1 || apart != 0
          ? few_rows<P>(rows, to, outputBytes, step * PANEL_BYTES, states, p, from, bApart, n, check)
          : pv_panel(rows, to, outputBytes, states, p, from, n, check);
      if (failed) {
        if (!classified) classify_keys(allowed, states, rows, shape, r, key, first, last);
        classified = true;
        for (let i = 0; i < together; i++) {
          const at = c + i * step;
          const from = v + VALUE_PANEL_BYTES * at;
          pv_masked(o + <usize>at * PANEL_BYTES, outputBytes, states, rows, s, from, allowed, first, last);
        }
      }
    }
    c++;
    if (c == step) c = step * most;
  }
}
