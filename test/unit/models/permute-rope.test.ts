import { describe, expect, test } from "vitest";
import { checkRope, type RopeWithDim, ropeTables } from "../../../src/attention/rope.ts";
import { permuteRope } from "../../../src/models/permute-rope.ts";
import { bitsEach, toFloats } from "../../../src/tensor/dtypes.ts";
import { randoms } from "../../support/fixed-point.ts";

const llama3 = { kind: "llama3", factor: 32, lowFreqFactor: 1, highFreqFactor: 4, originalMaxSeqLen: 8192 };
const gptOss = { kind: "yarn", factor: 32, originalMaxSeqLen: 4096, betaFast: 32, betaSlow: 1, truncate: false };

const rope = (theta: number, dim: number, scaling?: unknown): RopeWithDim =>
  ({ theta, dim, pairing: "half", scaling }) as RopeWithDim;

describe("checkRope", () => {
  const base = { theta: 10_000, pairing: "half" as const };
  const yarn = { kind: "yarn", factor: 2, originalMaxSeqLen: 64 };

  test("fills in dim and copies", () => {
    expect(checkRope("f", base, 64)).toEqual({ theta: 10_000, pairing: "half", dim: 64 });
    const scaling = { kind: "linear" as const, factor: 2 };
    const checked = checkRope("f", { ...base, dim: 32, scaling }, 64);
    expect(checked).toEqual({ theta: 10_000, pairing: "half", dim: 32, scaling });
    expect(checked.scaling).not.toBe(scaling);
    const factors = { kind: "factors" as const, factors: Float32Array.of(1, 2.5) };
    const copied = checkRope("f", { ...base, scaling: factors }, 4).scaling as typeof factors;
    expect(copied).toEqual(factors);
    expect(copied.factors).not.toBe(factors.factors);
    for (const good of [llama3, gptOss, yarn, { kind: "ntk", factor: 1 }])
      expect(checkRope("f", rope(10_000, 64, good), 64).scaling).toEqual(good);
  });

  test.each([
    ["rope.theta expected a finite number > 0, got 0", RangeError, { theta: 0 }],
    ["rope.theta expected a finite number > 0, got Infinity", RangeError, { theta: Infinity }],
    ["rope.theta expected a finite number >= 1, got 0.5", RangeError, { theta: 0.5 }],
    ['rope.theta expected a finite number > 0, got "10000"', TypeError, { theta: "10000" }],
    [
      'rope.pairing expected "half" or "interleaved" (no default: a wrong one is silent), got undefined',
      RangeError,
      { pairing: undefined },
    ],
    [
      'rope.pairing expected "half" or "interleaved" (no default: a wrong one is silent), got "neox"',
      RangeError,
      { pairing: "neox" },
    ],
    ["rope.dim expected an even integer from 2 to headDim (64), got 0", RangeError, { dim: 0 }],
    ["rope.dim expected an even integer from 2 to headDim (64), got 7", RangeError, { dim: 7 }],
    ["rope.dim expected an even integer from 2 to headDim (64), got 66", RangeError, { dim: 66 }],
    ['rope.dim expected an even integer from 2 to headDim (64), got "8"', TypeError, { dim: "8" }],
    ['rope.scaling expected an object, got "yarn"', TypeError, { scaling: "yarn" }],
    [
      'rope.scaling.kind expected "linear" or "ntk" or "llama3" or "yarn" or "factors", got "dynamic"',
      RangeError,
      { scaling: { kind: "dynamic", factor: 2 } },
    ],
    [
      "rope.scaling.factor expected a finite number >= 1, got 0.5",
      RangeError,
      { scaling: { kind: "linear", factor: 0.5 } },
    ],
    ["rope.scaling.factor expected a finite number >= 1, got undefined", TypeError, { scaling: { kind: "linear" } }],
    [
      "rope.scaling.factor expected a finite number >= 1, got NaN",
      RangeError,
      { scaling: { kind: "ntk", factor: Number.NaN } },
    ],
    [
      "rope.dim expected an even integer >= 4 for ntk scaling, got 2",
      RangeError,
      { dim: 2, scaling: { kind: "ntk", factor: 2 } },
    ],
    [
      "rope.scaling.highFreqFactor expected a finite number > lowFreqFactor (1), got 1",
      RangeError,
      { scaling: { ...llama3, highFreqFactor: 1 } },
    ],
    [
      "rope.scaling.lowFreqFactor expected a finite number > 0, got -1",
      RangeError,
      { scaling: { ...llama3, lowFreqFactor: -1 } },
    ],
    [
      "rope.scaling.originalMaxSeqLen expected an integer >= 1, got 0",
      RangeError,
      { scaling: { ...llama3, originalMaxSeqLen: 0 } },
    ],
    [
      "rope.scaling.originalMaxSeqLen expected an integer >= 1, got undefined",
      TypeError,
      { scaling: { kind: "yarn", factor: 2 } },
    ],
    ["rope.theta expected a finite number > 1 for yarn scaling, got 1", RangeError, { theta: 1, scaling: yarn }],
    [
      "rope.scaling.betaFast expected a finite number > betaSlow (1), got 1",
      RangeError,
      { scaling: { ...yarn, betaFast: 1 } },
    ],
    ["rope.scaling.betaSlow expected a finite number > 0, got 0", RangeError, { scaling: { ...yarn, betaSlow: 0 } }],
    [
      "rope.scaling.attentionFactor expected a finite number > 0, got 0",
      RangeError,
      { scaling: { ...yarn, attentionFactor: 0 } },
    ],
    ["rope.scaling.mscale expected a finite number >= 0, got -1", RangeError, { scaling: { ...yarn, mscale: -1 } }],
    [
      "rope.scaling.mscaleAllDim expected a finite number >= 0, got Infinity",
      RangeError,
      { scaling: { ...yarn, mscaleAllDim: Infinity } },
    ],
    [
      "rope.scaling.factors expected Float32Array, got Array",
      TypeError,
      { scaling: { kind: "factors", factors: [1, 2] } },
    ],
    [
      "rope.scaling.factors expected one a pair (32), got 2",
      RangeError,
      { scaling: { kind: "factors", factors: Float32Array.of(1, 2) } },
    ],
    [
      "rope.scaling.factors[31] expected a finite number >= 1, got 0.5",
      RangeError,
      { scaling: { kind: "factors", factors: new Float32Array(32).fill(1).fill(0.5, 31) } },
    ],
    [
      'rope.scaling expected only kind, factors, got "factor"',
      TypeError,
      { scaling: { kind: "factors", factors: new Float32Array(32).fill(1), factor: 1 } },
    ],
    ["rope.scaling.truncate expected true or false, got 1", TypeError, { scaling: { ...yarn, truncate: 1 } }],
  ])("says %s", (text, kind, fields) => {
    const bad = { ...base, ...fields } as unknown as RopeWithDim;
    expect(() => checkRope("f", bad, 64)).toThrow(new kind(`f: ${text}`));
    expect(() => checkRope("f", bad, 64)).toThrow(kind);
  });

  test("names an odd headDim where dim is not given", () => {
    expect(() => checkRope("f", base, 63)).toThrow(
      new RangeError("f: rope.dim expected an even integer from 2 to headDim (63), got 63"),
    );
    expect(() => checkRope("f", null as never, 64)).toThrow(new TypeError("f: rope expected an object, got null"));
  });
});

