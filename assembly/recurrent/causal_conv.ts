import { sigmoid_f32x4 } from "../math/sigmoid";
import { madd } from "../math/simd";
import { ConvShape, ConvShapePtr, F32Ptr, F32PtrOrNull } from "../types";

/**
 * A causal convolution of each channel along the rows of a sequence, for channels begin..end:
 *
 *     u[t, c] = before[t, c] · x[t, c]
 *     y[t, c] = bias[c] + Σ weights[j, c] · u[t + j - (taps - 1), c] over j < taps
 *     out[t, c] = after[t, c] · act(y[t, c])
 *
 * where act is SiLU or nothing, and a factor or bias that is null is left out. `from` [taps - 1][channels] has the u of the rows
 * before the first one, and state is left with those before the next. x, before and after lie xStride floats apart from row to
 * row, out outStride, and out is none of them. channels, begin and end are multiples of 4.
 */
export function causal_conv_f32(
  out: F32Ptr,
  x: F32Ptr,
  state: F32Ptr,
  weights: F32Ptr,
  bias: F32PtrOrNull,
  shape: ConvShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<ConvShape>(shape);
  assert(!(s.channels & 3) && !(begin & 3) && !(end & 3), "causal_conv_f32: channels must be a multiple of 4");
  const last = s.taps - 1;
  const apart = <usize>s.channels << 2;
  for (let t = 0; t < s.rows; t++) {
    const row = (<usize>t * s.xStride) << 2;
    const outRow = out + ((<usize>t * s.outStride) << 2);
    for (let c = begin; c < end; c += 4) {
      const at = <usize>c << 2;
      let y = bias ? v128.load(bias + at) : f32x4.splat(0);
      for (let j = 0; j <= last; j++)
        y = madd(input_at(x, s, t + j - last, at), v128.load(weights + <usize>j * apart + at), y);
      if (s.silu) y = f32x4.mul(y, sigmoid_f32x4(y));
      if (s.after) y = f32x4.mul(y, v128.load(s.after + row + at));
      v128.store(outRow + at, y);
    }
  }
  // In ascending order: where `from` is the state, what moves within it is read before it is overwritten.
  for (let j = 0; j < last; j++)
    for (let c = begin; c < end; c += 4) {
      const at = <usize>c << 2;
      v128.store(state + <usize>j * apart + at, input_at(x, s, s.rows + j - last, at));
    }
}

/** u of row t, which lies in `from` where t is below 0. */
// @ts-ignore: decorator
@inline
function input_at(x: F32Ptr, s: ConvShape, t: i32, at: usize): v128 {
  if (t < 0) return v128.load(s.from + (<usize>(s.taps - 1 + t) * s.channels << 2) + at);
  const row = ((<usize>t * s.xStride) << 2) + at;
  const given = v128.load(x + row);
  return s.before ? f32x4.mul(given, v128.load(s.before + row)) : given;
}
