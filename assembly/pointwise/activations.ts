import { ACT_GELU, ACT_GELU_TANH, ACT_RELU, ACT_SWISH } from "../layout";
import { normal_cdf_f32x4 } from "../math/erf";
import { sigmoid_f32x4 } from "../math/sigmoid";
import { load_first, store_first } from "../math/simd";
import { ActivationShape, ActivationShapePtr, F32Ptr, F32PtrOrNull } from "../types";

/** 2·√(2/π), and the same times 0.044715: what the sigmoid of GELU's tanh form is of. */
const GELU_LINEAR: f32 = 1.5957691216057308;
const GELU_CUBIC: f32 = 0.07135481282722938;

/**
 * out[r, i] = act(gate[r, i]) · up[r, i] for rows begin..end, or act(gate[r, i]) where up is null. With a `limit` above 0, gate
 * is min(gate, limit) and up is 1 + max(-limit, min(up, limit)). out may be gate or up at the same stride; gate and up may
 * be halves of the same rows. Element by element: NaN where gate or up has one, and nowhere else.
 */
export function activate_f32(
  out: F32Ptr,
  gate: F32Ptr,
  up: F32PtrOrNull,
  shape: ActivationShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<ActivationShape>(shape);
  const n = s.n;
  const kind = s.kind;
  const limit = s.limit;
  assert(s.outStride >= n && s.gateStride >= n, "activate_f32: strides must be at least n");
  assert(!up || s.upStride >= n, "activate_f32: upStride must be at least n");
  const alpha_f32x4 = f32x4.splat(s.alpha);
  const high_f32x4 = f32x4.splat(limit);
  const low_f32x4 = f32x4.splat(-limit);
  for (let r = begin; r < end; r++) {
    const gateRow = gate + ((<usize>r * s.gateStride) << 2);
    const upRow = up + ((<usize>r * s.upStride) << 2);
    const outRow = out + ((<usize>r * s.outStride) << 2);
    for (let i = 0; i < n; i += 4) {
      const at = <usize>i << 2;
      let x_f32x4 = load_first(gateRow + at, n - i, 0);
      if (limit > 0) x_f32x4 = f32x4.min(x_f32x4, high_f32x4);
      let y_f32x4 = activation(kind, x_f32x4, alpha_f32x4);
      if (up) {
        let up_f32x4 = load_first(upRow + at, n - i, 0);
        if (limit > 0)
          up_f32x4 = f32x4.add(f32x4.max(f32x4.min(up_f32x4, high_f32x4), low_f32x4), f32x4.splat(1));
        y_f32x4 = f32x4.mul(y_f32x4, up_f32x4);
      }
      store_first(outRow + at, n - i, y_f32x4);
    }
  }
}

/** act(x), by ACT_SWISH and so on (layout.ts). */
// @ts-ignore: decorator
@inline
function activation(kind: i32, x: v128, alpha: v128): v128 {
  if (kind == ACT_SWISH) return f32x4.mul(x, sigmoid_f32x4(f32x4.mul(x, alpha)));
  // (1 + tanh u) / 2 is the sigmoid of 2u, which does not cancel below 0.
  if (kind == ACT_GELU_TANH) {
    const slope = f32x4.add(f32x4.mul(f32x4.mul(x, x), f32x4.splat(GELU_CUBIC)), f32x4.splat(GELU_LINEAR));
    return f32x4.mul(x, sigmoid_f32x4(f32x4.mul(x, slope)));
  }
  if (kind == ACT_GELU) return f32x4.mul(x, normal_cdf_f32x4(x));
  const positive = f32x4.max(x, f32x4.splat(0));
  return kind == ACT_RELU ? positive : f32x4.mul(positive, positive);
}
