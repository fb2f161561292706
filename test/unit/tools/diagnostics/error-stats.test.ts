import { expect, test } from "vitest";
import { DeviationSum, divergence } from "../../../../src/tools/diagnostics/quantize-report.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";

test("deviations of crafted numbers", () => {
  const sum = new DeviationSum();
  expect(sum.result()).toEqual({ relative: 0, cosine: 1, largest: 0 });
  sum.add([9, 3, 4], [9, 3, 4], 1, 3);
  expect(sum.result()).toEqual({ relative: 0, cosine: 1, largest: 0 });
  sum.add([0], [5], 0, 1);
  expect(sum.result()).toEqual({ relative: 1, cosine: 25 / Math.sqrt(25 * 50), largest: 1.25 });
  const opposite = new DeviationSum();
  opposite.add([1, 2], [-1, -2], 0, 2);
  expect(opposite.result()).toEqual({ relative: 2, cosine: -1, largest: 2 });
  const lost = new DeviationSum();
  lost.add([1, 2], [1, Number.NaN], 0, 2);
  expect(lost.result()).toEqual({ relative: Number.NaN, cosine: Number.NaN, largest: Number.NaN });
  const nothing = new DeviationSum();
  nothing.add([0], [1], 0, 1);
  expect(nothing.result()).toEqual({
    relative: Number.POSITIVE_INFINITY,
    cosine: 0,
    largest: Number.POSITIVE_INFINITY,
  });
});

test("divergence is that of Kullback and Leibler, never below 0, and finite where a weight was rounded to 0", () => {
  const random = createRandom(8);
  const weights = () => {
    const parts = Array.from({ length: 50 }, () => random.next());
    const sum = parts.reduce((a, b) => a + b);
    return parts.map((part) => part / sum);
  };
  for (let i = 0; i < 100; i++) {
    const [p, q] = [weights(), weights()];
    const expected = p.reduce((sum, value, j) => sum + value * Math.log(value / q[j]!), 0);
    expect(divergence(p, q, 0, 50)).toBeCloseTo(expected, 13);
    expect(divergence(p, p, 0, 50)).toBe(0);
  }
  expect(divergence([0.25, 0.75], [0.75, 0.25], 0, 2)).toBeCloseTo(Math.log(3) / 2, 14);
  expect(divergence([0, 1], [0.5, 0.5], 0, 2)).toBeCloseTo(Math.log(2), 14);
  expect(divergence([1e-30, 1], [0, 1], 0, 2)).toBeLessThan(1e-27);
  expect(divergence([0, 0], [0, 0], 0, 2)).toBe(0);
});
