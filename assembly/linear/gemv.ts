import { madd } from "../math/simd";
import { F32Ptr } from "../types";

// The forms of linear_f32 for one row, which take several panels at once: enough chains to hide the latency of madd,
// and as many streams of weights. Strides are in bytes.

/** out[32] = init[32] + x[k] · w[k, 32] from four panels `wStride` apart: the form of decode. */
// @ts-ignore: decorator
@inline
export function linear_1x32(out: F32Ptr, init: F32Ptr, x: F32Ptr, w: F32Ptr, k: i32, wStride: usize): void {
  let acc0 = v128.load(init);
  let acc1 = v128.load(init, 16);
  let acc2 = v128.load(init, 32);
  let acc3 = v128.load(init, 48);
  let acc4 = v128.load(init, 64);
  let acc5 = v128.load(init, 80);
  let acc6 = v128.load(init, 96);
  let acc7 = v128.load(init, 112);
  let w0 = w;
  let w1 = w0 + wStride;
  let w2 = w1 + wStride;
  let w3 = w2 + wStride;
  let v: v128;
  const end = x + (<usize>k << 2);
  for (const head = x + (<usize>(k & 3) << 2); x != head; x += 4) {
    v = v128.load32_splat(x);
    acc0 = madd(v, v128.load(w0), acc0);
    acc1 = madd(v, v128.load(w0, 16), acc1);
    acc2 = madd(v, v128.load(w1), acc2);
    acc3 = madd(v, v128.load(w1, 16), acc3);
    acc4 = madd(v, v128.load(w2), acc4);
    acc5 = madd(v, v128.load(w2, 16), acc5);
    acc6 = madd(v, v128.load(w3), acc6);
    acc7 = madd(v, v128.load(w3, 16), acc7);
    w0 += 32;
    w1 += 32;
    w2 += 32;
    w3 += 32;
  }
  // Four steps at a time, and branches that are never taken between them, for the reasons in linear_tile.ts.
  while (x != end) {
    v = v128.load32_splat(x);
    acc0 = madd(v, v128.load(w0), acc0);
    acc1 = madd(v, v128.load(w0, 16), acc1);
    acc2 = madd(v, v128.load(w1), acc2);
    acc3 = madd(v, v128.load(w1, 16), acc3);
    acc4 = madd(v, v128.load(w2), acc4);
    acc5 = madd(v, v128.load(w2, 16), acc5);
    acc6 = madd(v, v128.load(w3), acc6);
    acc7 = madd(v, v128.load(w3, 16), acc7);
    if (x == end) break;
    v = v128.load32_splat(x, 4);
    acc0 = madd(v, v128.load(w0, 32), acc0);
    acc1 = madd(v, v128.load(w0, 48), acc1);
    acc2 = madd(v, v128.load(w1, 32), acc2);
    acc3 = madd(v, v128.load(w1, 48), acc3);
    acc4 = madd(v, v128.load(w2, 32), acc4);
    acc5 = madd(v, v128.load(w2, 48), acc5);
    acc6 = madd(v, v128.load(w3, 32), acc6);
    acc7 = madd(v, v128.load(w3, 48), acc7);
    if (x == end) break;
    v = v128.load32_splat(x, 8);
    acc0 = madd(v, v128.load(w0, 64), acc0);
    acc1 = madd(v, v128.load(w0, 80), acc1);
    acc2 = madd(v, v128.load(w1, 64), acc2);
    acc3 = madd(v, v128.load(w1, 80), acc3);
    acc4 = madd(v, v128.load(w2, 64), acc4);
    acc5 = madd(v, v128.load(w2, 80), acc5);
    acc6 = madd(v, v128.load(w3, 64), acc6);
    acc7 = madd(v, v128.load(w3, 80), acc7);
    if (x == end) break;
    v = v128.load32_splat(x, 12);
    acc0 = madd(v, v128.load(w0, 96), acc0);
    acc1 = madd(v, v128.load(w0, 112), acc1);
    acc2 = madd(v, v128.load(w1, 96), acc2);
    acc3 = madd(v, v128.load(w1, 112), acc3);
    acc4 = madd(v, v128.load(w2, 96), acc4);
    acc5 = madd(v, v128.load(w2, 112), acc5);
    acc6 = madd(v, v128.load(w3, 96), acc6);
    acc7 = madd(v, v128.load(w3, 112), acc7);
    x += 16;
    w0 += 128;
    w1 += 128;
    w2 += 128;
    w3 += 128;
  }
  v128.store(out, acc0);
  v128.store(out, acc1, 16);
  v128.store(out, acc2, 32);
  v128.store(out, acc3, 48);
  v128.store(out, acc4, 64);
  v128.store(out, acc5, 80);
  v128.store(out, acc6, 96);
  v128.store(out, acc7, 112);
}

/** out[8] = init[8] + x[k] · w[k, 8]: what is left when panels are taken by twos and fours. */
export function linear_1x8(out: F32Ptr, init: F32Ptr, x: F32Ptr, w: F32Ptr, k: i32): void {
  let acc0 = v128.load(init);
  let acc1 = v128.load(init, 16);
  for (const end = x + (<usize>k << 2); x != end; x += 4) {
    const v = v128.load32_splat(x);
    acc0 = madd(v, v128.load(w), acc0);
    acc1 = madd(v, v128.load(w, 16), acc1);
    w += 32;
  }
  v128.store(out, acc0);
  v128.store(out, acc1, 16);
}
