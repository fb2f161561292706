import { exp_f32x4 } from "../math/exp";
import { sigmoid_f32x4 } from "../math/sigmoid";
import { madd } from "../math/simd";
import { softplus_f32x4 } from "../math/softplus";
import { ChannelScanShape, ChannelScanShapePtr, F32Ptr } from "../types";

/** 1/9 to 1/2. */
const NINTHS = memory.data<f32>([
  0.1111111111111111, 0.125, 0.14285714285714285, 0.16666666666666666, 0.2, 0.25, 0.3333333333333333, 0.5,
]);

/**
 * Channels begin..end, each with a state S [stateDim] of its own, row after row:
 *
 *     S[i] = exp(-rate[i, c] · length) · S[i] + k[t, i] · w
 *     out[t, c] = Σ q[t, i] · S[i] + skip[c] · x[t, c]
 *
 * where length is softplus(step[t, c]) and w is length · x[t, c]; or with `write`, length is sigmoid(step[t, c]) and w is
 * sigmoid(write[t, c]) · x[t, c], times √(1 - exp(-2 · rate · length)), which keeps the size of what is added up, but for a row that is
 * the `first` of its sequence. q and k that are null are 1, and then stateDim is 1; skip that is null is 0. The states before the first
 * row are those at `from`; they, those that are left at `state`, and rates lie in [stateDim][channels]. Rows of x and out lie
 * stride floats apart, those of step and write stepStride, and those of q and k keyStride. channels, begin and end are multiples of 4.
 * Sums are in ascending order.
 */
export function channel_scan_f32(
  out: F32Ptr,
  state: F32Ptr,
  x: F32Ptr,
  step: F32Ptr,
  shape: ChannelScanShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<ChannelScanShape>(shape);
  assert(!(s.channels & 3) && !(begin & 3) && !(end & 3), "channel_scan_f32: channels must be a multiple of 4");
  assert(s.k || s.stateDim == 1, "channel_scan_f32: stateDim must be 1 without keys");
  const apart = <usize>s.channels << 2;
  for (let c = begin; c < end; c += 4) {
    const at = <usize>c << 2;
    const skip = s.skip ? v128.load(s.skip + at) : f32x4.splat(0);
    let before = s.from;
    for (let t = 0; t < s.rows; t++) {
      const row = ((<usize>t * s.stride) << 2) + at;
      const stepRow = ((<usize>t * s.stepStride) << 2) + at;
      const keyRow = (<usize>t * s.keyStride) << 2;
      const value = v128.load(x + row);
      const given = v128.load(step + stepRow);
      let length: v128;
      let written: v128;
      if (s.write) {
        length = sigmoid_f32x4(given);
        written = f32x4.mul(sigmoid_f32x4(v128.load(s.write + stepRow)), value);
        if (t > 0 || !s.first) written = f32x4.mul(written, lost_f32x4(f32x4.mul(v128.load(s.rate + at), length)));
      } else {
        length = softplus_f32x4(given);
        written = f32x4.mul(length, value);
      }
      let sum = f32x4.splat(0);
      for (let i = 0; i < s.stateDim; i++) {
        const own = <usize>i * apart + at;
        const component = keyRow + (<usize>i << 2);
        const decay = exp_f32x4(f32x4.neg(f32x4.mul(v128.load(s.rate + own), length)));
        const kept = f32x4.mul(decay, v128.load(before + own));
        const next = s.k ? madd(v128.load32_splat(s.k + component), written, kept) : f32x4.add(kept, written);
        v128.store(state + own, next);
        sum = s.q ? madd(v128.load32_splat(s.q + component), next, sum) : next;
      }
      v128.store(out + row, s.skip ? madd(skip, value, sum) : sum);
      before = state;
    }
  }
}

/** √(1 - e^(-2x)) for x of at least 0: by its series below ¼, where the difference has lost digits. */
// @ts-ignore: decorator
@inline
function lost_f32x4(x: v128): v128 {
  const one = f32x4.splat(1);
  const twice = f32x4.add(x, x);
  // 1 - z/2·(1 - z/3·(1 - ...)), times z.
  let p = one;
  for (let i: usize = 0; i < 32; i += 4)
    p = f32x4.sub(one, f32x4.mul(f32x4.mul(twice, v128.load32_splat(NINTHS + i)), p));
  const far = f32x4.sub(one, exp_f32x4(f32x4.neg(twice)));
  return f32x4.sqrt(v128.bitselect(f32x4.mul(twice, p), far, f32x4.lt(twice, f32x4.splat(0.5))));
}
