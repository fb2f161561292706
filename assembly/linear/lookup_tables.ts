import { LONGEST_BLOCK } from "../layout";
import { U8Ptr } from "../types";
import { BLOCK_SHIFT, block_at } from "./block_layout";
import { PATH_I16 } from "./int_dot";
import { eight_of } from "./order_digits";

// The tables of linear_lookup.

/** Each sum of 14-bit integers is raised by so much, so that both of its bytes are unsigned. */
export const RAISED: i32 = 32768;

/**
 * What the inputs of a group count in its sums, by the bits of their place. Of 1 bit: inputs 0, 1 and 2 in both halves of the sums. Of 2
 * bits: input 0 in both, then input 1 in the first eight and in the last.
 */
const SIGNS = memory.data<i16>([
  -1, 1, -1, 1, -1, 1, -1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1,
]);
const CODES = memory.data<i16>([-1, 0, 1, 2, -1, 0, 1, 2, -1, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);

/** For each group of four bits the sums that its inputs can give: those with 14 bits raised. xBlocks are the blocks of a fast row. */
export function make_tables(
  tables: U8Ptr,
  x: U8Ptr,
  path: i32,
  planes: i32,
  plane: usize,
  xBlocks: usize,
  count: i32,
  inputs: i32,
): void {
  const raised = i16x8.splat(planes == 1 ? 0 : <i16>RAISED);
  const isOne = inputs == LONGEST_BLOCK;
  for (let i = 0; i < count; i += 8) {
    const eight = planes == 1 ? lowered_of(path, x, xBlocks + (<usize>i >> BLOCK_SHIFT)) : eight_of(path, x, plane);
    x += path == PATH_I16 ? 16 : 8;
    const low = v128.shuffle<i64>(eight, eight, 0, 0);
    const high = v128.shuffle<i64>(eight, eight, 1, 1);
    if (isOne) {
      tables = store_signs(tables, low, raised);
      tables = store_signs(tables, high, raised);
    } else {
      tables = store_codes(tables, v128.shuffle<i32>(low, low, 0, 0, 0, 0), raised);
      tables = store_codes(tables, v128.shuffle<i32>(low, low, 1, 1, 1, 1), raised);
      tables = store_codes(tables, v128.shuffle<i32>(high, high, 0, 0, 0, 0), raised);
      tables = store_codes(tables, v128.shuffle<i32>(high, high, 1, 1, 1, 1), raised);
    }
  }
}

/** Eight integers of a fast row, whose bytes are raised by what its block says. */
// @ts-ignore: decorator
@inline
function lowered_of(path: i32, x: U8Ptr, xBlocks: usize): v128 {
  if (path == PATH_I16) return v128.load(x);
  return i16x8.sub(v128.load8x8_u(x), v128.load16_splat(block_at(xBlocks), 4));
}

/** The sums of four inputs, ±x0 ± x1 ± x2 ± x3, by their signs as bits. Returns where the next table begins. */
// @ts-ignore: decorator
@inline
function store_signs(to: U8Ptr, x: v128, raised: v128): U8Ptr {
  const x0 = v128.shuffle<i16>(x, x, 0, 0, 0, 0, 0, 0, 0, 0);
  const x1 = v128.shuffle<i16>(x, x, 1, 1, 1, 1, 1, 1, 1, 1);
  const x2 = v128.shuffle<i16>(x, x, 2, 2, 2, 2, 2, 2, 2, 2);
  const x3 = v128.shuffle<i16>(x, x, 3, 3, 3, 3, 3, 3, 3, 3);
  let sum = i16x8.add(i16x8.mul(x0, v128.load(SIGNS)), i16x8.mul(x1, v128.load(SIGNS, 16)));
  sum = i16x8.add(i16x8.add(sum, i16x8.mul(x2, v128.load(SIGNS, 32))), raised);
  return store_table(to, i16x8.sub(sum, x3), i16x8.add(sum, x3));
}

/** The sums of two inputs, (c0 - 1) · x0 + (c1 - 1) · x1, by their codes. */
// @ts-ignore: decorator
@inline
function store_codes(to: U8Ptr, x: v128, raised: v128): U8Ptr {
  const x0 = v128.shuffle<i16>(x, x, 0, 0, 0, 0, 0, 0, 0, 0);
  const x1 = v128.shuffle<i16>(x, x, 1, 1, 1, 1, 1, 1, 1, 1);
  const first = i16x8.add(i16x8.mul(x0, v128.load(CODES)), raised);
  return store_table(
    to,
    i16x8.add(first, i16x8.mul(x1, v128.load(CODES, 16))),
    i16x8.add(first, i16x8.mul(x1, v128.load(CODES, 32))),
  );
}

/** 16 sums: their lower bytes, then their upper ones. */
// @ts-ignore: decorator
@inline
function store_table(to: U8Ptr, first: v128, last: v128): U8Ptr {
  v128.store(to, i8x16.shuffle(first, last, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30));
  v128.store(to, i8x16.shuffle(first, last, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), 16);
  return to + 32;
}
