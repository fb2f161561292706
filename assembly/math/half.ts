// 16-bit floats and float32, eight at a time: f16 (1 sign, 5 exponent, 10 fraction bits) and bf16 (the upper half of a
// float32). Widening is exact and keeps every bit of a NaN; narrowing rounds half to even, what is too large becomes an
// infinity and a NaN stays one. No operation has a subnormal float32 unless it is given one: engines on some
// processors take a hundred cycles for each. Constants come from memory, for the reason in exp.ts.

// In pairs of halves: the sign; the rest; the largest subnormal; the largest finite; then as upper halves of float32 the
// difference of the biases (112), 2^-14 and Infinity; -2048 and what follows from it (see widen_rows); the sign and
// twelve bits.
const HALF = memory.data<u32>([
  0x80008000, 0x7fff7fff, 0x03ff03ff, 0x7bff7bff, 0x38003800, 0x38803880, 0x7f807f80, 0xf800f800, 0xefffefff,
  0x8fff8fff,
]);

// All bits but the sign; 0.5, whose last bit is 2^-24, the unit of f16's subnormals; 2^-14; the difference of the biases
// less one short of half of what f16 drops; 0x7c00 infinity; 0x7e00 a quiet NaN; 0x7fff; what makes a bf16 NaN quiet.
const NARROW = memory.data<u32>([0x7fffffff, 0x3f000000, 0x38800000, 0x37fff001, 0x7c00, 0x7e00, 0x7fff, 0x0040]);

// @ts-ignore: decorator
@inline
function half_term(i: usize): v128 {
  return v128.load32_splat(HALF + (i << 2));
}

// @ts-ignore: decorator
@inline
function narrow_term(i: usize): v128 {
  return v128.load32_splat(NARROW + (i << 2));
}

