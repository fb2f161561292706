import { F32Ptr, I32Ptr } from "../types";

/**
 * The k largest of x[r, :n], descending, and where they are: values[r, :k] and ids[r, :k], for rows begin..end of x, which
 * lie `stride` floats apart. Of equal ones the lowest id comes first (-0 equals +0), and NaN comes behind all numbers.
 * k = 1 is argmax. No alignment is needed.
 */
export function top_k_f32(
  values: F32Ptr,
  ids: I32Ptr,
  x: F32Ptr,
  n: i32,
  stride: i32,
  k: i32,
  begin: i32,
  end: i32,
): void {
  assert(k > 0 && k <= n && n <= stride, "top_k_f32: k must be within n, and n within stride");
  for (let r = begin; r < end; r++) {
    const to = (<usize>r * k) << 2;
    top_k_row(values + to, ids + to, x + ((<usize>r * stride) << 2), n, k);
  }
}

/** The same of one row: a heap of the best so far, the last of them on top, that only what precedes its top enters. */
export function top_k_row(values: F32Ptr, ids: I32Ptr, x: F32Ptr, n: i32, k: i32): void {
  for (let i = 0; i < k; i++) set(values, ids, i, load<f32>(x + (<usize>i << 2)), i);
  for (let i = (k >> 1) - 1; i >= 0; i--) sink(values, ids, i, k, get_value(values, i), get_id(ids, i));

  let top_f32x4 = v128.load32_splat(values);
  let i = k;
  while (i + 16 <= n) {
    const at = x + (<usize>i << 2);
    const a = f32x4.le(v128.load(at), top_f32x4);
    const b = f32x4.le(v128.load(at, 16), top_f32x4);
    const c = f32x4.le(v128.load(at, 32), top_f32x4);
    const d = f32x4.le(v128.load(at, 48), top_f32x4);
    // What is not below or equal is above, or NaN: of that, as of the rest of the row, take() decides.
    if (!i32x4.all_true(v128.and(v128.and(a, b), v128.and(c, d)))) {
      for (let j = i; j < i + 16; j++) take(values, ids, x, j, k);
      top_f32x4 = v128.load32_splat(values);
    }
    i += 16;
  }
  for (; i < n; i++) take(values, ids, x, i, k);

  // The top is the last of all: it goes to the end, and the heap is one shorter.
  for (let last = k - 1; last > 0; last--) {
    const value = get_value(values, last);
    const id = get_id(ids, last);
    set(values, ids, last, get_value(values, 0), get_id(ids, 0));
    sink(values, ids, 0, last, value, id);
  }
}

/** Whether value a at i comes before value b at j. */
// @ts-ignore: decorator
@inline
function precedes(a: f32, i: i32, b: f32, j: i32): bool {
  if (a > b) return true;
  if (a < b) return false;
  const isNumber = a == a;
  return isNumber == (b == b) ? i < j : isNumber;
}

/** x[i] takes the place of the heap's top if it precedes it. */
// @ts-ignore: decorator
@inline
function take(values: F32Ptr, ids: I32Ptr, x: F32Ptr, i: i32, k: i32): void {
  const value = load<f32>(x + (<usize>i << 2));
  if (precedes(value, i, load<f32>(values), load<i32>(ids))) sink(values, ids, 0, k, value, i);
}

/** Puts a pair into a heap of n pairs at `at` or below it, so that no pair precedes what is above it. */
function sink(values: F32Ptr, ids: I32Ptr, at: i32, n: i32, value: f32, id: i32): void {
  for (;;) {
    let child = 2 * at + 1;
    if (child >= n) break;
    const right = child + 1;
    if (
      right < n &&
      precedes(get_value(values, child), get_id(ids, child), get_value(values, right), get_id(ids, right))
    )
      child = right;
    if (!precedes(value, id, get_value(values, child), get_id(ids, child))) break;
    set(values, ids, at, get_value(values, child), get_id(ids, child));
    at = child;
  }
  set(values, ids, at, value, id);
}

// @ts-ignore: decorator
@inline
function get_value(values: F32Ptr, i: i32): f32 {
  return load<f32>(values + (<usize>i << 2));
}

// @ts-ignore: decorator
@inline
function get_id(ids: I32Ptr, i: i32): i32 {
  return load<i32>(ids + (<usize>i << 2));
}

// @ts-ignore: decorator
@inline
function set(values: F32Ptr, ids: I32Ptr, i: i32, value: f32, id: i32): void {
  store<f32>(values + (<usize>i << 2), value);
  store<i32>(ids + (<usize>i << 2), id);
}
