import { hsum, madd } from "../math/simd";
import { F32Ptr } from "../types";

/**
 * out[r, :n] = x[r, :n] / sqrt(mean(x[r]²) + eps) · gain[:n], for rows begin..end.
 * out may be x. Rows lie `stride` floats apart in both.
 */
export function rms_norm_f32(
  out: F32Ptr,
  x: F32Ptr,
  gain: F32Ptr,
  n: i32,
  stride: i32,
  eps: f32,
  begin: i32,
  end: i32,
): void {
  assert(n > 0 && stride >= n, "rms_norm_f32: stride must be at least n");
  const wide = n & ~3;
  for (let r = begin; r < end; r++) {
    const row = x + ((<usize>r * stride) << 2);
    const dst = out + ((<usize>r * stride) << 2);

    let acc = f32x4.splat(0);
    for (let i = 0; i < wide; i += 4) {
      const v = v128.load(row + (<usize>i << 2));
      acc = madd(v, v, acc);
    }
    let sum = hsum(acc);
    for (let i = wide; i < n; i++) {
      const v = load<f32>(row + (<usize>i << 2));
      sum += v * v;
    }

    const inverse = <f32>1 / sqrt<f32>(sum / <f32>n + eps);
    const inverse_f32x4 = f32x4.splat(inverse);
    for (let i = 0; i < wide; i += 4) {
      const at = <usize>i << 2;
      const scaled_f32x4 = f32x4.mul(v128.load(row + at), inverse_f32x4);
      v128.store(dst + at, f32x4.mul(scaled_f32x4, v128.load(gain + at)));
    }
    for (let i = wide; i < n; i++) {
      const at = <usize>i << 2;
      store<f32>(dst + at, load<f32>(row + at) * inverse * load<f32>(gain + at));
    }
  }
}