/** Lanes 0-3 of a and b in turn: a in the lower halves. */
// @ts-ignore: decorator
@inline
export function zip_low(a: v128, b: v128): v128 {
  return v128.shuffle<i16>(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

/** Lanes 4-7. */
// @ts-ignore: decorator
@inline
export function zip_high(a: v128, b: v128): v128 {
  return v128.shuffle<i16>(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

/** The f16 lanes that are zero or subnormal, as the upper half of 2^-14, which stands in for their missing leading one. */
// @ts-ignore: decorator
@inline
function f16_missing(magnitude: v128): v128 {
  return v128.and(i16x8.le_s(magnitude, half_term(2)), half_term(5));
}

/** Upper halves of the magnitudes before 2^-14 is taken from those that have it without having earned it. */
// @ts-ignore: decorator
@inline
function f16_upper(magnitude: v128, missing: v128): v128 {
  return v128.or(i16x8.add(i16x8.shr_u(magnitude, 3), half_term(4)), missing);
}

/** The sign, and all exponent bits for infinity and NaN. */
// @ts-ignore: decorator
@inline
function f16_marks(v: v128, magnitude: v128): v128 {
  return v128.or(v128.and(v, half_term(0)), v128.and(i16x8.gt_s(magnitude, half_term(3)), half_term(6)));
}

/** The f16 lanes 0-3 of v as float32. */
// @ts-ignore: decorator
@inline
export function widen_f16_low(v: v128): v128 {
  const zero = i32x4.splat(0);
  const magnitude = v128.and(v, half_term(1));
  const missing = f16_missing(magnitude);
  const whole = zip_low(i16x8.shl(v, 13), f16_upper(magnitude, missing));
  return v128.or(f32x4.sub(whole, zip_low(zero, missing)), zip_low(zero, f16_marks(v, magnitude)));
}

/** Lanes 4-7. */
// @ts-ignore: decorator
@inline
export function widen_f16_high(v: v128): v128 {
  const zero = i32x4.splat(0);
  const magnitude = v128.and(v, half_term(1));
  const missing = f16_missing(magnitude);
  const whole = zip_high(i16x8.shl(v, 13), f16_upper(magnitude, missing));
  return v128.or(f32x4.sub(whole, zip_high(zero, missing)), zip_high(zero, f16_marks(v, magnitude)));
}

/** The f16 at `at` as a float. */
// @ts-ignore: decorator
@inline
export function f16_at(at: usize): f32 {
  return f32x4.extract_lane(widen_f16_low(v128.load16_splat(at)), 0);
}

/** The bf16 lanes 0-3 of v as float32. */
// @ts-ignore: decorator
@inline
export function widen_bf16_low(v: v128): v128 {
  return zip_low(i32x4.splat(0), v);
}

/** Lanes 4-7. */
// @ts-ignore: decorator
@inline
export function widen_bf16_high(v: v128): v128 {
  return zip_high(i32x4.splat(0), v);
}

/** `rows` times eight halves as float32: what the functions above give, faster where all of four rows are normal. */
export function widen_rows(to: usize, from: usize, rows: i32, bf16: bool): void {
  if (bf16) {
    for (; rows > 0; rows--) {
      const h = v128.load(from);
      v128.store(to, widen_bf16_low(h));
      v128.store(to, widen_bf16_high(h), 16);
      from += 16;
      to += 32;
    }
    return;
  }
  const below = half_term(7);
  const most = half_term(8);
  const kept = half_term(9);
  const bias = half_term(4);
  for (; rows > 3; rows -= 4) {
    const h0 = v128.load(from);
    const h1 = v128.load(from, 16);
    const h2 = v128.load(from, 32);
    const h3 = v128.load(from, 48);
    // Twice a half drops its sign. Less 2048, zeros and subnormals wrap around to lie above infinity and NaN.
    const a = i16x8.max_u(i16x8.add(i16x8.add(h0, h0), below), i16x8.add(i16x8.add(h1, h1), below));
    const b = i16x8.max_u(i16x8.add(i16x8.add(h2, h2), below), i16x8.add(i16x8.add(h3, h3), below));
    if (v128.any_true(i16x8.sub_sat_u(i16x8.max_u(a, b), most))) {
      widen_any(to, from, 4);
    } else {
      widen_normal(to, h0, kept, bias);
      widen_normal(to + 32, h1, kept, bias);
      widen_normal(to + 64, h2, kept, bias);
      widen_normal(to + 96, h3, kept, bias);
    }
    from += 64;
    to += 128;
  }
  widen_any(to, from, rows);
}

/** `rows` times eight f16 of any kind. */
function widen_any(to: usize, from: usize, rows: i32): void {
  for (; rows > 0; rows--) {
    const h = v128.load(from);
    v128.store(to, widen_f16_low(h));
    v128.store(to, widen_f16_high(h), 16);
    from += 16;
    to += 32;
  }
}

/** Eight normal f16. */
// @ts-ignore: decorator
@inline
function widen_normal(to: usize, h: v128, kept: v128, bias: v128): void {
  const lower = i16x8.shl(h, 13);
  const upper = i16x8.add(v128.and(i16x8.shr_s(h, 3), kept), bias);
  v128.store(to, zip_low(lower, upper));
  v128.store(to, zip_high(lower, upper), 16);
}

/** One line in LOOK is looked at for subnormals. More of them than one half in MANY are many. */
const LOOK = 32;
const MANY = 32;

/**
 * Whether many of the f16 in `panels` panels of k lines of eight, panelBytes apart, are subnormal. To the tiles that widen as they multiply these are subnormal
 * float32, which are right but slow on some processors: from so many on, widening them first is faster there.
 */
export function has_many_subnormals(w: usize, panels: i32, k: i32, panelBytes: usize): bool {
  const magnitude = half_term(1);
  const one = i16x8.splat(1);
  const most = half_term(2);
  let found = i32x4.splat(0);
  let lines = 0;
  for (let p = 0; p < panels; p++) {
    for (let i = 0; i < k; i += LOOK) {
      const above = i16x8.sub(v128.and(v128.load(w + (<usize>i << 4)), magnitude), one);
      found = i16x8.sub(found, i16x8.lt_u(above, most));
      lines++;
    }
    w += panelBytes;
  }
  const pairs = i32x4.dot_i16x8_s(found, one);
  const some = i32x4.extract_lane(pairs, 0) + i32x4.extract_lane(pairs, 1);
  return (some + i32x4.extract_lane(pairs, 2) + i32x4.extract_lane(pairs, 3)) * MANY > lines * 8;
}

/** Four floats as f16 in the lower halves of the lanes. */
// @ts-ignore: decorator
@inline
function round_f16(v: v128): v128 {
  const magnitude = v128.and(v, narrow_term(0));
  const sign = i32x4.shr_u(v128.xor(v, magnitude), 16);
  const unit = narrow_term(1);
  const subnormal = i32x4.sub(f32x4.add(magnitude, unit), unit);
  // Half of what is dropped less one, and one more where the last bit that stays is set.
  const odd = i32x4.shr_u(i32x4.shl(magnitude, 18), 31);
  const normal = i32x4.shr_u(i32x4.add(i32x4.sub(magnitude, narrow_term(3)), odd), 13);
  const rounded = v128.bitselect(subnormal, i32x4.min_u(normal, narrow_term(4)), i32x4.lt_s(magnitude, narrow_term(2)));
  const payload = v128.and(v128.or(i32x4.shr_u(magnitude, 13), narrow_term(5)), narrow_term(6));
  return v128.or(sign, v128.bitselect(payload, rounded, f32x4.ne(v, v)));
}

/** Eight floats as f16: a in lanes 0-3, b in 4-7. */
// @ts-ignore: decorator
@inline
export function narrow_f16(a: v128, b: v128): v128 {
  return i16x8.narrow_i32x4_u(round_f16(a), round_f16(b));
}

/** Four floats as bf16 in the lower halves of the lanes. */
// @ts-ignore: decorator
@inline
function round_bf16(v: v128): v128 {
  const upper = i32x4.shr_u(v, 16);
  const odd = i32x4.shr_u(i32x4.shl(v, 15), 31);
  const rounded = i32x4.shr_u(i32x4.add(i32x4.add(v, narrow_term(6)), odd), 16);
  return v128.bitselect(v128.or(upper, narrow_term(7)), rounded, f32x4.ne(v, v));
}

/** Eight floats as bf16: a in lanes 0-3, b in 4-7. */
// @ts-ignore: decorator
@inline
export function narrow_bf16(a: v128, b: v128): v128 {
  return i16x8.narrow_i32x4_u(round_bf16(a), round_bf16(b));
}
