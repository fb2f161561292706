/**
 * Elementary functions in float64, made of + - * / only. IEEE 754 determines the results of these exactly, while
 * Math.sin, Math.exp and Math.log differ between engines in the last bits. Every number that affects a result is
 * computed here.
 *
 * Each polynomial is a truncated Taylor series whose first missing term is below a quarter ulp of the sum. Constants
 * are split into parts of so few bits that an integer times a part is exact.
 */

/** ln 2 = LN2_HIGH + LN2_LOW within 2^-102; LN2_HIGH has 40 bits, so n·LN2_HIGH is exact for |n| < 2^13. */
const LN2_HIGH = 0.6931471805592082;
const LN2_LOW = 7.371002565167799e-13;

/**
 * pi/2 = the sum of these three within 2^-103; the first two have 22 bits, so an integer n times each is exact for |n|
 * < 2^31.
 */
const HALF_PI_HIGH = 1.570796012878418;
const HALF_PI_MIDDLE = 3.139164164167596e-7;
const HALF_PI_LOW = 6.223372171896613e-14;

/** The largest |angle| in radians that `sine` and `cosine` take: beyond it, n times the parts of pi/2 is not exact. */
const LARGEST_ANGLE = 2 ** 31;

/** x·2^n, rounded once, for |n| <= 2100. In two factors, because 2^n may overflow or underflow where x·2^n does not. */
function shift(x: number, n: number): number {
  const half = Math.floor(n / 2);
  return x * powerOfTwo(half) * powerOfTwo(n - half);
}

/** 2^n exactly, for integers n from -1074 to 1023 (0 or Infinity outside). */
function powerOfTwo(n: number): number {
  let power = 1;
  for (let square = n < 0 ? 0.5 : 2, left = Math.abs(n); left > 0; square *= square, left = Math.floor(left / 2))
    if (left % 2 === 1) power *= square;
  return power;
}

/** x = m·2^n with m in [0.7, 1.4], exactly, for finite x > 0. */
function split(x: number): { m: number; n: number } {
  let m = x;
  let n = 0;
  for (let step = 512; step >= 1; step /= 2) {
    const power = powerOfTwo(step);
    for (; m >= power; n += step) m /= power;
    for (; m * power < 1; n -= step) m *= power;
  }
  // Now m lies in [0.5, 2).
  if (m > 1.4) return { m: m / 2, n: n + 1 };
  return m < 0.7 ? { m: m * 2, n: n - 1 } : { m, n };
}

/**
 * ln m for m in [0.7, 1.4]. With g = m - 1 (exact) and s = g / (2 + g), ln m = 2·(s + s³/3 + s⁵/5 + …). Since 2s = g -
 * s·g, the sum is g - s·(g - tail), of which only the smaller term has more than one rounding. The first missing term
 * of the series is below 2^-58 of the sum.
 */
function lnNearOne(m: number): number {
  const g = m - 1;
  const s = g / (2 + g);
  const z = s * s;
  const high = 1 / 13 + z * (1 / 15 + z * (1 / 17 + z * (1 / 19 + z / 21)));
  const tail = 2 * z * (1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9 + z * (1 / 11 + z * high)))));
  return g - s * (g - tail);
}

/** The natural logarithm, within 1.5 ulp. -Infinity at 0, NaN below. */
export function ln(x: number): number {
  if (!(x > 0 && x < Infinity)) return x === 0 ? -Infinity : x < 0 ? NaN : x;
  const { m, n } = split(x);
  return n * LN2_HIGH + (lnNearOne(m) + n * LN2_LOW);
}

/** e^x, within 1 ulp (of the smallest number where the result is subnormal). */
export function exp(x: number): number {
  if (!(x > -746 && x < 710)) return x > 0 ? Infinity : x < 0 ? 0 : x;
  const n = Math.round(x / (LN2_HIGH + LN2_LOW));
  const high = x - n * LN2_HIGH;
  const low = n * LN2_LOW;
  const r = high - low;
  // e^r = 1 + r + r²/2·(1 + r/3·(1 + r/4·(…))) with |r| <= 0.347: the first missing term r¹⁴/14! is below 2^-57.
  let series = 1;
  for (let k = 13; k > 2; k--) series = 1 + (r / k) * series;
  return shift(1 + (high + ((r * r * series) / 2 - low)), n);
}

/**
 * base^exponent for finite base > 0 (NaN for others) and |exponent| < 2^1000. Relative error <= (2 + |exponent|)·2^-52;
 * integer powers of powers of two are exact. With base = m·2^n, the integer part of exponent·n is split off, and only
 * the fraction goes through `exp`.
 */
export function pow(base: number, exponent: number): number {
  if (!(base > 0 && base < Infinity)) return NaN;
  const { m, n } = split(base);
  const size = exponent * (n * LN2_HIGH + lnNearOne(m));
  if (!(size > -746 && size < 711)) return size > 0 ? Infinity : size < 0 ? 0 : size;
  // n has 11 bits, so n times the leading bits of the exponent is exact, also if the product is close to an integer.
  const leading = Math.round(exponent * 2 ** 20) / 2 ** 20;
  const whole = Math.round(n * leading);
  const fraction = n * leading - whole + n * (exponent - leading);
  return shift(exp(fraction * (LN2_HIGH + LN2_LOW) + exponent * lnNearOne(m)), whole);
}

/** sin x for x in radians, absolute error <= 2^-52. NaN where |x| > LARGEST_ANGLE. */
export function sine(x: number): number {
  return sineOfQuarters(x, 0);
}

/** cos x for x in radians, absolute error <= 2^-52. NaN where |x| > LARGEST_ANGLE. */
export function cosine(x: number): number {
  return sineOfQuarters(x, 1);
}

/**
 * sin(x + quarters·pi/2). x - n·pi/2 is exact except for the part of HALF_PI_LOW, so 53 bits after the binary point are
 * right.
 */
function sineOfQuarters(x: number, quarters: number): number {
  if (!(Math.abs(x) <= LARGEST_ANGLE)) return NaN;
  const n = Math.round(x * (2 / Math.PI));
  const r = x - n * HALF_PI_HIGH - n * HALF_PI_MIDDLE - n * HALF_PI_LOW;
  const quadrant = (n + quarters) & 3;
  const value = quadrant % 2 === 0 ? sineNearZero(r) : cosineNearZero(r);
  return quadrant < 2 ? value : -value;
}

/** sin r for |r| <= 0.786; the first missing term r¹⁹/19! is below 2^-63. */
function sineNearZero(r: number): number {
  const z = r * r;
  const high = 1 / 362880 + z * (-1 / 39916800 + z * (1 / 6227020800 + z * (-1 / 1307674368000 + z / 355687428096000)));
  return r + r * z * (-1 / 6 + z * (1 / 120 + z * (-1 / 5040 + z * high)));
}

/** cos r for |r| <= 0.786; the first missing term r¹⁸/18! is below 2^-58. */
function cosineNearZero(r: number): number {
  const z = r * r;
  const high = -1 / 3628800 + z * (1 / 479001600 + z * (-1 / 87178291200 + z / 20922789888000));
  return 1 - z / 2 + z * z * (1 / 24 + z * (-1 / 720 + z * (1 / 40320 + z * high)));
}
