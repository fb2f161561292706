import { load_first, madd, store_first } from "../math/simd";
import { F32Ptr, I32Ptr } from "../types";

// Rows on their way to an expert and back. A slot is the number of a choice that route_f32 made: token · topK + place. The
// host lists the slots of each expert, so that an expert is one product of all rows that chose it.

/** out[i, :n] = x[slots[i] / topK, :n], for i in begin..end. Bits are copied. out must not overlap x. */
export function gather_rows_f32(
  out: F32Ptr,
  x: F32Ptr,
  slots: I32Ptr,
  topK: i32,
  n: i32,
  begin: i32,
  end: i32,
): void {
  const bytes = <usize>n << 2;
  for (let i = begin; i < end; i++) {
    const token = load<i32>(slots + (<usize>i << 2)) / topK;
    memory.copy(out + bytes * i, x + bytes * token, bytes);
  }
}

/**
 * out[slots[i] / topK, :n] += weights[slots[i]] · y[i, :n], for i in begin..end, in ascending order. Called for one expert
 * after the other, it adds up each token's experts in ascending order, whatever other tokens there are.
 */
export function scatter_rows_f32(
  out: F32Ptr,
  y: F32Ptr,
  weights: F32Ptr,
  slots: I32Ptr,
  topK: i32,
  n: i32,
  begin: i32,
  end: i32,
): void {
  const bytes = <usize>n << 2;
  for (let i = begin; i < end; i++) {
    const slot = load<i32>(slots + (<usize>i << 2));
    const weight_f32x4 = v128.load32_splat(weights + (<usize>slot << 2));
    let to = out + bytes * (slot / topK);
    let from = y + bytes * i;
    for (let left = n; left > 0; left -= 4) {
      store_first(to, left, madd(load_first(from, left, 0), weight_f32x4, load_first(to, left, 0)));
      to += 16;
      from += 16;
    }
  }
}
