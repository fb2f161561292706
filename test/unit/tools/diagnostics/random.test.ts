import { expect, test } from "vitest";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";

test("the first numbers of seeds 0, 1 and 2 are those that the published digests were made of", () => {
  const first = (seed: number) => Array.from(new Uint32Array(createRandom(seed).floats(3).buffer));
  expect([0, 1, 2].map(first)).toEqual([
    [3204694668, 1059331233, 3181745491],
    [3200308711, 3209359040, 1051218952],
    [3195293036, 3194480768, 1060964018],
  ]);
});

test("floats are in [-1, 1), and twice the next number less 1", () => {
  const [random, same] = [createRandom(3), createRandom(3)];
  const floats = random.floats(1000);
  expect(floats.every((x) => x >= -1 && x < 1 && x === Math.fround(2 * same.next() - 1))).toBe(true);
});

test("integers reach both ends of their range and nothing beyond, 6000 of a die with each side 900 to 1100 times", () => {
  const random = createRandom(4);
  const counts = new Map<number, number>();
  for (let i = 0; i < 6000; i++) {
    const side = random.int(1, 6);
    counts.set(side, (counts.get(side) ?? 0) + 1);
  }
  expect([...counts.keys()].sort()).toEqual([1, 2, 3, 4, 5, 6]);
  expect([...counts.values()].filter((count) => count < 900 || count > 1100)).toEqual([]);
});

test("10,000 normal numbers have a mean within 0.05 of 0 and a mean square within 0.05 of 1", () => {
  const random = createRandom(5);
  const numbers = Array.from({ length: 10_000 }, () => random.normal());
  const mean = (of: (x: number) => number) => numbers.reduce((sum, x) => sum + of(x), 0) / numbers.length;
  expect(Math.abs(mean((x) => x))).toBeLessThan(0.05);
  expect(Math.abs(mean((x) => x * x) - 1)).toBeLessThan(0.05);
});
