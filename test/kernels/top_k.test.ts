import { describe, expect, test } from "vitest";
import { top_k_f32 } from "../../src/reference/decoder.ts";
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

describe.each(builds)("top_k_f32 in the %s build", (build) => {
  const instance = load(build);

  const run = (x: Float32Array, k: number): [values: number[], ids: number[]] => {
    const [values, ids] = [new Float32Array(k), new Int32Array(k)];
    runKernel(instance, "top_k_f32", [values, ids, x, x.length, x.length, k, 0, 1]);
    return [[...values], [...ids]];
  };

  test.each([1, 2, 3, 15, 16, 17, 67, 300])("leaves the bits of its twin, whole and in pieces, at n = %i", (n) => {
    const random = createRandom(n);
    const rows = 4;
    for (const stride of [n, n + 3])
      for (const kind of ["normal", "few", "ascending", "descending", "nan"] as const) {
        const x = floats(random, rows * stride);
        for (let i = 0; i < x.length; i++) {
          if (kind === "few") x[i] = random.int(0, 3) || -0;
          if (kind === "ascending") x[i] = i % stride;
          if (kind === "descending") x[i] = -(i % stride);
          if (kind === "nan" && random.int(0, 2) > 0) x[i] = random.int(0, 1) ? Number.NaN : Number.NEGATIVE_INFINITY;
        }
        for (let r = 0; r < rows; r++) x.fill(Number.POSITIVE_INFINITY, r * stride + n, (r + 1) * stride);
        for (const k of new Set([1, 2, Math.ceil(n / 2), n].filter((each) => each <= n))) {
          const blank = [new Float32Array(rows * k), new Int32Array(rows * k)] as const;
          const args: Arguments<"top_k_f32"> = [...blank, x, n, stride, k, 0, rows];
          const twin = copyArguments<"top_k_f32">(args);
          const split = copyArguments<"top_k_f32">(args);
          top_k_f32(...twin);
          runKernel(instance, "top_k_f32", args);
          expect(args.slice(0, 2), `${kind}, k ${k}`).toEqual(twin.slice(0, 2));
          for (const [begin, end] of pieces(random, rows)) {
            split[6] = begin;
            split[7] = end;
            runKernel(instance, "top_k_f32", split);
          }
          expect(split.slice(0, 2)).toEqual(args.slice(0, 2));
        }
      }
  });

  test("of equal floats the lowest comes first, and NaN behind every number", () => {
    const { NaN: nan, NEGATIVE_INFINITY: low } = Number;
    expect(run(Float32Array.of(1, 5, 5, 1), 3)[1]).toEqual([1, 2, 0]);
    expect(run(Float32Array.of(-0, 0), 2)[1]).toEqual([0, 1]);
    expect(run(Float32Array.of(nan, low, nan), 3)).toEqual([
      [low, nan, nan],
      [1, 0, 2],
    ]);
    expect(run(new Float32Array(40).fill(nan), 1)).toEqual([[nan], [0]]);
    expect(run(new Float32Array(40).fill(low), 2)[1]).toEqual([0, 1]);
    const one = new Float32Array(40).fill(nan);
    one[37] = low;
    expect(run(one, 1)).toEqual([[low], [37]]);
  });
});
