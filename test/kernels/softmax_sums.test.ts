import { describe, expect, test } from "vitest";
import { softmax_sums_f32 } from "../../src/reference/decoder.ts";
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

describe.each(builds)("softmax_sums_f32 in the %s build", (build) => {
  const instance = load(build);

  test.each([1, 3, 4, 5, 67, 5000])(
    "is within 4 ulp of its twin, and pieces have the bits of the whole, at n = %i",
    (n) => {
      const random = createRandom(n);
      const rows = 3;
      for (const stride of [n, n + 3]) {
        const x = floats(random, rows * stride);
        for (let r = 0; r < rows; r++) x.fill(Number.NaN, r * stride + n, (r + 1) * stride);
        if (n > 3) x[1] = Number.NEGATIVE_INFINITY;
        const args: Arguments<"softmax_sums_f32"> = [new Float32Array(2 * rows), x, n, stride, 0, rows];
        const twin = copyArguments<"softmax_sums_f32">(args);
        const split = copyArguments<"softmax_sums_f32">(args);
        softmax_sums_f32(...twin);
        runKernel(instance, "softmax_sums_f32", args);
        for (let r = 0; r < rows; r++) {
          expect(args[0][2 * r]).toBe(twin[0][2 * r]);
          const [got, want] = [args[0][2 * r + 1] as number, twin[0][2 * r + 1] as number];
          expect(Math.abs(got - want) / want).toBeLessThanOrEqual(4 * 2 ** -24);
        }
        for (const [begin, end] of pieces(random, rows)) {
          split[4] = begin;
          split[5] = end;
          runKernel(instance, "softmax_sums_f32", split);
        }
        expect(split[0]).toEqual(args[0]);
      }
    },
  );

  test.each([Number.NaN, Number.POSITIVE_INFINITY])("a row with %f has no sum", (value) => {
    const out = new Float32Array(2);
    runKernel(instance, "softmax_sums_f32", [out, Float32Array.of(1, 2, 3, 4, value, 0), 6, 6, 0, 1]);
    expect(out[1]).toBeNaN();
  });
});
