import { load_first, madd, store_first } from "../math/simd";
import { tanh_f32x4 } from "../math/exp";
import { F32Ptr } from "../types";

// The residual stream and the logits.

/** out[r, i] = x[r, i] + scale · y[r, i], rows of n floats side by side, begin..end. out may be x or y. */
export function add_scaled_f32(
  out: F32Ptr,
  x: F32Ptr,
  y: F32Ptr,
  n: i32,
  scale: f32,
  begin: i32,
  end: i32,
): void {
  const scale_f32x4 = f32x4.splat(scale);
  let at = (<usize>begin * n) << 2;
  for (let left = (end - begin) * n; left > 0; left -= 4) {
    const sum_f32x4 = madd(load_first(y + at, left, 0), scale_f32x4, load_first(x + at, left, 0));
    store_first(out + at, left, sum_f32x4);
    at += 16;
  }
}

/**
 * x[r, i] = softcap · tanh(scale · x[r, i] / softcap) for i < n, or scale · x[r, i] where softcap is 0, in rows begin..end,
 * which lie `stride` floats apart.
 */
export function cap_logits_f32(
  x: F32Ptr,
  n: i32,
  stride: i32,
  scale: f32,
  softcap: f32,
  begin: i32,
  end: i32,
): void {
  assert(stride >= n, "cap_logits_f32: stride must be at least n");
  const scale_f32x4 = f32x4.splat(scale);
  const softcap_f32x4 = f32x4.splat(softcap);
  for (let r = begin; r < end; r++) {
    let at = x + ((<usize>r * stride) << 2);
    for (let left = n; left > 0; left -= 4) {
      let v = f32x4.mul(load_first(at, left, 0), scale_f32x4);
      if (softcap != 0) v = f32x4.mul(tanh_f32x4(f32x4.div(v, softcap_f32x4)), softcap_f32x4);
      store_first(at, left, v);
      at += 16;
    }
  }
}

/**
 * x[r, i] = max(-limit, min(x[r, i], limit)) for i < n, in rows begin..end, which lie `stride` floats apart. A NaN stays one: of
 * min and max, pmin and pmax are those that keep it.
 */
export function limit_f32(x: F32Ptr, n: i32, stride: i32, limit: f32, begin: i32, end: i32): void {
  assert(stride >= n && limit >= 0, "limit_f32: stride must be at least n, and the limit not negative");
  const high = f32x4.splat(limit);
  const low = f32x4.neg(high);
  for (let r = begin; r < end; r++) {
    let at = x + ((<usize>r * stride) << 2);
    for (let left = n; left > 0; left -= 4) {
      store_first(at, left, f32x4.pmax(f32x4.pmin(load_first(at, left, 0), high), low));
      at += 16;
    }
  }
}
