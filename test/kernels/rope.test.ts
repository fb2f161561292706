import { describe, expect, test } from "vitest";
import { rope_f32 } from "../../src/reference/pointwise.ts";
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

describe.each(builds)("rope_f32 in the %s build", (build) => {
  const instance = load(build);
  const random = createRandom(7);

  const sizes = [0, 2, 6, 8, 10, 16, 30, 64, 66] as const;
  test.each(sizes)("rounds each product and the sum once, in body and tail, at ropeDim %i", (ropeDim) => {
    for (const interleaved of [0, 1])
      for (const headDim of [Math.max(1, ropeDim), ropeDim + 3])
        for (const kind of ["normal", "outlier", "tiny"] as const) {
          const tokens = 5;
          const numHeads = 3;
          const stride = numHeads * headDim + 2;
          const tables = (tokens * ropeDim) / 2;
          const x = floats(random, tokens * stride, kind);
          for (let t = 0; t < tokens; t++) x.fill(Number.NaN, t * stride + numHeads * headDim, (t + 1) * stride);
          const args: Arguments<"rope_f32"> = [
            x,
            floats(random, tables),
            floats(random, tables),
            { numHeads, headDim, ropeDim, interleaved, stride },
            0,
            tokens,
          ];
          const split = copyArguments<"rope_f32">(args);
          const want = x.slice();
          for (let t = 0; t < tokens; t++)
            for (let h = 0; h < numHeads; h++)
              for (let i = 0; i < ropeDim / 2; i++) {
                const head = t * stride + h * headDim;
                const [p, q] = interleaved ? [head + 2 * i, head + 2 * i + 1] : [head + i, head + i + ropeDim / 2];
                const [a, b] = [x[p]!, x[q]!];
                const c = args[1][(t * ropeDim) / 2 + i]!;
                const s = args[2][(t * ropeDim) / 2 + i]!;
                want[p] = Math.fround(a * c) - Math.fround(b * s);
                want[q] = Math.fround(b * c) + Math.fround(a * s);
              }
          runKernel(instance, "rope_f32", args);
          expect(args[0]).toEqual(want);
          for (const [begin, end] of pieces(random, tokens)) {
            split[4] = begin;
            split[5] = end;
            runKernel(instance, "rope_f32", split);
          }
          expect(split[0]).toEqual(want);
        }
  });

  test.each([0, 1])("is within 1.5 ulp of the larger product of its twin, interleaved %i", (interleaved) => {
    const args: Arguments<"rope_f32"> = [
      floats(random, 4 * 67),
      floats(random, 4 * 33),
      floats(random, 4 * 33),
      { numHeads: 1, headDim: 67, ropeDim: 66, interleaved, stride: 67 },
      0,
      4,
    ];
    const twin = copyArguments<"rope_f32">(args);
    rope_f32(...twin);
    runKernel(instance, "rope_f32", args);
    const largest = 3.5 ** 2;
    for (const [i, got] of args[0].entries())
      expect(Math.abs(got - twin[0][i]!)).toBeLessThanOrEqual(1.5 * largest * 2 ** -23);
  });
});
