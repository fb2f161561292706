// @ts-nocheck: AssemblyScript, compiled by peak-loops.ts.
// Loops that show what one core can do at most, from the same compiler as the kernels.

/** Twelve independent chains of acc = acc · a + b, fused: 96 floating-point operations per round. */
export function fma_peak(rounds: i32, a: f32, b: f32): f32 {
  const a_f32x4 = f32x4.splat(a);
  const b_f32x4 = f32x4.splat(b);
  let acc0 = b_f32x4;
  let acc1 = b_f32x4;
  let acc2 = b_f32x4;
  let acc3 = b_f32x4;
  let acc4 = b_f32x4;
  let acc5 = b_f32x4;
  let acc6 = b_f32x4;
  let acc7 = b_f32x4;
  let acc8 = b_f32x4;
  let acc9 = b_f32x4;
  let acc10 = b_f32x4;
  let acc11 = b_f32x4;
  for (let i = 0; i < rounds; i++) {
    acc0 = fma(acc0, a_f32x4, b_f32x4);
    acc1 = fma(acc1, a_f32x4, b_f32x4);
    acc2 = fma(acc2, a_f32x4, b_f32x4);
    acc3 = fma(acc3, a_f32x4, b_f32x4);
    acc4 = fma(acc4, a_f32x4, b_f32x4);
    acc5 = fma(acc5, a_f32x4, b_f32x4);
    acc6 = fma(acc6, a_f32x4, b_f32x4);
    acc7 = fma(acc7, a_f32x4, b_f32x4);
    acc8 = fma(acc8, a_f32x4, b_f32x4);
    acc9 = fma(acc9, a_f32x4, b_f32x4);
    acc10 = fma(acc10, a_f32x4, b_f32x4);
    acc11 = fma(acc11, a_f32x4, b_f32x4);
  }
  acc0 = f32x4.add(f32x4.add(acc0, acc1), f32x4.add(acc2, acc3));
  acc4 = f32x4.add(f32x4.add(acc4, acc5), f32x4.add(acc6, acc7));
  acc8 = f32x4.add(f32x4.add(acc8, acc9), f32x4.add(acc10, acc11));
  return f32x4.extract_lane(f32x4.add(f32x4.add(acc0, acc4), acc8), 0);
}

/** In the simd build a multiplication and an addition, so that the same source gives the peak of both builds. */
function fma(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

/**
 * Twelve independent chains of integer products. In the relaxed build they are of 8 and 7 bits (16 products and 16
 * additions per instruction); in the simd build of 16 bits (8 and 8), with the running sum as an operand of the next
 * product, because a compiler computes a product of two constants only once.
 */
export function dot_peak(rounds: i32, a: i32, b: i32): i32 {
  const a_i32x4 = i32x4.splat(a);
  const b_i32x4 = i32x4.splat(b);
  let acc0 = b_i32x4;
  let acc1 = b_i32x4;
  let acc2 = b_i32x4;
  let acc3 = b_i32x4;
  let acc4 = b_i32x4;
  let acc5 = b_i32x4;
  let acc6 = b_i32x4;
  let acc7 = b_i32x4;
  let acc8 = b_i32x4;
  let acc9 = b_i32x4;
  let acc10 = b_i32x4;
  let acc11 = b_i32x4;
  for (let i = 0; i < rounds; i++) {
    acc0 = dot(acc0, a_i32x4, b_i32x4);
    acc1 = dot(acc1, a_i32x4, b_i32x4);
    acc2 = dot(acc2, a_i32x4, b_i32x4);
    acc3 = dot(acc3, a_i32x4, b_i32x4);
    acc4 = dot(acc4, a_i32x4, b_i32x4);
    acc5 = dot(acc5, a_i32x4, b_i32x4);
    acc6 = dot(acc6, a_i32x4, b_i32x4);
    acc7 = dot(acc7, a_i32x4, b_i32x4);
    acc8 = dot(acc8, a_i32x4, b_i32x4);
    acc9 = dot(acc9, a_i32x4, b_i32x4);
    acc10 = dot(acc10, a_i32x4, b_i32x4);
    acc11 = dot(acc11, a_i32x4, b_i32x4);
  }
  acc0 = i32x4.add(i32x4.add(acc0, acc1), i32x4.add(acc2, acc3));
  acc4 = i32x4.add(i32x4.add(acc4, acc5), i32x4.add(acc6, acc7));
  acc8 = i32x4.add(i32x4.add(acc8, acc9), i32x4.add(acc10, acc11));
  return i32x4.extract_lane(i32x4.add(i32x4.add(acc0, acc4), acc8), 0);
}

function dot(acc: v128, a: v128, b: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_dot_i8x16_i7x16_add_s(a, b, acc);
  return i32x4.add(i32x4.dot_i16x8_s(acc, a), b);
}

/** Reads `bytes` bytes (a multiple of 128) in ascending order. */
export function stream_1(at: usize, bytes: usize): i32 {
  let a = i32x4.splat(0);
  let b = a;
  for (const end = at + bytes; at < end; at += 128) {
    a = v128.or(a, v128.or(v128.load(at), v128.load(at, 16)));
    b = v128.or(b, v128.or(v128.load(at, 32), v128.load(at, 48)));
    a = v128.or(a, v128.or(v128.load(at, 64), v128.load(at, 80)));
    b = v128.or(b, v128.or(v128.load(at, 96), v128.load(at, 112)));
  }
  return i32x4.extract_lane(v128.or(a, b), 0);
}

/** Reads the same bytes as four interleaved streams (`bytes` a multiple of 128), which is faster on some machines. */
export function stream_4(at: usize, bytes: usize): i32 {
  const part = bytes >> 2;
  let at1 = at + part;
  let at2 = at1 + part;
  let at3 = at2 + part;
  let a = i32x4.splat(0);
  let b = a;
  for (const end = at1; at < end; at += 32) {
    a = v128.or(a, v128.or(v128.load(at), v128.load(at, 16)));
    b = v128.or(b, v128.or(v128.load(at1), v128.load(at1, 16)));
    a = v128.or(a, v128.or(v128.load(at2), v128.load(at2, 16)));
    b = v128.or(b, v128.or(v128.load(at3), v128.load(at3, 16)));
    at1 += 32;
    at2 += 32;
    at3 += 32;
  }
  return i32x4.extract_lane(v128.or(a, b), 0);
}
