import { hsum, load_first, madd, store_first } from "../math/simd";
import { F32Ptr, F32PtrOrNull, NormShape, NormShapePtr } from "../types";

/**
 * out[r, i] = (x[r, i] - mean(x[r])) / sqrt(mean((x[r] - mean(x[r]))²) + eps) · gain[i] + bias[i], for rows begin..end.
 * out may be x. bias may be null. Both sums are of 4 lanes by i & 3. No alignment is needed.
 */
export function layer_norm_f32(
  out: F32Ptr,
  x: F32Ptr,
  gain: F32Ptr,
  bias: F32PtrOrNull,
  shape: NormShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<NormShape>(shape);
  const n = s.n;
  assert(n > 0 && s.stride >= n, "layer_norm_f32: stride must be at least n");
  for (let r = begin; r < end; r++) {
    const row = x + ((<usize>r * s.stride) << 2);
    const dst = out + ((<usize>r * s.stride) << 2);

    let sum_f32x4 = f32x4.splat(0);
    for (let i = 0; i < n; i += 4) sum_f32x4 = f32x4.add(sum_f32x4, load_first(row + (<usize>i << 2), n - i, 0));
    const mean = hsum(sum_f32x4) / <f32>n;
    const mean_f32x4 = f32x4.splat(mean);

    // Lanes behind the row are the mean, which adds nothing.
    sum_f32x4 = f32x4.splat(0);
    for (let i = 0; i < n; i += 4) {
      const d_f32x4 = f32x4.sub(load_first(row + (<usize>i << 2), n - i, mean), mean_f32x4);
      sum_f32x4 = madd(d_f32x4, d_f32x4, sum_f32x4);
    }
    const inverse_f32x4 = f32x4.splat(<f32>1 / sqrt<f32>(hsum(sum_f32x4) / <f32>n + s.eps));

    for (let i = 0; i < n; i += 4) {
      const at = <usize>i << 2;
      const z_f32x4 = f32x4.mul(f32x4.sub(load_first(row + at, n - i, 0), mean_f32x4), inverse_f32x4);
      let y_f32x4 = f32x4.mul(z_f32x4, load_first(gain + at, n - i, 0));
      if (bias) y_f32x4 = f32x4.add(y_f32x4, load_first(bias + at, n - i, 0));
      store_first(dst + at, n - i, y_f32x4);
    }
  }
}
