import { FORMAT_F16, FORMAT_Q4, FORMAT_Q8, PAGE, PANEL, QUAD, QUERY_CHUNK, QUERY_HEAD, ROW_STATE } from "../layout";
import { MADD_FUSES } from "../math/simd";
import { AttentionShape } from "../types";

// How attention_f32's scratch is laid out, and what its parts share. In scratch, for TILE_ROWS rows each: states,
// queries, outputs; then one strip of scores and a byte for each key of a page.
//
// A state is ROW_STATE floats: the running max m, four sums, alpha, and as integers the keys [low, high) of the row.
// Queries of a strip of R rows: for each chunk of QUERY_CHUNK components, [R][QUERY_CHUNK].
// Integer queries of a strip of R rows: [R] scales in the first R heads; then for each pair of components, [R] pairs.
// Outputs: [PANEL · ceil(valueDim / PANEL)] a row. Scores: [PAGE] a row.

export const STATE_BYTES: usize = ROW_STATE << 2;
export const STATE_SUMS: usize = 4;
export const STATE_ALPHA: usize = 20;
export const STATE_LOW: usize = 24;
export const STATE_HIGH: usize = 28;

/** Bytes of a row of scores, of a chunk of a query, and of the same components of a key panel. */
export const STRIP_BYTES: usize = PAGE << 2;
export const CHUNK_BYTES: usize = QUERY_CHUNK << 2;
export const KEY_CHUNK_BYTES: usize = (QUERY_CHUNK * PANEL) << 2;

/** Where the scale of a row of integer weights lies, behind them: they take the place of the scores. */
export const WEIGHT_SCALE: usize = PAGE << 1;

/** Rows of the tallest tile of 8 columns whose accumulators and operands fit V8's 15 vector registers. */
// @ts-ignore: decorator
@inline
export function tile_height(): i32 {
  return MADD_FUSES ? 6 : 4;
}

/**
 * Whether three rows take 16 keys or columns at a time. Fused, they need the 12 independent sums and have the registers; an
 * add alone is ready so early that 6 sums do, and the product takes a register.
 */
// @ts-ignore: decorator
@inline
export function takes_3x16(): bool {
  return MADD_FUSES;
}

/** Rows of the tallest strip of any build. */
export const STRIP_ROWS = 6;

/** Scores are kept in units of ln 2, so that a weight is 2^score. */
export const LOG2_E: f64 = 1.4426950408889634;

/** x, or 0 for -Infinity: what is subtracted from scores, so that -Infinity - x is never NaN. */
// @ts-ignore: decorator
@inline
export function reduced(x: f32): f32 {
  return x == f32.NEGATIVE_INFINITY ? <f32>0 : x;
}

/** Whether any page has keys of integers. */
// @ts-ignore: decorator
@inline
export function has_integer_keys(shape: AttentionShape): bool {
  return (shape.formats & ((1 << FORMAT_Q8) | (1 << FORMAT_Q4))) != 0;
}

/** Whether any page has keys of f16. */
// @ts-ignore: decorator
@inline
export function has_half_keys(shape: AttentionShape): bool {
  return (shape.formats & (1 << FORMAT_F16)) != 0;
}

/** Whether all pages have keys and values of f16. */
// @ts-ignore: decorator
@inline
export function has_only_halves(shape: AttentionShape): bool {
  return shape.formats == 17 << FORMAT_F16;
}

/** Bytes of a query of floats in whole chunks. */
// @ts-ignore: decorator
@inline
export function query_bytes(headDim: i32): usize {
  return CHUNK_BYTES * ((headDim + QUERY_CHUNK - 1) / QUERY_CHUNK);
}

/** Bytes of an integer query with its head. */
// @ts-ignore: decorator
@inline
export function query_code_bytes(headDim: i32): usize {
  return <usize>QUERY_HEAD + (<usize>((headDim + QUAD - 1) & -QUAD) << 1);
}

// Where rows of a strip begin and end in the page of the keys from `key` on.

/** The first key of a row's range. */
// @ts-ignore: decorator
@inline
export function row_from(state: usize, key: i32): i32 {
  return max(load<i32>(state, STATE_LOW) - key, 0);
}

/** The key behind the last of a row's range, which is empty unless this is above the first. */
// @ts-ignore: decorator
@inline
export function row_to(state: usize, key: i32): i32 {
  return min(load<i32>(state, STATE_HIGH) - key, PAGE);
}

/** The first key that any row attends; PAGE where there is none. */
// @ts-ignore: decorator
@inline
export function first_key_of_any(states: usize, rows: i32, key: i32): i32 {
  let first = PAGE;
  for (let i = 0; i < rows; i++) {
    const from = row_from(states + STATE_BYTES * i, key);
    if (from < row_to(states + STATE_BYTES * i, key)) first = min(first, from);
  }
  return first;
}

/** The key behind the last that any row attends; 0 where there is none. */
// @ts-ignore: decorator
@inline
export function end_key_of_any(states: usize, rows: i32, key: i32): i32 {
  let last = 0;
  for (let i = 0; i < rows; i++) {
    const to = row_to(states + STATE_BYTES * i, key);
    if (row_from(states + STATE_BYTES * i, key) < to) last = max(last, to);
  }
  return last;
}

/** Whether no row's range begins behind `first`. */
export function begin_together(states: usize, rows: i32, key: i32, first: i32): bool {
  for (let i = 0; i < rows; i++) if (row_from(states + STATE_BYTES * i, key) > first) return false;
  return true;
}

/** Whether no row's range ends before `last`. */
export function end_together(states: usize, rows: i32, key: i32, last: i32): bool {
  for (let i = 0; i < rows; i++) if (row_to(states + STATE_BYTES * i, key) < last) return false;
  return true;
}
