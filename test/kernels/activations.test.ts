import { describe, expect, test } from "vitest";
import {
  ACT_GELU,
  ACT_GELU_TANH,
  ACT_RELU,
  ACT_RELU_SQUARED,
  ACT_SIGMOID,
  ACT_SWISH,
  ROUNDED,
} from "../../assembly/layout.ts";
import { integerRowBytes } from "../../src/layers/linear/formats.ts";
import { quantize_rows } from "../../src/reference/linear.ts";
import { readRow } from "../../src/reference/numbers.ts";
import {
  activate_f32,
  add_scaled_f32,
  cap_logits_f32,
  limit_f32,
  round_rows_f32,
  xielu_f32,
} from "../../src/reference/pointwise.ts";
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

const U = 2 ** -24;

/** Kinds with their alpha, and how many roundings they are within at x, for x above -9. */
const KINDS: readonly [name: string, kind: number, alpha: number, roundings: (x: number) => number][] = [
  ["silu", ACT_SWISH, 1, () => 6],
  // The argument of the exponential is rounded: twice, or four times.
  ["quick gelu", ACT_SWISH, 1.702, (x) => 6 + 2 * Math.abs(1.702 * x)],
  ["gelu", ACT_GELU, 0, (x) => 14 + x * x],
  ["gelu by tanh", ACT_GELU_TANH, 0, (x) => 6 + 5 * Math.abs(1.6 * x + 0.0714 * x ** 3)],
  ["relu", ACT_RELU, 0, () => 0],
  ["relu squared", ACT_RELU_SQUARED, 0, () => 1],
  ["sigmoid", ACT_SIGMOID, 0, () => 4],
];

interface Rows {
  readonly n: number;
  readonly rows: number;
  readonly limit: number;
  readonly layout: "plain" | "gated" | "halves";
}

/** Floats that reach where each kind bends, a few beyond. */
const gates = (random: Random, length: number) => floats(random, length).map((v) => v * 2);

function argumentsOf(random: Random, kind: number, alpha: number, { n, rows, limit, layout }: Rows) {
  const gateStride = layout === "halves" ? 2 * n : n + 3;
  const upStride = layout === "gated" ? n + 1 : gateStride;
  const gate = gates(random, rows * gateStride);
  const up = layout === "gated" ? floats(random, rows * upStride) : null;
  const shape = { kind, n, outStride: n + 2, gateStride, upStride, alpha, limit };
  const args: Arguments<"activate_f32"> = [new Float32Array(rows * (n + 2)), gate, up, shape, 0, rows];
  return args;
}

