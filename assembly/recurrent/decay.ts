import { exp_f32x4 } from "../math/exp";
import { load_first, store_first } from "../math/simd";
import { softplus_f32x4 } from "../math/softplus";
import { DecayShape, DecayShapePtr, F32Ptr, F32PtrOrNull } from "../types";

/**
 * How much of a state is kept at each token, and how long its step is, for rows begin..end:
 *
 *     step[r, i] = max(low, min(high, softplus(x[r, i] + bias[i])))
 *     decay[r, i] = exp(-rate[i] · step[r, i])
 *
 * with rates of at least 0. Rows of x lie xStride floats apart, those of decay and step outStride; step may be null. Element by
 * element: NaN where x has one, and nowhere else.
 */
export function decay_f32(
  decay: F32Ptr,
  step: F32PtrOrNull,
  x: F32Ptr,
  bias: F32Ptr,
  rate: F32Ptr,
  shape: DecayShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<DecayShape>(shape);
  assert(s.xStride >= s.n && s.outStride >= s.n, "decay_f32: strides must be at least n");
  const low = f32x4.splat(s.low);
  const high = f32x4.splat(s.high);
  for (let r = begin; r < end; r++) {
    const row = x + ((<usize>r * s.xStride) << 2);
    const outRow = (<usize>r * s.outStride) << 2;
    for (let i = 0; i < s.n; i += 4) {
      const at = <usize>i << 2;
      const count = s.n - i;
      const given = f32x4.add(load_first(row + at, count, 0), load_first(bias + at, count, 0));
      const length = f32x4.pmax(f32x4.pmin(softplus_f32x4(given), high), low);
      if (step) store_first(step + outRow + at, count, length);
      const lost = f32x4.mul(load_first(rate + at, count, 0), length);
      store_first(decay + outRow + at, count, exp_f32x4(f32x4.neg(lost)));
    }
  }
}
