import { STATE_STRIP } from "../layout";
import { load_first, madd, store_first } from "../math/simd";
import { F32Ptr, LinearAttentionShape, LinearAttentionShapePtr } from "../types";

/**
 * Linear attention: heads begin..end, each with a state S [keyDim, valueDim] instead of keys and values. Row after row:
 *
 *     S = decay · S
 *     S = S + k · (beta · (v - kᵀ S))ᵀ      by the delta rule; without it, S = S + k · (beta · v)ᵀ
 *     out = scale · qᵀ S + skip · v
 *
 * decay is a number of the head or, `perChannel`, one of each component of its keys; beta and skip are numbers of the head, 1 and
 * 0 where they are null. The states before the first row are those at `from`. `group` heads share a query and a key, or
 * heads take them by turns. Rows of q and k lie keyStride floats apart, head after head in
 * each, those of v valueStride, and so on. Sums over components are in ascending order.
 *
 * A state lies in strips of STATE_STRIP columns, [keyDim][STATE_STRIP] each, and what is left of the columns in strips of 4, so
 * that all rows of a call run on a strip while the CPU's nearest cache holds it.
 */
export function linear_attention_f32(
  out: F32Ptr,
  state: F32Ptr,
  q: F32Ptr,
  k: F32Ptr,
  v: F32Ptr,
  shape: LinearAttentionShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<LinearAttentionShape>(shape);
  const stateBytes = (<usize>s.keyDim * ((s.valueDim + 3) & ~3)) << 2;
  for (let head = begin; head < end; head++) {
    const keyHead = s.group ? head / s.group : head % s.keyHeads;
    const from = (<usize>keyHead * s.keyDim) << 2;
    const to = (<usize>head * s.valueDim) << 2;
    let at = <usize>head * stateBytes;
    let column = 0;
    for (; column + STATE_STRIP <= s.valueDim; column += STATE_STRIP) {
      const own = to + (<usize>column << 2);
      wide_strip(out + own, state + at, s.from + at, q + from, k + from, v + own, s, head);
      at += (<usize>s.keyDim * STATE_STRIP) << 2;
    }
    for (; column < s.valueDim; column += 4) {
      const own = to + (<usize>column << 2);
      narrow_strip(out + own, state + at, s.from + at, q + from, k + from, v + own, s, head, s.valueDim - column);
      at += <usize>s.keyDim << 4;
    }
  }
}

