import { expect, test } from "vitest";
import { cosine, exp, ln, pow, sine } from "../../../../src/base/util/math.ts";
import {
  approximate,
  doubles,
  exactExp,
  exactLn,
  exactTurn,
  fixed,
  LN2,
  ONE,
  over,
  PI,
  times,
} from "../../../support/fixed-point.ts";

/** Angles beyond it give NaN. */
const LARGEST_ANGLE = 2 ** 31;

/** The distance between neighbouring float64 around x. */
function ulp(x: number): number {
  let power = 1;
  for (; power > Math.abs(x); power /= 2);
  for (; power * 2 <= Math.abs(x); power *= 2);
  return Math.max(power * 2 ** -52, Number.MIN_VALUE);
}

const distance = (got: number, exact: bigint): number => Math.abs(approximate(fixed(got) - exact));
const worst = (count: number, error: () => number): number => Math.max(...Array.from({ length: count }, error));

test("the exact side knows pi, e, ln 10 and sin 1 to 30 digits", () => {
  const digits = (value: bigint) => ((value * 10n ** 30n) / ONE).toString();
  expect(digits(PI)).toBe("3141592653589793238462643383279");
  expect(digits(exactExp(ONE))).toBe("2718281828459045235360287471352");
  expect(digits(exactLn(10n * ONE))).toBe("2302585092994045684017991454684");
  expect(digits(exactTurn(ONE).sin)).toBe("841470984807896506652502321630");
  expect(digits(exactTurn(ONE).cos)).toBe("540302305868139717400936607442");
});

test("ln stays within 1.5 ulp from 2^-40 to 2^40 and close to 1", () => {
  const random = doubles(1);
  const error = (x: number) => distance(ln(x), exactLn(fixed(x))) / ulp(ln(x));
  expect(worst(1500, () => error((0.5 + random()) * 2 ** Math.floor(random() * 80 - 40)))).toBeLessThan(1.5);
  expect(worst(1500, () => error(0.6 + random()))).toBeLessThan(1.5);
  expect(worst(300, () => error(1 + (random() - 0.5) * 2 ** -20))).toBeLessThan(1.5);
  for (const edge of [0.7, 1.4, 2, 0.5])
    expect(worst(100, () => error(edge + (random() - 0.5) / 64))).toBeLessThan(1.5);
});

test("ln has the limits of the logarithm, also for the smallest and the largest number", () => {
  expect([ln(1), ln(0), ln(-0), ln(Infinity)]).toEqual([0, -Infinity, -Infinity, Infinity]);
  expect([ln(-1), ln(-Infinity), ln(Number.NaN)]).toEqual([Number.NaN, Number.NaN, Number.NaN]);
  expect(ln(5e-324)).toBe(-744.4400719213812);
  expect(ln(1.7976931348623157e308)).toBe(709.782712893384);
});

test("exp stays within 1 ulp on [-50, 50]", () => {
  const random = doubles(2);
  const error = (x: number) => distance(exp(x), exactExp(fixed(x))) / ulp(exp(x));
  expect(worst(1500, () => error(random() * 100 - 50))).toBeLessThan(1);
  expect(worst(1500, () => error(random() - 0.5))).toBeLessThan(1);
});

test("exp has the limits of the exponential and keeps its subnormal results", () => {
  expect([exp(0), exp(-Infinity), exp(Infinity), exp(-746), exp(710)]).toEqual([1, 0, Infinity, 0, Infinity]);
  expect(exp(Number.NaN)).toBe(Number.NaN);
  expect(exp(-745)).toBe(5e-324);
  const ratio = approximate(over(fixed(exp(709.75)), exactExp(fixed(709.75))));
  expect(Math.abs(ratio - 1)).toBeLessThan(2 ** -52);
  // Scaled by 2^1040, where the fixed point has all its digits and the smallest number is 2^-34.
  const subnormal = approximate(exactExp(fixed(-720) + 1040n * LN2));
  expect(Math.abs(exp(-720) * 2 ** 600 * 2 ** 440 - subnormal)).toBeLessThan(2 ** -34);
});

test("pow has a relative error of at most (2 + |exponent|)·2^-52", () => {
  const random = doubles(3);
  const error = (base: number, exponent: number) => {
    const got = pow(base, exponent);
    const exact = exactExp(times(fixed(exponent), exactLn(fixed(base))));
    return distance(got, exact) / got / (2 + Math.abs(exponent)) / 2 ** -52;
  };
  expect(worst(1000, () => error(2 ** (random() * 60 - 30), random() * 2 - 1))).toBeLessThan(1);
  expect(worst(1000, () => error(1 + random() * 9, random() * 40 - 20))).toBeLessThan(1);
});

test("pow of a power of two to a whole result is exact from 2^-1074 to 2^1023", () => {
  for (let n = -1074; n < 1024; n++) expect(pow(2, n)).toBe(2 ** n);
  for (const quarter of [-0.25, -0.5, -0.75, 1.25]) expect(pow(65536, quarter)).toBe(2 ** (16 * quarter));
  expect([pow(2, 1024), pow(2, -1076), pow(3, 0), pow(1, 1e300), pow(7, 1)]).toEqual([Infinity, 0, 1, 1, 7]);
  expect([pow(0, 1), pow(-2, 2), pow(Infinity, 1)]).toEqual([Number.NaN, Number.NaN, Number.NaN]);
});

test("sine and cosine stay within 2^-52 for |angle| up to 2^31", () => {
  const random = doubles(4);
  const error = (x: number) => {
    const { sin, cos } = exactTurn(fixed(x));
    return Math.max(distance(sine(x), sin), distance(cosine(x), cos));
  };
  for (const largest of [1, 10, 2 ** 20, 2 ** 24, LARGEST_ANGLE])
    expect(worst(600, () => error((random() * 2 - 1) * largest))).toBeLessThan(2 ** -52);
  for (const whole of [2 ** 20, LARGEST_ANGLE])
    expect(worst(600, () => error(Math.floor(random() * whole)))).toBeLessThan(2 ** -52);
  for (const edge of [0, LARGEST_ANGLE, -LARGEST_ANGLE]) expect(error(edge)).toBeLessThan(2 ** -52);
});

test("sine and cosine stay within 2^-52 at the float64 nearest to multiples of pi/4, where cancellation is worst", () => {
  const random = doubles(5);
  const error = () => {
    const multiple = BigInt(Math.floor(random() * 2 ** 31));
    const x = approximate((multiple * PI) / 4n);
    const { sin, cos } = exactTurn(fixed(x));
    return Math.max(distance(sine(x), sin), distance(cosine(x), cos));
  };
  expect(worst(1000, error)).toBeLessThan(2 ** -52);
});

test("sine and cosine are NaN where their reduction does not reach", () => {
  for (const x of [LARGEST_ANGLE + 1, -LARGEST_ANGLE - 1, Infinity, Number.NaN])
    expect([sine(x), cosine(x)]).toEqual([Number.NaN, Number.NaN]);
});

test("sine is odd and cosine is even, bit for bit", () => {
  const random = doubles(6);
  for (let i = 0; i < 1000; i++) {
    const x = random() * 100;
    expect(sine(-x)).toBe(-sine(x));
    expect(cosine(-x)).toBe(cosine(x));
  }
});
