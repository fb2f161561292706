import { describe, expect, test } from "vitest";
import { packedFloats, panelsOf } from "../../src/layers/linear/formats.ts";
import { pack_columns_f32, pack_rows_f32 } from "../../src/reference/linear.ts";
import {
  type Arguments,
  builds,
  copyArguments,
  createRandom,
  floats,
  load,
  pieces,
  runKernel,
} from "../support/harness.ts";

const SIZES = [1, 3, 4, 7, 8, 9, 12, 16, 31, 67];

const bitsOf = (data: Float32Array) => new Uint32Array(data.buffer);

test("the twins put every element at [panel][k][column], and +0 beyond n", () => {
  for (const n of [1, 8, 9, 31])
    for (const k of [1, 5, 8]) {
      const rows = Float32Array.from({ length: n * k }, (_, at) => Math.floor(at / k) + (at % k) / 1024);
      const columns = Float32Array.from({ length: n * k }, (_, at) => (at % n) + Math.floor(at / n) / 1024);
      const [a, b] = [0, 1].map(() => new Float32Array(packedFloats(n, k)).fill(Number.NaN)) as [
        Float32Array,
        Float32Array,
      ];
      pack_rows_f32(a, rows, n, k, 0, panelsOf(n));
      pack_columns_f32(b, columns, n, k, 0, k);
      for (const packed of [a, b])
        for (const [at, value] of packed.entries()) {
          const [row, i] = [8 * Math.floor(at / (8 * k)) + (at % 8), Math.floor(at / 8) % k];
          expect(Object.is(value, row < n ? row + i / 1024 : 0), `n ${n} k ${k}: ${row}, ${i}`).toBe(true);
        }
    }
});

describe.each(builds)("pack_rows_f32 and pack_columns_f32 in the %s build", (build) => {
  const instance = load(build);
  const random = createRandom(5);

  test.each([
    ["pack_rows_f32", pack_rows_f32],
    ["pack_columns_f32", pack_columns_f32],
  ] as const)("%s moves every bit as its twin does, whole and split", (name, twin) => {
    for (const n of SIZES)
      for (const k of SIZES) {
        const end = name === "pack_rows_f32" ? panelsOf(n) : k;
        const w = floats(random, n * k, "tiny");
        bitsOf(w)[w.length >> 1] = 0x7fc12345;
        const args: Arguments<"pack_rows_f32"> = [new Float32Array(packedFloats(n, k)).fill(7), w, n, k, 0, end];
        const split = copyArguments<"pack_rows_f32">(args);
        const want = copyArguments<"pack_rows_f32">(args);
        twin(...want);
        runKernel(instance, name, args);
        expect(bitsOf(args[0]), `n ${n} k ${k}`).toEqual(bitsOf(want[0]));
        for (const [from, to] of pieces(random, end)) {
          split[4] = from;
          split[5] = to;
          runKernel(instance, name, split);
        }
        expect(bitsOf(split[0]), `n ${n} k ${k}`).toEqual(bitsOf(want[0]));
      }
  });
});
