import { createRandom } from "../../src/tools/diagnostics/random.ts";

/**
 * Fixed-point numbers of 200 fractional bits on BigInt, as the exact side of the bounds in the tests: series with more
 * than fifty digits to spare, and no Math function.
 */
const BITS = 200n;
export const ONE: bigint = 1n << BITS;

export const times = (a: bigint, b: bigint): bigint => (a * b) >> BITS;
export const over = (a: bigint, b: bigint): bigint => (a << BITS) / b;

/** A finite float64 as it is (truncated below 2^-200). */
export function fixed(x: number): bigint {
  let mantissa = Math.abs(x);
  let exponent = 0n;
  for (; mantissa !== Math.floor(mantissa); exponent++) mantissa *= 2;
  const value = (BigInt(mantissa) << BITS) >> exponent;
  return x < 0 ? -value : value;
}

/** The float64 near a fixed-point number, good to 15 digits: for differences, not for references. */
export function approximate(value: bigint): number {
  const size = value < 0n ? -value : value;
  const drop = BigInt(Math.max(0, size.toString(2).length - 60));
  return (Number(value >> drop) * 2 ** Number(drop)) / 2 ** Number(BITS);
}

/** atan(1/q) and atanh(1/q) by their series. */
function inverseTangent(q: bigint, sign: bigint): bigint {
  let sum = 0n;
  for (let power = ONE / q, k = 1n, turn = 1n; power !== 0n; power /= q * q, k += 2n, turn *= sign)
    sum += (turn * power) / k;
  return sum;
}

export const PI: bigint = 16n * inverseTangent(5n, -1n) - 4n * inverseTangent(239n, -1n);
export const LN2: bigint = 2n * inverseTangent(3n, 1n);

/** ln x for x > 0. */
export function exactLn(x: bigint): bigint {
  let m = x;
  let n = 0n;
  for (; m > 2n * ONE; n++) m >>= 1n;
  for (; m < ONE; n--) m <<= 1n;
  const s = over(m - ONE, m + ONE);
  let sum = 0n;
  for (let power = s, k = 1n; power !== 0n && power !== -1n; power = times(power, times(s, s)), k += 2n)
    sum += power / k;
  return 2n * sum + n * LN2;
}

/** e^x. */
export function exactExp(x: bigint): bigint {
  const n = x / LN2;
  let sum = 0n;
  for (let term = ONE, k = 1n; term !== 0n && term !== -1n; term = times(term, x - n * LN2) / k, k++) sum += term;
  return n < 0n ? sum >> -n : sum << n;
}

/** sin x and cos x. */
export function exactTurn(x: bigint): { sin: bigint; cos: bigint } {
  const r = x % (2n * PI);
  const parts = [0n, 0n, 0n, 0n];
  for (let term = ONE, k = 0; term !== 0n && term !== -1n; term = times(term, r) / BigInt(k)) parts[k++ % 4]! += term;
  return { sin: parts[1]! - parts[3]!, cos: parts[0]! - parts[2]! };
}

/** Numbers in [0, 1) with 53 random bits. */
export function doubles(seed: number): () => number {
  const { next } = createRandom(seed);
  return () => (Math.floor(next() * 2 ** 27) * 2 ** 26 + Math.floor(next() * 2 ** 26)) / 2 ** 53;
}
