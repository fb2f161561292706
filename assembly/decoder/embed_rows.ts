import { BLOCK, LONGEST_BLOCK, PANEL, PANEL_BYTES, PANEL_BYTES_16, Q4_K_BYTES, SUPER_BLOCK, WEIGHT_BF16, WEIGHT_F16, WEIGHT_F32, WEIGHT_LOOKUP, WEIGHT_Q4_K, WEIGHT_Q8 } from "../layout";
import { inputs_of, LOOKUP_HEAD, LOOKUP_ROWS, panel_bytes, place_of, Q4_BLOCK_BYTES, Q4_K_MINS, Q4_K_NIBBLES, Q4_K_SCALES, SCALES } from "../linear/block_layout";
import { codebook_bytes_of, codebook_scale, entry_of, group_of, scales_bytes } from "../linear/codebook_layout";
import { padded } from "../linear/quantize_rows";
import { f16_at } from "../math/half";
import { EmbedShape, EmbedShapePtr, F32Ptr, F32PtrOrNull, I32Ptr, U8Ptr } from "../types";

/**
 * out[t, :k] = scale · w[ids[t], :k], for tokens begin..end: rows of a table [n, k] that lies in the panels of linear_f32,
 * linear_f16, linear_q8, linear_q4, linear_q4_k, linear_codebook or linear_lookup, so that a model whose embedding is also its last projection holds it once. mins are those of
 * subtract_mins, or null. An integer times its scale is rounded, then that less its min, then that times `scale`. Rows of out lie
 * side by side. out overlaps no input.
 */
export function embed_rows(
  out: F32Ptr,
  ids: I32Ptr,
  w: U8Ptr,
  mins: F32PtrOrNull,
  shape: EmbedShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<EmbedShape>(shape);
  const k = s.k;
  const format = s.format;
  const scale = s.scale;
  for (let t = begin; t < end; t++) {
    const id = load<i32>(ids + (<usize>t << 2));
    assert(id >= 0 && id < s.n, "embed_rows: ids must be within n");
    const panel = <usize>(id / PANEL);
    const column = <usize>(id % PANEL);
    const to = out + ((<usize>t * k) << 2);
    if (format == WEIGHT_F32) copy_f32(to, w + panel * k * PANEL_BYTES + (column << 2), k, scale);
    else if (format == WEIGHT_F16 || format == WEIGHT_BF16)
      copy_f16(to, w + panel * k * PANEL_BYTES_16 + (column << 1), k, scale, format == WEIGHT_BF16);
    else if (format == WEIGHT_LOOKUP)
      copy_lookup(to, w + panel * place_of(k, s.block), column, k, s.block, scale);
    else if (format == WEIGHT_Q4_K)
      copy_q4_k(to, w + panel * <usize>(k / SUPER_BLOCK) * Q4_K_BYTES, column, k, scale);
    else if (format > WEIGHT_Q4_K)
      copy_codebook(to, w + panel * codebook_bytes_of(format, k), column, k, format, scale);
    else {
      const m = mins ? mins + panel * <usize>(padded(k) / s.block) * PANEL_BYTES + (column << 2) : 0;
      if (format == WEIGHT_Q8) copy_q8(to, w + panel * panel_bytes(padded(k), s.block), m, column, k, s.block, scale);
      else copy_q4(to, w + panel * <usize>(padded(k) / BLOCK) * Q4_BLOCK_BYTES, m, column, k, scale);
    }
  }
}

function copy_f32(to: F32Ptr, from: U8Ptr, k: i32, scale: f32): void {
  for (const end = to + (<usize>k << 2); to < end; to += 4) {
    store<f32>(to, load<f32>(from) * scale);
    from += PANEL_BYTES;
  }
}

function copy_f16(to: F32Ptr, from: U8Ptr, k: i32, scale: f32, bf16: bool): void {
  for (const end = to + (<usize>k << 2); to < end; to += 4) {
    store<f32>(to, (bf16 ? reinterpret<f32>(<u32>load<u16>(from) << 16) : f16_at(from)) * scale);
    from += PANEL_BYTES_16;
  }
}