/** All rows on 16 columns: four chains of sums. */
function wide_strip(
  out: F32Ptr,
  strip: F32Ptr,
  before: F32Ptr,
  q: F32Ptr,
  k: F32Ptr,
  v: F32Ptr,
  s: LinearAttentionShape,
  head: i32,
): void {
  const bytes = <usize>s.keyDim << 2;
  /** From a component's decay to the next one's. */
  const apart: usize = s.perChannel ? 1 : 0;
  const skip = s.skip ? v128.load32_splat(s.skip + (<usize>head << 2)) : f32x4.splat(0);
  const scale = f32x4.splat(s.scale);
  for (let t = 0; t < s.rows; t++) {
    const decay = decay_at(s, t, head);
    const v0 = v128.load(v);
    const v1 = v128.load(v, 16);
    const v2 = v128.load(v, 32);
    const v3 = v128.load(v, 48);
    let w0 = v0;
    let w1 = v1;
    let w2 = v2;
    let w3 = v3;
    if (s.delta) {
      let h0 = f32x4.splat(0);
      let h1 = h0;
      let h2 = h0;
      let h3 = h0;
      for (let i: usize = 0; i < bytes; i += 4) {
        const row = before + (i << 4);
        const a = v128.load32_splat(decay + i * apart);
        const key = v128.load32_splat(k + i);
        h0 = madd(key, f32x4.mul(a, v128.load(row)), h0);
        h1 = madd(key, f32x4.mul(a, v128.load(row, 16)), h1);
        h2 = madd(key, f32x4.mul(a, v128.load(row, 32)), h2);
        h3 = madd(key, f32x4.mul(a, v128.load(row, 48)), h3);
      }
      w0 = f32x4.sub(v0, h0);
      w1 = f32x4.sub(v1, h1);
      w2 = f32x4.sub(v2, h2);
      w3 = f32x4.sub(v3, h3);
    }
    if (s.beta) {
      const beta = v128.load32_splat(beta_at(s, t, head));
      w0 = f32x4.mul(beta, w0);
      w1 = f32x4.mul(beta, w1);
      w2 = f32x4.mul(beta, w2);
      w3 = f32x4.mul(beta, w3);
    }
    let o0 = f32x4.splat(0);
    let o1 = o0;
    let o2 = o0;
    let o3 = o0;
    for (let i: usize = 0; i < bytes; i += 4) {
      const row = strip + (i << 4);
      const last = before + (i << 4);
      const a = v128.load32_splat(decay + i * apart);
      const key = v128.load32_splat(k + i);
      const query = v128.load32_splat(q + i);
      const s0 = madd(key, w0, f32x4.mul(a, v128.load(last)));
      const s1 = madd(key, w1, f32x4.mul(a, v128.load(last, 16)));
      const s2 = madd(key, w2, f32x4.mul(a, v128.load(last, 32)));
      const s3 = madd(key, w3, f32x4.mul(a, v128.load(last, 48)));
      v128.store(row, s0);
      v128.store(row, s1, 16);
      v128.store(row, s2, 32);
      v128.store(row, s3, 48);
      o0 = madd(query, s0, o0);
      o1 = madd(query, s1, o1);
      o2 = madd(query, s2, o2);
      o3 = madd(query, s3, o3);
    }
    v128.store(out, madd(skip, v0, f32x4.mul(scale, o0)));
    v128.store(out, madd(skip, v1, f32x4.mul(scale, o1)), 16);
    v128.store(out, madd(skip, v2, f32x4.mul(scale, o2)), 32);
    v128.store(out, madd(skip, v3, f32x4.mul(scale, o3)), 48);
    q += <usize>s.keyStride << 2;
    k += <usize>s.keyStride << 2;
    v += <usize>s.valueStride << 2;
    out += <usize>s.outStride << 2;
    before = strip;
  }
}

/** All rows on the next 4 columns, of which the head has `columns`. */
function narrow_strip(
  out: F32Ptr,
  strip: F32Ptr,
  before: F32Ptr,
  q: F32Ptr,
  k: F32Ptr,
  v: F32Ptr,
  s: LinearAttentionShape,
  head: i32,
  columns: i32,
): void {
  const bytes = <usize>s.keyDim << 2;
  const apart: usize = s.perChannel ? 1 : 0;
  const skip = s.skip ? v128.load32_splat(s.skip + (<usize>head << 2)) : f32x4.splat(0);
  for (let t = 0; t < s.rows; t++) {
    const decay = decay_at(s, t, head);
    const value = load_first(v, columns, 0);
    let written = value;
    if (s.delta) {
      let held = f32x4.splat(0);
      for (let i: usize = 0; i < bytes; i += 4) {
        const kept = f32x4.mul(v128.load32_splat(decay + i * apart), v128.load(before + (i << 2)));
        held = madd(v128.load32_splat(k + i), kept, held);
      }
      written = f32x4.sub(value, held);
    }
    if (s.beta) written = f32x4.mul(v128.load32_splat(beta_at(s, t, head)), written);
    let sum = f32x4.splat(0);
    for (let i: usize = 0; i < bytes; i += 4) {
      const kept = f32x4.mul(v128.load32_splat(decay + i * apart), v128.load(before + (i << 2)));
      const next = madd(v128.load32_splat(k + i), written, kept);
      v128.store(strip + (i << 2), next);
      sum = madd(v128.load32_splat(q + i), next, sum);
    }
    store_first(out, columns, madd(skip, value, f32x4.mul(f32x4.splat(s.scale), sum)));
    q += <usize>s.keyStride << 2;
    k += <usize>s.keyStride << 2;
    v += <usize>s.valueStride << 2;
    out += <usize>s.outStride << 2;
    before = strip;
  }
}

// @ts-ignore: decorator
@inline
function decay_at(s: LinearAttentionShape, t: i32, head: i32): F32Ptr {
  return s.decay + (<usize>(t * s.decayStride + head * (s.perChannel ? s.keyDim : 1)) << 2);
}

// @ts-ignore: decorator
@inline
function beta_at(s: LinearAttentionShape, t: i32, head: i32): F32Ptr {
  return s.beta + (<usize>(t * s.betaStride + head) << 2);
}