describe("permuteRope", () => {
  const random = randoms(9);
  const matrix = (rows: number, columns: number) => ({
    data: Float32Array.from({ length: rows * columns }, () => random() - 0.5),
    shape: [rows, columns],
  });

  test("puts the pairs of each head side by side and leaves the rest of a partly rotated head", () => {
    const rows = { data: Float32Array.from({ length: 16 }, (_, i) => i), shape: [16] };
    expect([...permuteRope(rows, 2, "half").data]).toEqual([0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]);
    expect([...permuteRope(rows, 2, "half", 6).data]).toEqual([0, 3, 1, 4, 2, 5, 6, 7, 8, 11, 9, 12, 10, 13, 14, 15]);
    expect([...permuteRope(rows, 2, "interleaved", 6).data]).toEqual([
      0, 2, 4, 1, 3, 5, 6, 7, 8, 10, 12, 9, 11, 13, 14, 15,
    ]);
  });

  test("goes there and back bit for bit and leaves its argument alone", () => {
    for (const dim of [undefined, 2, 6, 10]) {
      const weight = matrix(30, 7);
      const before = weight.data.slice();
      for (const [from, back] of [
        ["half", "interleaved"],
        ["interleaved", "half"],
      ] as const) {
        const there = permuteRope(weight, 3, from, dim);
        expect(there.shape).toEqual([30, 7]);
        expect(permuteRope(there, 3, back, dim).data).toEqual(before);
        expect(permuteRope(there, 3, from, dim).data).not.toBe(there.data);
      }
      expect(weight.data).toEqual(before);
    }
  });

  test.each(["F32", "F16", "Q8_0", "Q4_0", "F64"] as const)("moves rows of %s as they are stored", (dtype) => {
    const [rows, columns] = [24, 64];
    const data = matrix(rows, columns);
    const width = (columns * bitsEach(dtype)) / 8;
    const bytes = Uint8Array.from({ length: rows * width }, (_, i) => i * 31 + (i >> 8) * 7);
    const stored = { name: "w", dtype, shape: [rows, columns], bytes };
    for (const dim of [undefined, 6]) {
      const got = permuteRope(stored, 3, "half", dim);
      expect([got.name, got.dtype, got.shape]).toEqual(["w", dtype, [rows, columns]]);
      // The first float of a row tells which row it was.
      const order = permuteRope(
        { data: Float32Array.from({ length: rows }, (_, i) => i), shape: [rows] },
        3,
        "half",
        dim,
      );
      for (const [to, from] of order.data.entries())
        expect(got.bytes.subarray(to * width, (to + 1) * width)).toEqual(
          bytes.subarray(from * width, (from + 1) * width),
        );
      expect(permuteRope(got, 3, "interleaved", dim)).toEqual(stored);
    }
    const f32 = { name: "w", dtype: "F32", shape: data.shape, bytes: new Uint8Array(data.data.buffer) } as const;
    expect(toFloats(permuteRope(f32, 3, "half"))).toEqual(permuteRope(data, 3, "half").data);
  });

  test("leaves a Buffer alone, and moves the bytes of a bias", () => {
    const bytes = Buffer.from([1, 0, 2, 0, 3, 0, 4, 0]);
    const got = permuteRope({ name: "b", dtype: "BF16", shape: [4], bytes }, 1, "half");
    expect([...got.bytes]).toEqual([1, 0, 3, 0, 2, 0, 4, 0]);
    expect([...bytes]).toEqual([1, 0, 2, 0, 3, 0, 4, 0]);
  });

  const blocks = { name: "w", dtype: "Q8_0", shape: [2, 32], bytes: new Uint8Array(68) } as const;
  test.each([
    [TypeError, { ...blocks, dtype: "Q6_K" }, 'weight.dtype expected a dtype of stored tensors, got "Q6_K"'],
    [RangeError, { ...blocks, shape: [64] }, "weight expected rank 2 for Q8_0, got shape [64]"],
    [RangeError, { ...blocks, shape: [2, 1, 32] }, "weight expected rank 2 for Q8_0, got shape [2, 1, 32]"],
    [TypeError, { ...blocks, bytes: [1] }, "weight.bytes expected Uint8Array, got Array"],
    [
      RangeError,
      { ...blocks, shape: [3, 32] },
      "weight.bytes expected 102 bytes in whole rows for Q8_0 [3, 32], got 68",
    ],
    [
      RangeError,
      { ...blocks, shape: [4, 16] },
      "weight.bytes expected 68 bytes in whole rows for Q8_0 [4, 16], got 68",
    ],
    [
      RangeError,
      { ...blocks, dtype: "F4", shape: [2, 3], bytes: new Uint8Array(3) },
      "weight.bytes expected 3 bytes in whole rows for F4 [2, 3], got 3",
    ],
  ])("names what is wrong with a stored tensor: %o %o", (kind, weight, text) => {
    expect(() => permuteRope(weight as never, 2, "half")).toThrow(new kind(`permuteRope: ${text}`));
  });

  test("keeps every score under the other pairing within 1e-6", () => {
    const [headDim, dim, columns] = [10, 8, 5];
    const { cos, sin } = ropeTables(rope(10_000, dim), [3, 11]);
    const x = [matrix(1, columns).data, matrix(1, columns).data];
    const head = (weight: ArrayLike<number>, t: number, pair: (i: number) => [number, number]) => {
      const y = Array.from({ length: headDim }, (_, r) =>
        x[t]!.reduce((sum, value, c) => sum + value * (weight[r * columns + c] as number), 0),
      );
      for (let i = 0; i < dim / 2; i++) {
        const [a, b] = pair(i);
        const [c, s] = [cos.data[(t * dim) / 2 + i]!, sin.data[(t * dim) / 2 + i]!];
        [y[a], y[b]] = [y[a]! * c - y[b]! * s, y[b]! * c + y[a]! * s];
      }
      return y;
    };
    const dot = (a: number[], b: number[]) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
    const half = (i: number): [number, number] => [i, i + dim / 2];
    const interleaved = (i: number): [number, number] => [2 * i, 2 * i + 1];
    const [wq, wk] = [matrix(headDim, columns), matrix(headDim, columns)];
    const want = dot(head(wq.data, 0, half), head(wk.data, 1, half));
    const [pq, pk] = [permuteRope(wq, 1, "half", dim), permuteRope(wk, 1, "half", dim)];
    expect(Math.abs(dot(head(pq.data, 0, interleaved), head(pk.data, 1, interleaved)) - want)).toBeLessThan(1e-6);
    expect(Math.abs(dot(head(wq.data, 0, interleaved), head(wk.data, 1, interleaved)) - want)).toBeGreaterThan(1e-4);
  });

  test.each([
    [[matrix(6, 2), 4, "half"], "weight expected a multiple of numHeads (4) rows, got 6"],
    [[matrix(6, 2), 2, "half"], "ropeDim expected an even integer, got 3"],
    [[matrix(8, 2), 2, "half", 6], "ropeDim expected an integer from 2 to 4, got 6"],
    [[matrix(8, 2), 2, "neox"], 'from expected "half" or "interleaved", got "neox"'],
    [[matrix(8, 2), 0, "half"], "numHeads expected an integer >= 1, got 0"],
    [[{ data: new Float32Array(8), shape: [2, 2, 2] }, 1, "half"], "weight expected rank 1 or 2, got shape [2, 2, 2]"],
  ])("names the argument that is wrong (%#)", (args, text) => {
    expect(() => permuteRope(...(args as Parameters<typeof permuteRope>))).toThrow(
      new RangeError(`permuteRope: ${text}`),
    );
  });
});