/** Pairs of inputs, of all eight rows in turn. */
function copy_q8(to: F32Ptr, panel: U8Ptr, mins: F32PtrOrNull, column: usize, k: i32, block: i32, scale: f32): void {
  for (let i = 0; i < k; i += block) {
    const blockScale = load<f32>(panel + (column << 2));
    const m: f32 = mins ? load<f32>(mins) : 0;
    if (mins) mins += PANEL_BYTES;
    let from = panel + SCALES + (column << 1);
    const count = min(block, k - i);
    for (let j = 0; j < count; j++) {
      store<f32>(to, (blockScale * <f32>load<i8>(from + (j & 1)) - m) * scale);
      to += 4;
      if (j & 1) from += PANEL << 1;
    }
    panel += SCALES + (<usize>block << 3);
  }
}

/** Input j of a block: eight are 32 bits, the even ones in the lower half, the odd ones in the upper. */
// @ts-ignore: decorator
@inline
function nibble_of(block: U8Ptr, j: i32): i32 {
  return <i32>((load<u32>(block + ((<usize>j >> 3) << 5)) >> (((j & 1) << 4) + ((j & 6) << 1))) & 15);
}

function copy_q4(to: F32Ptr, panel: U8Ptr, mins: F32PtrOrNull, column: usize, k: i32, scale: f32): void {
  const zero = mins ? 0 : 8;
  for (let i = 0; i < k; i += BLOCK) {
    const blockScale = load<f32>(panel + (column << 2));
    const m: f32 = mins ? load<f32>(mins) : 0;
    if (mins) mins += PANEL_BYTES;
    const from = panel + SCALES + (column << 2);
    const count = min(BLOCK, k - i);
    for (let j = 0; j < count; j++) {
      store<f32>(to, (blockScale * <f32>(nibble_of(from, j) - zero) - m) * scale);
      to += 4;
    }
    panel += Q4_BLOCK_BYTES;
  }
}

/** Nibbles as linear_q4 has them, of blocks whose scales and minimums are bytes. */
function copy_q4_k(to: F32Ptr, panel: U8Ptr, column: usize, k: i32, scale: f32): void {
  for (let i = 0; i < k; i += BLOCK) {
    const part = <usize>((i / BLOCK) & 7);
    const blockScale = load<f32>(panel + (column << 2)) * <f32>load<u8>(panel + Q4_K_SCALES + (part << 3) + column);
    const least = <f32>load<u8>(panel + Q4_K_MINS + ((part >> 1) << 4) + (column << 1) + (part & 1));
    const m = load<f32>(panel + (column << 2), SCALES) * least;
    const from = panel + Q4_K_NIBBLES + (part << 7) + (column << 2);
    for (let j = 0; j < BLOCK; j++) {
      store<f32>(to, (blockScale * <f32>nibble_of(from, j) - m) * scale);
      to += 4;
    }
    if (part == 7) panel += Q4_K_BYTES;
  }
}

/** Indices as linear_codebook has them. */
function copy_codebook(to: F32Ptr, panel: U8Ptr, column: usize, k: i32, type: i32, scale: f32): void {
  const group = group_of(type);
  let from = panel + scales_bytes(type, k) + (column << 2);
  for (let i = 0; i < k; i += group) {
    const own = codebook_scale(type, panel, k, i, column);
    for (let j = 0; j < group; j++) {
      store<f32>(to, own * <f32>entry_of(type, nibble_of(from, j)) * scale);
      to += 4;
    }
    from += <usize>group << 2;
  }
}

/** Codes of 1 or 2 bits, those of a byte after another of an output every eight bytes. */
function copy_lookup(to: F32Ptr, panel: U8Ptr, column: usize, k: i32, block: i32, scale: f32): void {
  const inputs = inputs_of(block);
  const isOne = inputs == LONGEST_BLOCK;
  const whole = block > LONGEST_BLOCK;
  const lane = ((column & 3) << 1) + (column >> 2);
  let blockScale = load<f32>(panel + (column << 2));
  if (whole) panel += SCALES;
  for (let i = 0; i < k; i += inputs) {
    if (!whole) {
      blockScale = f16_at(panel + (column << 1));
      panel += LOOKUP_HEAD;
    }
    for (let j = 0; j < inputs; j++) {
      const at = isOne ? j : j << 1;
      const code = <i32>load<u8>(panel + lane + (<usize>at & -8)) >> (at & 7);
      const weight = isOne ? ((code & 1) << 1) - 1 : (code & 3) - 1;
      store<f32>(to, blockScale * <f32>weight * scale);
      to += 4;
    }
    panel += LOOKUP_ROWS;
  }
}
