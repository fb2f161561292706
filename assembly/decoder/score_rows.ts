import { SCORE_DOT, SCORE_EUCLIDEAN, SCORE_INT8, SCORE_MANHATTAN } from "../layout";
import { hsum, madd } from "../math/simd";
import { F32Ptr, F32PtrOrNull, ScoreShape, ScoreShapePtr, U8Ptr } from "../types";

/**
 * scores[q, r] = score(queries[q], rows[r]) · factors[r], for rows begin..end; rows of scores lie `stride` floats apart, and without
 * factors they are 1. By `mode`: the dot product of floats; minus their Euclidean or Manhattan distance; the dot product of integers,
 * exact, rounded once; dimensions - 2·(bits that differ), the dot product of bits that stand for -1 and 1.
 *
 * A row has `rowBytes` bytes with zeros behind its dimensions: float32, a multiple of 64 bytes; int8 or bits, a multiple of 16. A query
 * is the same, but int16 beside int8. Floats are summed in 16 parts by i mod 16, in ascending order, and these in pairs that lie 8
 * apart, then 4, 2 and 1.
 */
export function score_rows(
  scores: F32Ptr,
  queries: U8Ptr,
  rows: U8Ptr,
  factors: F32PtrOrNull,
  shape: ScoreShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<ScoreShape>(shape);
  const mode = s.mode;
  const bytes = <usize>s.rowBytes;
  assert((bytes & 15) == 0 && (mode >= SCORE_INT8 || (bytes & 63) == 0), "score_rows: rows must be whole v128");
  // A row stays in the nearest cache for all queries.
  for (let r = begin; r < end; r++) {
    const b = rows + bytes * r;
    let a = queries;
    let out = scores + (<usize>r << 2);
    for (let q = 0; q < s.queries; q++) {
      let value: f32;
      let acc0 = i32x4.splat(0);
      let acc1 = acc0;
      if (mode >= SCORE_INT8) {
        if (mode == SCORE_INT8)
          for (let i: usize = 0; i < bytes; i += 16) {
            acc0 = i32x4.add(acc0, i32x4.dot_i16x8_s(v128.load(a + 2 * i), v128.load_ext<i8>(b + i)));
            acc1 = i32x4.add(acc1, i32x4.dot_i16x8_s(v128.load(a + 2 * i, 16), v128.load_ext<i8>(b + i, 8)));
          }
        else
          for (let i: usize = 0; i < bytes; i += 16) {
            const differing = i8x16.popcnt(v128.xor(v128.load(a + i), v128.load(b + i)));
            acc0 = i32x4.add(acc0, i32x4.extadd_pairwise_i16x8_u(i16x8.extadd_pairwise_i8x16_u(differing)));
          }
        acc0 = i32x4.add(acc0, acc1);
        acc0 = i32x4.add(acc0, v128.shuffle<i32>(acc0, acc0, 2, 3, 0, 1));
        const sum = i32x4.extract_lane(acc0, 0) + i32x4.extract_lane(acc0, 1);
        value = <f32>(mode == SCORE_INT8 ? sum : s.dimensions - 2 * sum);
      } else {
        let acc2 = acc0;
        let acc3 = acc0;
        for (let i: usize = 0; i < bytes; i += 64) {
          acc0 = add_term(mode, v128.load(a + i), v128.load(b + i), acc0);
          acc1 = add_term(mode, v128.load(a + i, 16), v128.load(b + i, 16), acc1);
          acc2 = add_term(mode, v128.load(a + i, 32), v128.load(b + i, 32), acc2);
          acc3 = add_term(mode, v128.load(a + i, 48), v128.load(b + i, 48), acc3);
        }
        value = hsum(f32x4.add(f32x4.add(acc0, acc2), f32x4.add(acc1, acc3)));
        if (mode == SCORE_EUCLIDEAN) value = sqrt<f32>(value);
        if (mode != SCORE_DOT) value = -value;
      }
      store<f32>(out, factors ? value * load<f32>(factors + (<usize>r << 2)) : value);
      out += <usize>s.stride << 2;
      a += mode == SCORE_INT8 ? 2 * bytes : bytes;
    }
  }
}

/** acc + a·b, or + |a - b| times itself or 1. */
// @ts-ignore: decorator
@inline
function add_term(mode: i32, a: v128, b: v128, acc: v128): v128 {
  if (mode != SCORE_DOT) {
    a = f32x4.abs(f32x4.sub(a, b));
    b = mode == SCORE_MANHATTAN ? f32x4.splat(1) : a;
  }
  return madd(a, b, acc);
}
