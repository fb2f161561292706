import { codes_at, halves_at, largest_of, with_bytes } from "../cache/codecs";
import { FORMAT_F16, FORMAT_F32, PANEL } from "../layout";
import { widen_f16_low } from "../math/half";
import { factor_of, scale_of } from "../math/rounding";
import { store_first } from "../math/simd";
import { F32Ptr } from "../types";
import { part_at, PAIR_STEP_BYTES, QUARTER_BYTES } from "./page";

// A latent, or a rotated key, to and from the pages of page.ts: `components` floats at x, from component `first` of a token on.
// `scale` is where the scale of this part of this token lies.

const MOST_CODE: f32 = 127;

/** Writes a part; components up to whole panels become 0. */
export function store_part(
  format: i32,
  page: usize,
  dim: i32,
  position: i32,
  first: i32,
  scale: F32Ptr,
  x: F32Ptr,
  components: i32,
): void {
  let to = part_at(format, page, dim, position, first);
  if (format == FORMAT_F32) {
    for (let d = 0; d < ((components + PANEL - 1) & -PANEL); d += 4) {
      if (d + 4 <= components) v128.store(to, v128.load(x + (<usize>d << 2)));
      else {
        v128.store(to, i32x4.splat(0));
        // As integers, so that no engine can quiet a NaN.
        for (let i = d; i < components; i++) store<u32>(to + (<usize>(i - d) << 2), load<u32>(x + (<usize>i << 2)));
      }
      to += PAIR_STEP_BYTES;
    }
    return;
  }
  if (format == FORMAT_F16) {
    for (let d = 0; d < components; d += PANEL) {
      const halves = halves_at(x, d, components);
      v128.store_lane<u64>(to, halves, 0);
      v128.store_lane<u64>(to, halves, 1, PAIR_STEP_BYTES >> 1);
      to += PAIR_STEP_BYTES;
    }
    return;
  }
  const top = largest_of(x, components);
  const factor = f32x4.splat(factor_of(top, MOST_CODE));
  store<f32>(scale, scale_of(top, MOST_CODE));
  for (let d = 0; d < components; d += PANEL) {
    const codes = i16x8.extend_low_i8x16_u(codes_at(x, d, components, factor));
    v128.store(to, with_bytes(v128.load(to), codes, position));
    to += 16;
  }
}

/** Reads a part. */
export function load_part(
  to: F32Ptr,
  format: i32,
  page: usize,
  dim: i32,
  position: i32,
  first: i32,
  scale: F32Ptr,
  components: i32,
): void {
  let from = part_at(format, page, dim, position, first);
  if (format == FORMAT_F32) {
    for (let d = 0; d < components; d += 4) {
      store_first(to + (<usize>d << 2), components - d, v128.load(from));
      from += PAIR_STEP_BYTES;
    }
    return;
  }
  if (format == FORMAT_F16) {
    for (let d = 0; d < components; d += 4) {
      store_first(to + (<usize>d << 2), components - d, widen_f16_low(v128.load64_zero(from)));
      from += QUARTER_BYTES;
    }
    return;
  }
  const factor = v128.load32_splat(scale);
  for (let d = 0; d < components; d += PANEL) {
    const pair = v128.load(from);
    const codes = i16x8.shr_s(position & 1 ? pair : i16x8.shl(pair, 8), 8);
    const at = to + (<usize>d << 2);
    store_first(at, components - d, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(codes)), factor));
    const high = f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(codes)), factor);
    store_first(at + 16, components - d - 4, high);
    from += 16;
  }
}
