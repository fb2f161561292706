import { describe, expect, test } from "vitest";
import { FORMATS, linearShape, packedFloats, panelsOf } from "../../src/layers/linear/formats.ts";

import { linear_f32, pack_rows_f32 } from "../../src/reference/linear.ts";
import {
  builds,
  copyArguments,
  createRandom,
  floats,
  load,
  pieces,
  type Random,
  runKernel,
  worst,
} from "../support/harness.ts";

type Arguments = Parameters<typeof linear_f32>;

/** Random arguments: padding between rows of x is NaN, rows of out may be longer than the panels, bias may be absent. */
function randomArguments(
  random: Random,
  rows: number,
  n: number,
  k: number,
  kind?: "outlier" | "equal" | "tiny",
): Arguments {
  const panels = panelsOf(n);
  const xStride = k + random.int(0, 5);
  const outStride = 8 * panels + random.int(0, 5);
  const x = floats(random, rows * xStride, kind);
  for (let m = 0; m < rows; m++) x.fill(Number.NaN, m * xStride + k, (m + 1) * xStride);
  const w = new Float32Array(packedFloats(n, k));
  pack_rows_f32(w, floats(random, n * k, kind), n, k, 0, panels);
  const bias = random.int(0, 2) > 0 ? floats(random, 8 * panels, kind) : null;
  const shape = linearShape(FORMATS.f32, { panels, k, outStride, xStride });
  return [new Float32Array(rows * outStride).fill(7), x, w, bias, shape, 0, rows];
}

const bits = new Float64Array(1);
const words = new BigInt64Array(bits.buffer);

/** a · b + c rounded once to f32: the double sum is rounded to odd, after which rounding to f32 is exact. */
function fma(a: number, b: number, c: number): number {
  const product = a * b;
  const sum = product + c;
  const part = sum - product;
  const rest = product - (sum - part) + (c - part);
  bits[0] = sum;
  if (rest !== 0 && Number.isFinite(sum) && (words[0]! & 1n) === 0n) words[0]! += rest > 0 === sum > 0 ? 1n : -1n;
  return Math.fround(bits[0]!);
}

/** The contract, element by element: one f32 accumulator from the bias, k ascending. */
function canonical(args: Arguments, fused: boolean): Float32Array {
  const [out, x, w, bias, { panels, k, outStride, xStride }, begin, end] = args;
  const want = out.slice();
  for (let m = begin; m < end; m++)
    for (let n = 0; n < 8 * panels; n++) {
      let sum = bias ? bias[n]! : 0;
      for (let i = 0; i < k; i++) {
        const a = x[m * xStride + i]!;
        const b = w[((n >> 3) * k + i) * 8 + (n & 7)]!;
        sum = fused ? fma(a, b, sum) : Math.fround(sum + Math.fround(a * b));
      }
      want[m * outStride + n] = sum;
    }
  return want;
}

describe.each(builds)("linear_f32 in the %s build", (build) => {
  const instance = load(build);
  const run = (args: Arguments) => runKernel<"linear_f32">(instance, "linear_f32", args);

  const near = 1 + 2 ** -12;
  const probe: Arguments = [
    new Float32Array(8),
    new Float32Array([near]),
    new Float32Array(8).fill(near),
    new Float32Array(8).fill(-1 - 2 ** -11),
    linearShape(FORMATS.f32, { panels: 1, k: 1, outStride: 8, xStride: 1 }),
    0,
    1,
  ];
  run(probe);
  const fused = probe[0][0] !== 0;

  test.each([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 31])(
    "has the bits of one ascending accumulator at %i rows",
    (rows) => {
      const random = createRandom(rows);
      expect(fused && build !== "relaxed").toBe(false);
      for (const n of [1, 7, 8, 9, 24, 32, 40, 67])
        for (const k of [1, 2, 3, 4, 31, 64, 67]) {
          const args = randomArguments(random, rows, n, k);
          const want = canonical(args, fused);
          run(args);
          expect(args[0]).toEqual(want);
        }
    },
  );

  test("has the same bits when k and the panels take several blocks", () => {
    const random = createRandom(3);
    for (const [rows, n, k] of [
      [1, 300, 1100],
      [5, 131, 1025],
      [7, 270, 600],
      [8, 129, 513],
      [13, 131, 513],
      [16, 140, 1030],
      [2, 40, 4099],
      [3, 15, 4097],
      [4, 19, 4098],
      [9, 24, 4100],
    ] as const) {
      const args = randomArguments(random, rows, n, k);
      const want = canonical(args, fused);
      run(args);
      expect(args[0]).toEqual(want);
    }
  });

  test("has the same bits when the stride of out announces a matrix larger than caches", () => {
    const random = createRandom(17);
    for (const [rows, n, k] of [
      [1, 40, 2050],
      [2, 67, 1030],
      [3, 24, 4100],
      [6, 32, 1027],
    ] as const) {
      const args = randomArguments(random, rows, n, k);
      args[4] = { ...args[4], outStride: 2 ** 13 };
      args[0] = new Float32Array(rows * 2 ** 13).fill(7);
      const want = canonical(args, fused);
      run(args);
      expect(args[0]).toEqual(want);
    }
  });

  test("stays within (k + 1) ulp of the sum of magnitudes of float64", () => {
    const random = createRandom(11);
    for (const kind of [undefined, "outlier", "equal", "tiny"] as const)
      for (const [rows, n, k] of [
        [1, 67, 31],
        [6, 20, 67],
        [11, 33, 600],
      ] as const) {
        const args = randomArguments(random, rows, n, k, kind);
        const twin = copyArguments<"linear_f32">(args);
        const size = copyArguments<"linear_f32">(args);
        for (const array of [size[1], size[2], size[3]]) array?.set(array.map(Math.abs));
        linear_f32(...twin);
        linear_f32(...size);
        run(args);
        const { excess, at } = worst(args[0], twin[0], (i) => (k + 1) * 2 ** -24 * size[0][i]! + k * 2 ** -149);
        expect(excess, `element ${at}`).toBeLessThanOrEqual(0);
      }
  });

  test("gives the same bits for any split of the rows, with NaN and infinities among them", () => {
    const random = createRandom(5);
    for (let round = 0; round < 40; round++) {
      const rows = random.int(1, 40);
      const args = randomArguments(random, rows, random.int(1, 150), random.int(1, 90));
      for (const value of [Number.NaN, Number.POSITIVE_INFINITY, -0])
        args[1][random.int(0, args[1].length - 1)] = value;
      const split = copyArguments<"linear_f32">(args);
      run(args);
      for (const [begin, end] of [...pieces(random, rows), [0, 0] as const]) {
        split[5] = begin;
        split[6] = end;
        run(split);
      }
      expect(split[0]).toEqual(args[0]);
    }
  });

  test("writes nothing outside its rows and 8 · panels columns", () => {
    const args = randomArguments(createRandom(8), 9, 20, 10);
    args[0] = new Float32Array(9 * 31).fill(7);
    args[4] = { ...args[4], outStride: 31 };
    args[5] = 2;
    args[6] = 7;
    run(args);
    for (const [i, value] of args[0].entries()) {
      const inside = i >= 2 * 31 && i < 7 * 31 && i % 31 < 24;
      expect(value !== 7, `element ${i}`).toBe(inside);
    }
  });
});
