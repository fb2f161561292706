import { F32Ptr, RopeShape, RopeShapePtr } from "../types";

/**
 * Rotary embedding in place. In each head of x[t] (token rows `stride` floats apart, heads headDim floats apart) the
 * pair (a, b) number i < ropeDim / 2 becomes (a·cos - b·sin, b·cos + a·sin) with cos[t, i] and sin[t, i], tables
 * [tokens][ropeDim / 2]. The pair is (x[i], x[i + ropeDim / 2]), or (x[2i], x[2i + 1]) when interleaved. Components
 * from ropeDim on stay as they are. Tokens begin..end. No alignment is needed; the tables must not overlap x.
 * Multiply and add round separately in every build, so that a pair has the same bits in vector body and tail.
 */
export function rope_f32(x: F32Ptr, cos: F32Ptr, sin: F32Ptr, shape: RopeShapePtr, begin: i32, end: i32): void {
  const s = changetype<RopeShape>(shape);
  const numHeads = s.numHeads;
  const headDim = s.headDim;
  const ropeDim = s.ropeDim;
  const interleaved = s.interleaved != 0;
  const stride = s.stride;
  assert(ropeDim >= 0 && (ropeDim & 1) == 0 && ropeDim <= headDim, "rope_f32: ropeDim must be even and within headDim");
  assert(stride >= numHeads * headDim, "rope_f32: stride must be at least numHeads * headDim");
  const half = ropeDim >> 1;
  for (let t = begin; t < end; t++) {
    const table = (<usize>t * half) << 2;
    for (let h = 0; h < numHeads; h++) {
      const head = x + ((<usize>t * stride + <usize>h * headDim) << 2);
      if (interleaved) rotate_interleaved(head, cos + table, sin + table, half);
      else rotate_half(head, cos + table, sin + table, half);
    }
  }
}

// @ts-ignore: decorator
@inline
function rotate_half(head: usize, cos: usize, sin: usize, half: i32): void {
  const other = head + (<usize>half << 2);
  const wide = half & ~3;
  for (let i = 0; i < wide; i += 4) {
    const at = <usize>i << 2;
    const a_f32x4 = v128.load(head + at);
    const b_f32x4 = v128.load(other + at);
    const cos_f32x4 = v128.load(cos + at);
    const sin_f32x4 = v128.load(sin + at);
    v128.store(head + at, f32x4.sub(f32x4.mul(a_f32x4, cos_f32x4), f32x4.mul(b_f32x4, sin_f32x4)));
    v128.store(other + at, f32x4.add(f32x4.mul(b_f32x4, cos_f32x4), f32x4.mul(a_f32x4, sin_f32x4)));
  }
  for (let i = wide; i < half; i++) {
    const at = <usize>i << 2;
    rotate_pair(head + at, other + at, load<f32>(cos + at), load<f32>(sin + at));
  }
}

// @ts-ignore: decorator
@inline
function rotate_interleaved(head: usize, cos: usize, sin: usize, half: i32): void {
  const wide = half & ~3;
  for (let i = 0; i < wide; i += 4) {
    const at = <usize>i << 2;
    const pairs = head + (at << 1);
    const low_f32x4 = v128.load(pairs);
    const high_f32x4 = v128.load(pairs, 16);
    const a_f32x4 = v128.shuffle<f32>(low_f32x4, high_f32x4, 0, 2, 4, 6);
    const b_f32x4 = v128.shuffle<f32>(low_f32x4, high_f32x4, 1, 3, 5, 7);
    const cos_f32x4 = v128.load(cos + at);
    const sin_f32x4 = v128.load(sin + at);
    const newA_f32x4 = f32x4.sub(f32x4.mul(a_f32x4, cos_f32x4), f32x4.mul(b_f32x4, sin_f32x4));
    const newB_f32x4 = f32x4.add(f32x4.mul(b_f32x4, cos_f32x4), f32x4.mul(a_f32x4, sin_f32x4));
    v128.store(pairs, v128.shuffle<f32>(newA_f32x4, newB_f32x4, 0, 4, 1, 5));
    v128.store(pairs, v128.shuffle<f32>(newA_f32x4, newB_f32x4, 2, 6, 3, 7), 16);
  }
  for (let i = wide; i < half; i++) {
    const at = <usize>i << 2;
    const pair = head + (at << 1);
    rotate_pair(pair, pair + 4, load<f32>(cos + at), load<f32>(sin + at));
  }
}

// @ts-ignore: decorator
@inline
function rotate_pair(first: usize, second: usize, cos: f32, sin: f32): void {
  const a = load<f32>(first);
  const b = load<f32>(second);
  store<f32>(first, a * cos - b * sin);
  store<f32>(second, b * cos + a * sin);
}
