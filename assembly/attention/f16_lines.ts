import { load_even, load_odd } from "../linear/f16_skinny";
import { F32Ptr } from "../types";
import { CHUNK_BYTES, STATE_ALPHA, STRIP_BYTES } from "./state";

// What the tiles of attention on pages of f16 share. As in linear/f16_skinny.ts, columns 0, 2, 4, 6 and 1, 3, 5, 7 have
// accumulators of their own, and a half in place of a float32 is the number times 2^-112, for which queries and weights
// come times 2^112. Both factors only change exponents, so that every product, and with it every sum, has the bits that it
// has on widened pages.
//
// This is wrong for an infinity or NaN: a tile that has read one returns 1, and its results are computed from widened
// halves. Subnormal halves are subnormal float32 here: right, and slow on some processors, see has_many_subnormals.

/** Bytes of a panel of keys that a chunk of a query is multiplied with. */
export const F16_CHUNK_BYTES: usize = CHUNK_BYTES << 2;

/** Twice the largest finite half, in pairs: above it are infinities and NaN, whatever their sign. */
const FINITE = memory.data<u32>([0xf7fff7ff]);

/** The largest of all halves that any row had, doubled, which drops their signs. */
// @ts-ignore: decorator
@inline
export function note(seen: v128, line: v128): v128 {
  return i16x8.max_u(seen, i16x8.add(line, line));
}

// @ts-ignore: decorator
@inline
export function has_non_finite(seen: v128): bool {
  return v128.any_true(i16x8.sub_sat_u(seen, v128.load32_splat(FINITE)));
}

/** One element of row `row` of A, broadcast. */
// @ts-ignore: decorator
@inline
export function element_of(values: bool, row: i32, a: F32Ptr): v128 {
  if (row == 1) return values ? v128.load32_splat(a, STRIP_BYTES) : v128.load32_splat(a, CHUNK_BYTES);
  if (row == 2) return values ? v128.load32_splat(a, STRIP_BYTES * 2) : v128.load32_splat(a, CHUNK_BYTES * 2);
  if (row == 3) return values ? v128.load32_splat(a, STRIP_BYTES * 3) : v128.load32_splat(a, CHUNK_BYTES * 3);
  if (row == 4) return values ? v128.load32_splat(a, STRIP_BYTES * 4) : v128.load32_splat(a, CHUNK_BYTES * 4);
  return v128.load32_splat(a);
}

/** What a row of eight accumulators begins with: alpha · C for values, else zeros. */
// @ts-ignore: decorator
@inline
export function start_even(values: bool, c: F32Ptr, state: usize): v128 {
  return values ? f32x4.mul(load_even(c), v128.load32_splat(state, STATE_ALPHA)) : f32x4.splat(0);
}

// @ts-ignore: decorator
@inline
export function start_odd(values: bool, c: F32Ptr, state: usize): v128 {
  return values ? f32x4.mul(load_odd(c), v128.load32_splat(state, STATE_ALPHA)) : f32x4.splat(0);
}
