import { exp_f32x4 } from "../math/exp";
import { load_first, madd, store_first } from "../math/simd";
import { F32Ptr } from "../types";

/** 1/n! for n from 11 down to 2. */
const SERIES = memory.data<f32>([
  2.505210838544172e-8, 2.755731922398589e-7, 0.0000027557319223985893, 0.0000248015873015873, 0.0001984126984126984,
  0.001388888888888889, 0.008333333333333333, 0.041666666666666664, 0.16666666666666666, 0.5,
]);

/**
 * x[r, i] = positive · x² + beta · x above 0, and negative · (e^x - 1 - x) + beta · x elsewhere, for i < n, in rows begin..end, which
 * lie `stride` floats apart. From -1 on, e^x - 1 - x is the sum of its series, whose digits the difference would lose.
 */
export function xielu_f32(
  x: F32Ptr,
  n: i32,
  stride: i32,
  positive: f32,
  negative: f32,
  beta: f32,
  begin: i32,
  end: i32,
): void {
  assert(stride >= n, "xielu_f32: stride must be at least n");
  const zero = f32x4.splat(0);
  const one = f32x4.splat(1);
  for (let r = begin; r < end; r++) {
    let at = x + ((<usize>r * stride) << 2);
    for (let left = n; left > 0; left -= 4) {
      const v = load_first(at, left, 0);
      const square = f32x4.mul(v, v);
      const above = f32x4.gt(v, zero);
      const low = f32x4.pmin(v, zero);
      let sum = v128.load32_splat(SERIES);
      for (let i: usize = 4; i < 40; i += 4) sum = madd(sum, low, v128.load32_splat(SERIES + i));
      const far = f32x4.sub(f32x4.sub(exp_f32x4(low), one), low);
      const near = v128.bitselect(f32x4.mul(square, sum), far, f32x4.ge(v, f32x4.splat(-1)));
      const curve = v128.bitselect(
        f32x4.mul(square, f32x4.splat(positive)),
        f32x4.mul(near, f32x4.splat(negative)),
        above,
      );
      store_first(at, left, madd(v, f32x4.splat(beta), curve));
      at += 16;
    }
  }
}
