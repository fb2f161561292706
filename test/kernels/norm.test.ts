import { describe, expect, test } from "vitest";
import { rms_norm_f32 } from "../../src/reference/norm.ts";
import { builds, copyArguments, createRandom, floats, load, pieces, runKernel, worst } from "./harness.ts";

describe.each(builds)("rms_norm_f32 in the %s build", (build) => {
  const instance = load(build);

  test.each([1, 3, 4, 5, 8, 31, 64, 67])("is within (n + 4) ulp of float64 at n = %i", (n) => {
    const random = createRandom(n);
    for (const stride of [n, n + 3])
      for (const kind of ["normal", "outlier", "equal", "tiny"] as const) {
        const rows = 5;
        const x = floats(random, rows * stride, kind);
        for (let r = 0; r < rows; r++) x.fill(Number.NaN, r * stride + n, (r + 1) * stride);
        const args: Parameters<typeof rms_norm_f32> = [
          new Float32Array(x.length),
          x,
          floats(random, n),
          n,
          stride,
          1e-6,
          0,
          rows,
        ];
        const twin = copyArguments<"rms_norm_f32">(args);
        const split = copyArguments<"rms_norm_f32">(args);
        rms_norm_f32(...twin);
        runKernel(instance, "rms_norm_f32", args);
        const { excess, at } = worst(args[0], twin[0], (i) => (n + 4) * 2 ** -24 * Math.abs(twin[0][i]!) + 2 ** -149);
        expect(excess, `element ${at}`).toBeLessThanOrEqual(0);
        for (const [begin, end] of pieces(random, rows)) {
          split[6] = begin;
          split[7] = end;
          runKernel(instance, "rms_norm_f32", split);
        }
        expect(split[0]).toEqual(args[0]);
      }
  });
});
