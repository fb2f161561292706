import { BLOCK, GGML_IQ4_NL, GGML_IQ4_XS, GGML_MXFP4, GGML_NVFP4, PANEL, PANEL_BYTES, SUPER_BLOCK } from "../layout";
import { f16_at, widen_f16_high, widen_f16_low, widen_rows, zip_high, zip_low } from "../math/half";
import { F32Ptr, U8Ptr } from "../types";

// What indices of 4 bits stand for, and where a panel of them has its scales: in front of all nibbles, eight of a group side by side.
// IQ4_NL has float16, MXFP4 exponents, NVFP4 floats of 7 bits without a sign, IQ4_XS int8 times a float16 for each 256 inputs, which
// stand before them.

/** Bytes of the float16 of 256 inputs of a panel. */
const UNITS: usize = PANEL << 1;

/** Inputs that share a scale. */
// @ts-ignore: decorator
@inline
export function group_of(type: i32): i32 {
  return type == GGML_NVFP4 ? BLOCK / 2 : BLOCK;
}

/** Whether entries have 8 bits. */
// @ts-ignore: decorator
@inline
export function is_wide(type: i32): bool {
  return type == GGML_IQ4_NL || type == GGML_IQ4_XS;
}

/** The 16 int8: of IQ4, and twice the floats of 4 bits. */
const NONLINEAR = memory.data<i8>([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]);
const TWICE_E2M1 = memory.data<i8>([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]);

// @ts-ignore: decorator
@inline
function table_of(type: i32): usize {
  return is_wide(type) ? NONLINEAR : TWICE_E2M1;
}

/** All of them, and one. */
// @ts-ignore: decorator
@inline
export function entries_of(type: i32): v128 {
  return v128.load(table_of(type));
}

// @ts-ignore: decorator
@inline
export function entry_of(type: i32, index: i32): i8 {
  return load<i8>(table_of(type) + index);
}

/** Bytes of the float16 in front of the other scales of a panel. */
// @ts-ignore: decorator
@inline
export function unit_bytes(type: i32, k: i32): usize {
  return type == GGML_IQ4_XS ? <usize>(k / SUPER_BLOCK) * UNITS : 0;
}

/** Bytes of all scales of a panel. */
export function scales_bytes(type: i32, k: i32): usize {
  return unit_bytes(type, k) + <usize>(k / group_of(type)) * <usize>(type == GGML_IQ4_NL ? PANEL << 1 : PANEL);
}

/** Bytes of a panel: 4 bits an input follow its scales. */
// @ts-ignore: decorator
@inline
export function codebook_bytes_of(type: i32, k: i32): usize {
  return scales_bytes(type, k) + (<usize>k << 2);
}

/** 2^(exponent - 128), subnormals included: half of what the exponent says, since entries are twice the floats. */
// @ts-ignore: decorator
@inline
function halved_power(exponent: i32): f32 {
  return reinterpret<f32>(max((exponent - 1) << 23, (exponent + 1) << 21));
}

/** Half of a float of four bits of an exponent and three of a fraction. */
const HALF_E4M3: f32 = reinterpret<f32>(246 << 23);

/** The scale of input i of a column. */
export function codebook_scale(type: i32, panel: U8Ptr, k: i32, i: i32, column: usize): f32 {
  if (type == GGML_IQ4_NL) return f16_at(panel + (<usize>(i / BLOCK) << 4) + (column << 1));
  const at = panel + unit_bytes(type, k) + (<usize>(i / group_of(type)) << 3) + column;
  if (type == GGML_MXFP4) return halved_power(load<u8>(at));
  if (type == GGML_NVFP4) return reinterpret<f32>(<u32>load<u8>(at) << 20) * HALF_E4M3;
  return f16_at(panel + UNITS * <usize>(i / SUPER_BLOCK) + (column << 1)) * <f32>load<i8>(at);
}

/** to[count / group][8] = the scales of the inputs from..from+count of a panel of k, whole groups. */
export function widen_scales(to: F32Ptr, type: i32, panel: U8Ptr, k: i32, from: i32, count: i32): void {
  if (type == GGML_IQ4_NL) {
    widen_rows(to, panel + (<usize>(from / BLOCK) << 4), count / BLOCK, false);
    return;
  }
  const group = group_of(type);
  let at = panel + unit_bytes(type, k) + (<usize>(from / group) << 3);
  for (const end = from + count; from < end; from += group) {
    if (type == GGML_IQ4_XS) {
      const units = v128.load(panel + UNITS * <usize>(from / SUPER_BLOCK));
      const eight = v128.load8x8_s(at);
      v128.store(to, f32x4.mul(widen_f16_low(units), f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(eight))));
      v128.store(to, f32x4.mul(widen_f16_high(units), f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(eight))), 16);
    } else {
      const eight = v128.load8x8_u(at);
      const zero = i32x4.splat(0);
      if (type == GGML_MXFP4) {
        const upper = upper_halves(eight);
        v128.store(to, zip_low(zero, upper));
        v128.store(to, zip_high(zero, upper), 16);
      } else {
        const upper = i16x8.shl(eight, 4);
        v128.store(to, f32x4.mul(zip_low(zero, upper), f32x4.splat(HALF_E4M3)));
        v128.store(to, f32x4.mul(zip_high(zero, upper), f32x4.splat(HALF_E4M3)), 16);
      }
    }
    at += PANEL;
    to += PANEL_BYTES;
  }
}

/** The upper halves of halved_power of eight exponents: the lower ones are 0. */
// @ts-ignore: decorator
@inline
function upper_halves(exponents: v128): v128 {
  const one = i16x8.splat(1);
  return i16x8.max_s(i16x8.shl(i16x8.sub(exponents, one), 7), i16x8.shl(i16x8.add(exponents, one), 5));
}