describe.each(builds)("activate_f32 in the %s build", (build) => {
  const instance = load(build);

  test.each(KINDS)(
    "%s is within its bound of float64, plain and gated, whole and in pieces",
    (_, kind, alpha, most) => {
      const random = createRandom(kind + 1);
      const rows = 5;
      for (const n of [1, 3, 4, 5, 8, 31, 67])
        for (const layout of ["plain", "gated"] as const)
          for (const limit of [0, 1.5]) {
            const args = argumentsOf(random, kind, alpha, { n, rows, limit, layout });
            const { gateStride, outStride } = args[3];
            const twin = copyArguments<"activate_f32">(args);
            const split = copyArguments<"activate_f32">(args);
            activate_f32(...twin);
            runKernel(instance, "activate_f32", args);
            const { excess, at } = worst(args[0], twin[0], (i) => {
              const x = args[1][Math.floor(i / outStride) * gateStride + (i % outStride)]!;
              return (most(x) + 4) * U * Math.abs(twin[0][i]!) + 2 ** -149;
            });
            expect(excess, `element ${at}`).toBeLessThanOrEqual(0);
            for (const [begin, end] of pieces(random, rows)) {
              split[4] = begin;
              split[5] = end;
              runKernel(instance, "activate_f32", split);
            }
            expect(split[0]).toEqual(args[0]);
          }
    },
  );

  test("in place over gate or up it gives the same bits", () => {
    const random = createRandom(7);
    const [n, rows] = [13, 3];
    const [gate, up] = [gates(random, rows * n), gates(random, rows * n)];
    const shape = { kind: ACT_SWISH, n, outStride: n, gateStride: n, upStride: n, alpha: 1, limit: 0 };
    const out = new Float32Array(rows * n);
    runKernel(instance, "activate_f32", [out, gate.slice(), up.slice(), shape, 0, rows]);
    const [overGate, overUp] = [gate.slice(), up.slice()];
    runKernel(instance, "activate_f32", [overGate, overGate, up.slice(), shape, 0, rows]);
    runKernel(instance, "activate_f32", [overUp, gate.slice(), overUp, shape, 0, rows]);
    expect(overGate).toEqual(out);
    expect(overUp).toEqual(out);
  });

  test("gpt-oss' clamps: the gate from above, up on both sides and one more", () => {
    const shape = { kind: ACT_SWISH, n: 4, outStride: 4, gateStride: 4, upStride: 4, alpha: 1.702, limit: 7 };
    const out = new Float32Array(4);
    const gate = Float32Array.of(100, -100, 7, 1);
    runKernel(instance, "activate_f32", [out, gate, Float32Array.of(100, 1, -100, -1), shape, 0, 1]);
    const seven = 7 / (1 + Math.exp(-1.702 * 7));
    expect(out[0]).toBeCloseTo(8 * seven, 4);
    expect(Math.abs(out[1]!)).toBeLessThan(1e-30);
    expect(out[2]).toBeCloseTo(-6 * seven, 4);
    expect(out[3]).toBe(0);
  });

  test("NaN passes element by element; the far ends are x, and 0; of the sigmoid 1, and 0", () => {
    for (const [name, kind, alpha] of KINDS) {
      const shape = { kind, n: 6, outStride: 6, gateStride: 6, upStride: 6, alpha, limit: 0 };
      const out = new Float32Array(6);
      const x = Float32Array.of(Number.NaN, 1, Number.POSITIVE_INFINITY, -1e30, 0, -0);
      runKernel(instance, "activate_f32", [out, x, null, shape, 0, 1]);
      expect(
        out.map((v) => (Number.isNaN(v) ? 7 : 0)),
        name,
      ).toEqual(Float32Array.of(7, 0, 0, 0, 0, 0));
      const isSigmoid = kind === ACT_SIGMOID;
      expect(out[2], name).toBe(isSigmoid ? 1 : Number.POSITIVE_INFINITY);
      const middle = isSigmoid ? 0.5 : 0;
      expect([Math.abs(out[3]!), Math.abs(out[4]!), Math.abs(out[5]!)], name).toEqual([0, middle, middle]);
      const up = Float32Array.of(1, Number.NaN, 1, 1, 1, 1);
      const gated = new Float32Array(6);
      runKernel(instance, "activate_f32", [gated, x, up, shape, 0, 1]);
      expect(
        gated.map((v) => (Number.isNaN(v) ? 7 : 0)),
        name,
      ).toEqual(Float32Array.of(7, 7, 0, 0, 0, 0));
    }
  });
});

describe.each(builds)("add_scaled_f32 and cap_logits_f32 in the %s build", (build) => {
  const instance = load(build);

  test.each([1, 3, 4, 5, 31, 67])("x + scale · y is within two roundings, exact for scale 1, at n = %i", (n) => {
    const random = createRandom(n);
    const rows = 4;
    for (const scale of [1, 0.22]) {
      const [x, y] = [floats(random, rows * n), floats(random, rows * n)];
      const args: Arguments<"add_scaled_f32"> = [new Float32Array(rows * n), x, y, n, Math.fround(scale), 0, rows];
      const twin = copyArguments<"add_scaled_f32">(args);
      const split = copyArguments<"add_scaled_f32">(args);
      const inPlace = copyArguments<"add_scaled_f32">(args);
      add_scaled_f32(...twin);
      runKernel(instance, "add_scaled_f32", args);
      const allowed = (i: number) => (scale === 1 ? 0 : 2 * U * (Math.abs(x[i]!) + Math.abs(y[i]!)));
      expect(worst(args[0], twin[0], allowed).excess).toBeLessThanOrEqual(0);
      for (const [begin, end] of pieces(random, rows)) {
        split[5] = begin;
        split[6] = end;
        runKernel(instance, "add_scaled_f32", split);
      }
      expect(split[0]).toEqual(args[0]);
      inPlace[0] = inPlace[1];
      runKernel(instance, "add_scaled_f32", inPlace);
      expect(inPlace[0]).toEqual(args[0]);
    }
  });

  test.each([1, 3, 4, 31, 67])("logits are scaled and capped within 6 ulp of tanh at n = %i", (n) => {
    const random = createRandom(n);
    const [rows, stride] = [3, n + 5];
    for (const softcap of [0, 30])
      for (const scale of [1, 0.0625]) {
        const x = floats(random, rows * stride).map((v) => v * 40);
        for (let r = 0; r < rows; r++) x.fill(Number.NaN, r * stride + n, (r + 1) * stride);
        const args: Arguments<"cap_logits_f32"> = [x, n, stride, scale, softcap, 0, rows];
        const twin = copyArguments<"cap_logits_f32">(args);
        const split = copyArguments<"cap_logits_f32">(args);
        cap_logits_f32(...twin);
        runKernel(instance, "cap_logits_f32", args);
        const { excess } = worst(args[0], twin[0], (i) => (softcap === 0 ? 0 : 12 * U * Math.abs(twin[0][i] || 0)));
        expect(excess).toBeLessThanOrEqual(0);
        for (const [begin, end] of pieces(random, rows)) {
          split[5] = begin;
          split[6] = end;
          runKernel(instance, "cap_logits_f32", split);
        }
        expect(split[0]).toEqual(args[0]);
      }
  });
});

