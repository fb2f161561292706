import { U8Ptr } from "../types";
import { dot_fours, ONES, PATH_I8, PATH_I8_EMULATED } from "./int_dot_i8";

/**
 * out[lane] = the low 32 bits of Σ over rounds begin..end, r < 8 and b < 4 of x[4·lane + b] · w[r, 4·lane + b], for lanes 0
 * to 3, x [16] in 0..127 and w [8, 16] int8: rounds below `direct` by the engine's product of four, the others by three
 * instructions. Which is faster decides the path of integers (int_dot.ts). Both are in one function, so that engines optimise
 * both or neither. Only in the relaxed build.
 */
export function repeat_dots(out: U8Ptr, x: U8Ptr, w: U8Ptr, direct: i32, begin: i32, end: i32): void {
  const ones = v128.load(ONES);
  let acc0 = i32x4.splat(0);
  let acc1 = acc0;
  let acc2 = acc0;
  let acc3 = acc0;
  let acc4 = acc0;
  let acc5 = acc0;
  let acc6 = acc0;
  let acc7 = acc0;
  for (direct = min(direct, end); begin < direct; begin++) {
    const x0 = v128.load(x);
    acc0 = dot_fours(PATH_I8, x0, v128.load(w), acc0, ones);
    acc1 = dot_fours(PATH_I8, x0, v128.load(w, 16), acc1, ones);
    acc2 = dot_fours(PATH_I8, x0, v128.load(w, 32), acc2, ones);
    acc3 = dot_fours(PATH_I8, x0, v128.load(w, 48), acc3, ones);
    acc4 = dot_fours(PATH_I8, x0, v128.load(w, 64), acc4, ones);
    acc5 = dot_fours(PATH_I8, x0, v128.load(w, 80), acc5, ones);
    acc6 = dot_fours(PATH_I8, x0, v128.load(w, 96), acc6, ones);
    acc7 = dot_fours(PATH_I8, x0, v128.load(w, 112), acc7, ones);
  }
  for (; begin < end; begin++) {
    const x0 = v128.load(x);
    acc0 = dot_fours(PATH_I8_EMULATED, x0, v128.load(w), acc0, ones);
    acc1 = dot_fours(PATH_I8_EMULATED, x0, v128.load(w, 16), acc1, ones);
    acc2 = dot_fours(PATH_I8_EMULATED, x0, v128.load(w, 32), acc2, ones);
    acc3 = dot_fours(PATH_I8_EMULATED, x0, v128.load(w, 48), acc3, ones);
    acc4 = dot_fours(PATH_I8_EMULATED, x0, v128.load(w, 64), acc4, ones);
    acc5 = dot_fours(PATH_I8_EMULATED, x0, v128.load(w, 80), acc5, ones);
    acc6 = dot_fours(PATH_I8_EMULATED, x0, v128.load(w, 96), acc6, ones);
    acc7 = dot_fours(PATH_I8_EMULATED, x0, v128.load(w, 112), acc7, ones);
  }
  acc0 = i32x4.add(i32x4.add(acc0, acc1), i32x4.add(acc2, acc3));
  acc4 = i32x4.add(i32x4.add(acc4, acc5), i32x4.add(acc6, acc7));
  v128.store(out, i32x4.add(acc0, acc4));
}
