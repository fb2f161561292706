import { f16_at, widen_rows } from "../math/half";
import { F32Ptr, U16Ptr } from "../types";

/**
 * out[i] = x[i], begin <= i < end: f16 or bf16 (bf16 = 1) as float32, exactly; NaN keeps its bits. x may lie in the second half
 * of out, so that it ends where out does, if all of it is widened at once.
 */
export function widen_f16(out: F32Ptr, x: U16Ptr, bf16: i32, begin: i32, end: i32): void {
  out += <usize>begin << 2;
  x += <usize>begin << 1;
  const n = end - begin;
  widen_rows(out, x, n >> 3, bf16 != 0);
  for (let i = n & ~7; i < n; i++) {
    const from = x + (<usize>i << 1);
    store<f32>(out + (<usize>i << 2), bf16 ? reinterpret<f32>(<u32>load<u16>(from) << 16) : f16_at(from));
  }
}
