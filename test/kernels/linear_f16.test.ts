import { describe, expect, test } from "vitest";
import { F16_SCRATCH } from "../../assembly/layout.ts";
import { FORMATS, linearShape, packedFloats, panelsOf } from "../../src/layers/linear/formats.ts";

import {
  linear_f16,
  pack_columns_f16,
  pack_rows_f16,
  repack_columns_f16,
  repack_rows_f16,
} from "../../src/reference/linear.ts";
import { widenBf16, widenF16 } from "../../src/reference/numbers.ts";
import {
  type Arguments,
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
import { sampled } from "../support/sampled.ts";

/** Kinds of weights that take different paths: ordinary ones, many subnormals, single large and infinite ones, any bits. */
const kinds = ["ordinary", "subnormal", "large", "any"] as const;
type Kind = (typeof kinds)[number];

function randomHalves(random: Random, length: number, kind: Kind): Uint16Array {
  const halves = Uint16Array.from({ length }, () => {
    const bits = random.int(0, 0xffff);
    if (kind === "any") return bits;
    if (kind === "subnormal" && random.int(0, 3) === 0) return bits & 0x83ff;
    // Magnitudes from 2^-7 to 2.
    return (bits & 0x83ff) | (random.int(8, 15) << 10);
  });
  if (kind === "large")
    for (const bits of [0x7c00, 0xfc00, 0x7e01, 0x4000, 0xfbff]) halves[random.int(0, length - 1)] = bits;
  return halves;
}

/** Random arguments: padding between rows of x is NaN, rows of out may be longer than the panels, bias may be absent. */
function randomArguments(
  random: Random,
  rows: number,
  n: number,
  k: number,
  bf16: number,
  kind: Kind,
): Arguments<"linear_f16"> {
  const panels = panelsOf(n);
  const xStride = k + random.int(0, 5);
  const outStride = 8 * panels + random.int(0, 5);
  const x = floats(random, rows * xStride);
  for (let m = 0; m < rows; m++) x.fill(Number.NaN, m * xStride + k, (m + 1) * xStride);
  const w = new Uint16Array(packedFloats(n, k));
  repack_rows_f16(w, randomHalves(random, n * k, kind), n, k, 0, panels);
  const bias = random.int(0, 2) > 0 ? floats(random, 8 * panels) : null;
  const out = new Float32Array(rows * outStride).fill(7);
  const scratch = new Float32Array(F16_SCRATCH).fill(Number.NaN);
  const shape = linearShape(FORMATS[bf16 ? "bf16" : "f16"], { panels, k, outStride, xStride });
  return [out, x, w, scratch, bias, shape, 0, rows];
}

/** The same for linear_f32, on the widened panels. */
function widened(args: Arguments<"linear_f16">): Arguments<"linear_f32"> {
  const [out, x, w, , bias, shape, begin, end] = args;
  const wide = Float32Array.from(w, shape.bf16 ? widenBf16 : widenF16);
  return [out.slice(), x, wide, bias, shape, begin, end];
}

const bitsOf = (x: Float32Array) => new Uint32Array(x.buffer, x.byteOffset, x.length);

/** Bits, but that any NaN is as good as another. */
function expectSame(got: Float32Array, want: Float32Array, where: string): void {
  const [a, b] = [got, want].map((x) => bitsOf(x.map((value) => (Number.isNaN(value) ? Number.NaN : value))));
  const at = a!.findIndex((word, i) => word !== b![i]);
  expect(at < 0 ? "same" : `${where}: ${got[at]} for ${want[at]} at ${at}`).toBe("same");
}

describe.each(builds)("linear_f16 in the %s build", (build) => {
  const instance = load(build);
  const run = (args: Arguments<"linear_f16">) => runKernel(instance, "linear_f16", args);

  function expectBitsOfFloats(args: Arguments<"linear_f16">, where: string): void {
    const want = widened(args);
    runKernel(instance, "linear_f32", want);
    run(args);
    expectSame(args[0], want[0], where);
  }

  test.each([1, 2, 3, 4, 5, 6, 7, 11, 15, 16, 31])(
    "has the bits of linear_f32 on the same weights at %i rows",
    (rows) => {
      const random = createRandom(rows);
      const cases = kinds.flatMap((kind) =>
        [0, 1].flatMap((bf16) => [1, 8, 24, 67].flatMap((n) => [1, 4, 67].map((k) => ({ kind, bf16, n, k })))),
      );
      for (const { kind, bf16, n, k } of sampled(cases, 1, (each) => `${each.kind} ${each.bf16} ${each.n}`, rows)) {
        const args = randomArguments(random, rows, n, k, bf16, kind);
        expectBitsOfFloats(args, `${kind} ${bf16 ? "bf16" : "f16"} ${rows}x${n}x${k}`);
      }
    },
  );

  test.each(kinds)("has them when k and the panels take several blocks, of weights that are %s", (kind) => {
    const random = createRandom(7);
    const shapes = [
      [1, 67, 1100],
      [2, 40, 1025],
      [3, 40, 1025],
      [5, 24, 1537],
      [7, 70, 1030],
      [11, 40, 600],
      [16, 131, 513],
    ] as const;
    const cases = shapes.flatMap((shape) => [0, 1].map((bf16) => ({ shape, bf16 })));
    for (const { shape, bf16 } of sampled(cases, 1, (each) => each.shape[0], kinds.indexOf(kind))) {
      const [rows, n, k] = shape;
      expectBitsOfFloats(randomArguments(random, rows, n, k, bf16, kind), `${rows}x${n}x${k}`);
    }
  });

  test("has them where x has large, infinite and tiny elements, -0 and NaN, and where the scratch cannot hold x", () => {
    const random = createRandom(9);
    for (const value of [65_504, 65_536, 1e30, 1e-40, -0, Number.POSITIVE_INFINITY, Number.NaN])
      for (const rows of [1, 2, 4]) {
        const args = randomArguments(random, rows, 40, 70, 0, "subnormal");
        for (let m = 0; m < rows; m++) args[1][m * args[5].xStride + random.int(0, 69)] = value;
        expectBitsOfFloats(args, `${value} in ${rows} rows`);
      }
    for (const rows of sampled([1, 2, 5], 1, undefined, build.length))
      expectBitsOfFloats(randomArguments(random, rows, 9, F16_SCRATCH, 0, "ordinary"), "long");
  });

  test("has them for every half as a weight", () => {
    for (const bf16 of [0, 1])
      for (const rows of sampled([1, 2, 3, 6], 1, (each) => Number(each > 1), build.length)) {
        const args = randomArguments(createRandom(rows), rows, 64, 1024, bf16, "any");
        args[2] = Uint16Array.from({ length: 65_536 }, (_, i) => i);
        args[4] = null;
        // One input at a time is not 0, so that each weight is seen by itself.
        args[1].fill(0);
        for (const i of [0, 1, 500, 1023])
          for (let m = 0; m < rows; m++) args[1][m * args[5].xStride + i] = m === 0 ? 1 : -0.75;
        expectBitsOfFloats(args, `${rows} rows`);
      }
  });

  test("stays within (k + 1) roundings of the sum of magnitudes of float64", () => {
    const random = createRandom(11);
    for (const bf16 of [0, 1])
      for (const [rows, n, k] of [
        [1, 67, 600],
        [6, 20, 67],
      ] as const) {
        const args = randomArguments(random, rows, n, k, bf16, "subnormal");
        const twin = copyArguments<"linear_f16">(args);
        const size = copyArguments<"linear_f16">(args);
        for (const array of [size[1], size[4]]) array?.set(array.map(Math.abs));
        size[2].set(size[2].map((half) => half & 0x7fff));
        linear_f16(...twin);
        linear_f16(...size);
        run(args);
        const { excess, at } = worst(args[0], twin[0], (i) => (k + 1) * 2 ** -24 * size[0][i]! + k * 2 ** -149);
        expect(excess, `element ${at}`).toBeLessThanOrEqual(0);
      }
  });

  test("gives the same bits for any split of the rows", () => {
    const random = createRandom(5);
    for (let round = 0; round < 40; round++) {
      const rows = random.int(1, 30);
      const kind = kinds[round % kinds.length]!;
      const args = randomArguments(random, rows, random.int(1, 90), random.int(1, 90), round & 1, kind);
      const split = copyArguments<"linear_f16">(args);
      run(args);
      for (const [begin, end] of [...pieces(random, rows), [0, 0] as const]) {
        split[6] = begin;
        split[7] = end;
        run(split);
      }
      expectSame(split[0], args[0], `${rows} rows, ${kind}`);
    }
  });

  test("writes nothing outside its rows and 8 · panels columns", () => {
    for (const end of [3, 4, 7, 9]) {
      const args = randomArguments(createRandom(8), 9, 20, 10, 0, "ordinary");
      args[0] = new Float32Array(9 * 31).fill(7);
      args[5] = { ...args[5], outStride: 31 };
      args[6] = 2;
      args[7] = end;
      run(args);
      for (const [i, value] of args[0].entries()) {
        const inside = i >= 2 * 31 && i < end * 31 && i % 31 < 24;
        expect(value !== 7, `element ${i}`).toBe(inside);
      }
    }
  });
});

const SIZES = [1, 3, 4, 7, 8, 9, 12, 16, 31, 67];

describe.each(builds)("the packing kernels of f16 in the %s build", (build) => {
  const instance = load(build);

  test.each([
    ["pack_rows_f16", pack_rows_f16],
    ["pack_columns_f16", pack_columns_f16],
  ] as const)("%s narrows and moves as its twin does, whole and split", (name, twin) => {
    const random = createRandom(5);
    for (const bf16 of [0, 1])
      for (const n of SIZES)
        for (const k of SIZES) {
          const end = name === "pack_rows_f16" ? panelsOf(n) : k;
          const w = floats(random, n * k).map((value) => value * 2 ** random.int(-30, 20));
          w[w.length >> 1] = Number.NEGATIVE_INFINITY;
          const args: Arguments<"pack_rows_f16"> = [new Uint16Array(packedFloats(n, k)).fill(7), w, n, k, bf16, 0, end];
          const split = copyArguments<"pack_rows_f16">(args);
          const want = copyArguments<"pack_rows_f16">(args);
          twin(...want);
          runKernel(instance, name, args);
          expect(args[0], `n ${n} k ${k}`).toEqual(want[0]);
          for (const [from, to] of pieces(random, end)) {
            split[5] = from;
            split[6] = to;
            runKernel(instance, name, split);
          }
          expect(split[0], `n ${n} k ${k}`).toEqual(want[0]);
        }
  });

  test.each([
    ["repack_rows_f16", repack_rows_f16],
    ["repack_columns_f16", repack_columns_f16],
  ] as const)("%s moves every bit as its twin does, whole and split", (name, twin) => {
    const random = createRandom(6);
    for (const n of SIZES)
      for (const k of SIZES) {
        const end = name === "repack_rows_f16" ? panelsOf(n) : k;
        const w = randomHalves(random, n * k, "any");
        const args: Arguments<"repack_rows_f16"> = [new Uint16Array(packedFloats(n, k)).fill(7), w, n, k, 0, end];
        const split = copyArguments<"repack_rows_f16">(args);
        const want = copyArguments<"repack_rows_f16">(args);
        twin(...want);
        runKernel(instance, name, args);
        expect(args[0], `n ${n} k ${k}`).toEqual(want[0]);
        for (const [from, to] of pieces(random, end)) {
          split[4] = from;
          split[5] = to;
          runKernel(instance, name, split);
        }
        expect(split[0], `n ${n} k ${k}`).toEqual(want[0]);
      }
  });
});
