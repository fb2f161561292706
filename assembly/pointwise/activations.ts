import { ACT_GELU, ACT_GELU_TANH, ACT_RELU, ACT_SIGMOID, ACT_SWISH } from "../layout";
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
  assert(s.outStride >= n && s.gateStride >= n, "activate_f32: strides must be at least n");
  assert(!up || s.upStride >= n, "activate_f32: upStride must be at least n");
  const wide = n & ~3;
  for (let r = begin; r < end; r++) {
    const gateRow = gate + ((<usize>r * s.gateStride) << 2);
    const upRow = up + ((<usize>r * s.upStride) << 2);
    const outRow = out + ((<usize>r * s.outStride) << 2);
    for (let i = 0; i < wide; i += 4) {
      const at = <usize>i << 2;
      activate_first(outRow + at, gateRow + at, up ? upRow + at : 0, s, 4);
    }
    if (wide < n) {
      const at = <usize>wide << 2;
      activate_first(outRow + at, gateRow + at, up ? upRow + at : 0, s, n - wide);
    }
  }
}

/** The first `count` floats, of at most four. Of min and max, pmin and pmax are those that keep a NaN and are one instruction. */
// @ts-ignore: decorator
@inline
function activate_first(out: F32Ptr, gate: F32Ptr, up: F32PtrOrNull, s: ActivationShape, count: i32): void {
  const limited = s.limit > 0;
  const high = v128.load32_splat(changetype<usize>(s), offsetof<ActivationShape>("limit"));
  let x = load_first(gate, count, 0);
  if (limited) x = f32x4.pmin(x, high);
  let y = activation(s.kind, x, v128.load32_splat(changetype<usize>(s), offsetof<ActivationShape>("alpha")));
  if (up) {
    let factor = load_first(up, count, 0);
    if (limited) factor = f32x4.add(f32x4.pmax(f32x4.pmin(factor, high), f32x4.neg(high)), f32x4.splat(1));
    y = f32x4.mul(y, factor);
  }
  store_first(out, count, y);
}

/** act(x), by ACT_SWISH and so on (layout.ts). */
// @ts-ignore: decorator
@inline
function activation(kind: i32, x: v128, alpha: v128): v128 {
  if (kind == ACT_SWISH) return f32x4.mul(x, sigmoid_f32x4(f32x4.mul(x, alpha)));
  if (kind == ACT_SIGMOID) return sigmoid_f32x4(x);
  // (1 + tanh u) / 2 is the sigmoid of 2u, which does not cancel below 0.
  if (kind == ACT_GELU_TANH) {
    const slope = f32x4.add(f32x4.mul(f32x4.mul(x, x), f32x4.splat(GELU_CUBIC)), f32x4.splat(GELU_LINEAR));
    return f32x4.mul(x, sigmoid_f32x4(f32x4.mul(x, slope)));
  }
  if (kind == ACT_GELU) return f32x4.mul(x, normal_cdf_f32x4(x));
  const positive = f32x4.pmax(x, f32x4.splat(0));
  return kind == ACT_RELU ? positive : f32x4.mul(positive, positive);
}
