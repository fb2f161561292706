import { describe, expect, test } from "vitest";
import { bitsEach, toFloats } from "../../../../src/base/tensor/dtypes.ts";
import { type RopeWithDim, ropeTables } from "../../../../src/layers/attention/rope.ts";
import { permuteRope } from "../../../../src/models/weights/permute-rope.ts";
import { doubles } from "../../../support/fixed-point.ts";

const rope = (theta: number, dim: number, scaling?: unknown): RopeWithDim =>
  ({ theta, dim, pairing: "half", scaling }) as RopeWithDim;

describe("permuteRope", () => {
  const random = doubles(9);
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

  test("a matrix of no elements is moved at once, however many rows it has", () => {
    const rows = 2 ** 31 - 2;
    const began = performance.now();
    const stored = { name: "w", dtype: "F16", shape: [rows, 0], bytes: new Uint8Array() } as const;
    expect(permuteRope(stored, 1, "half")).toEqual(stored);
    expect(permuteRope({ data: new Float32Array(), shape: [rows, 0] }, 1, "interleaved").shape).toEqual([rows, 0]);
    // A loop over the rows takes seconds.
    expect(performance.now() - began).toBeLessThan(500);
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