describe.each(builds)("limit_f32, xielu_f32 and round_rows_f32 in the %s build", (build) => {
  const instance = load(build);
  const sizes = [1, 3, 4, 31, 67];

  /** Rows of n floats, NaN between them. */
  function rowsOf(random: Random, n: number, rows: number, stride: number): Float32Array {
    const x = floats(random, rows * stride).map((v) => v * 3);
    for (let r = 0; r < rows; r++) x.fill(Number.NaN, r * stride + n, (r + 1) * stride);
    return x;
  }

  test.each(sizes)("rounded rows have the bits of the twin, whole and split, at n = %i", (n) => {
    const random = createRandom(n);
    const [rows, stride] = [6, n + 5];
    const x = rowsOf(random, n, rows, stride);
    x[stride] = Number.NaN;
    x[2 * stride] = Number.NEGATIVE_INFINITY;
    x.fill(1e-7, 3 * stride, 3 * stride + n);
    x.fill(-0, 4 * stride, 4 * stride + n);
    const args: Arguments<"round_rows_f32"> = [x, n, stride, 0, rows];
    const twin = copyArguments<"round_rows_f32">(args);
    const split = copyArguments<"round_rows_f32">(args);
    round_rows_f32(...twin);
    runKernel(instance, "round_rows_f32", args);
    expect(args[0]).toEqual(twin[0]);
    for (const [begin, end] of pieces(random, rows)) {
      split[3] = begin;
      split[4] = end;
      runKernel(instance, "round_rows_f32", split);
    }
    expect(split[0]).toEqual(args[0]);
    // Integers of 14 bits are 64 times those of the row.
    const integers = new Uint8Array(integerRowBytes(n));
    quantize_rows(integers, args[0], n, stride, 0, ROUNDED, 0, 1);
    const row = readRow(integers, 0, 0, n);
    expect(row.integers.slice(0, n).every((q) => q % 64 === 0 && Math.abs(q) <= 64 * 127)).toBe(true);
    const error = (i: number) => Math.abs((args[0][i] as number) - (row.integers[i] as number) * row.scale);
    expect(Math.max(...Array.from({ length: n }, (_, i) => error(i)))).toBeLessThan(1e-6);
  });

  test.each(sizes)("limits are exact, on both sides, and keep NaN, at n = %i", (n) => {
    const random = createRandom(n);
    const [rows, stride] = [3, n + 5];
    const x = rowsOf(random, n, rows, stride);
    x[0] = Number.NaN;
    const args: Arguments<"limit_f32"> = [x, n, stride, 1.5, 0, rows];
    const twin = copyArguments<"limit_f32">(args);
    const split = copyArguments<"limit_f32">(args);
    limit_f32(...twin);
    runKernel(instance, "limit_f32", args);
    expect(args[0]).toEqual(twin[0]);
    for (const [begin, end] of pieces(random, rows)) {
      split[4] = begin;
      split[5] = end;
      runKernel(instance, "limit_f32", split);
    }
    expect(split[0]).toEqual(args[0]);
  });

  test.each(sizes)("xielu is within 16 roundings of its terms, far and near 0, at n = %i", (n) => {
    const random = createRandom(n);
    const [rows, stride, positive, negative, beta] = [4, n + 5, 0.75, 1.25, 0.5];
    const x = rowsOf(random, n, rows, stride);
    // Near 0, where the difference of the formula has lost its digits.
    for (let i = 0; i < stride; i++) x[i] = (x[i] as number) * 1e-4;
    const args: Arguments<"xielu_f32"> = [x.slice(), n, stride, positive, negative, beta, 0, rows];
    const twin = copyArguments<"xielu_f32">(args);
    const split = copyArguments<"xielu_f32">(args);
    xielu_f32(...twin);
    runKernel(instance, "xielu_f32", args);
    const { excess, at } = worst(args[0], twin[0], (i) => {
      const v = x[i] as number;
      if (Number.isNaN(v)) return 0;
      const curve = v > 0 ? positive * v * v : negative * (Math.expm1(v) - v + (v < -1 ? 1 - v : 0));
      return 16 * U * (curve + Math.abs(beta * v)) + 2 ** -149;
    });
    expect(excess, `element ${at}`).toBeLessThanOrEqual(0);
    for (const [begin, end] of pieces(random, rows)) {
      split[6] = begin;
      split[7] = end;
      runKernel(instance, "xielu_f32", split);
    }
    expect(split[0]).toEqual(args[0]);
  });
});
