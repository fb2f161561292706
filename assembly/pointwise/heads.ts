import { F32Ptr } from "../types";

/**
 * out[h, t, :headDim] = x[t, h·headDim ..], x [rows][numHeads·headDim] -> out [numHeads][rows][headDim], both dense,
 * for tokens begin..end. Bits are copied. No alignment is needed; out must not overlap x.
 */
export function split_heads_f32(
  out: F32Ptr,
  x: F32Ptr,
  rows: i32,
  numHeads: i32,
  headDim: i32,
  begin: i32,
  end: i32,
): void {
  assert(begin >= 0 && end <= rows, "split_heads_f32: begin..end must lie within rows");
  for (let t = begin; t < end; t++)
    for (let h = 0; h < numHeads; h++) {
      const split = (<usize>h * rows + t) * headDim;
      const merged = (<usize>t * numHeads + h) * headDim;
      copy_head(out + (split << 2), x + (merged << 2), headDim);
    }
}

/**
 * out[t, h·headDim ..] = x[h, t, :headDim], x [numHeads][rows][headDim] -> out [rows][numHeads·headDim]: the inverse of
 * split_heads_f32, under the same rules.
 */
export function merge_heads_f32(
  out: F32Ptr,
  x: F32Ptr,
  rows: i32,
  numHeads: i32,
  headDim: i32,
  begin: i32,
  end: i32,
): void {
  assert(begin >= 0 && end <= rows, "merge_heads_f32: begin..end must lie within rows");
  for (let t = begin; t < end; t++)
    for (let h = 0; h < numHeads; h++) {
      const split = (<usize>h * rows + t) * headDim;
      const merged = (<usize>t * numHeads + h) * headDim;
      copy_head(out + (merged << 2), x + (split << 2), headDim);
    }
}

/** A loop, because a head is too short to pay for the call that memory.copy makes. */
// @ts-ignore: decorator
@inline
function copy_head(to: usize, from: usize, headDim: i32): void {
  const wide = headDim & ~3;
  for (let d = 0; d < wide; d += 4) v128.store(to + (<usize>d << 2), v128.load(from + (<usize>d << 2)));
  for (let d = wide; d < headDim; d++) store<u32>(to + (<usize>d << 2), load<u32>(from + (<usize>d << 2)));
}
