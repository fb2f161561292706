import { describe, expect, test } from "vitest";
import { layer_norm_f32, rms_norm_f32 } from "../../src/reference/pointwise.ts";
import {
  type Arguments,
  builds,
  copyArguments,
  createRandom,
  floats,
  load,
  pieces,
  runKernel,
  worst,
} from "../support/harness.ts";

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

describe.each(builds)("layer_norm_f32 in the %s build", (build) => {
  const instance = load(build);
  const U = 2 ** -24;

  test.each([1, 3, 4, 5, 8, 31, 64, 67, 768])("is within its bound of float64 at n = %i", (n) => {
    const random = createRandom(n);
    const rows = 5;
    for (const stride of [n, n + 3])
      for (const kind of ["normal", "outlier", "equal", "tiny"] as const)
        for (const bias of [null, floats(random, n)]) {
          const x = floats(random, rows * stride, kind);
          for (let r = 0; r < rows; r++) x.fill(Number.NaN, r * stride + n, (r + 1) * stride);
          const shape = { n, stride, eps: 1e-5 };
          const gain = floats(random, n);
          const args: Arguments<"layer_norm_f32"> = [new Float32Array(x.length), x, gain, bias, shape, 0, rows];
          const twin = copyArguments<"layer_norm_f32">(args);
          const split = copyArguments<"layer_norm_f32">(args);
          layer_norm_f32(...twin);
          runKernel(instance, "layer_norm_f32", args);
          // A sum of n / 4 in each lane is within c roundings; the mean is off by at most `shift`.
          const c = n / 4 + 4;
          for (let r = 0; r < rows; r++) {
            const row = Float64Array.from(x.subarray(r * stride, r * stride + n));
            const mean = row.reduce((sum, v) => sum + v, 0) / n;
            const inverse = 1 / Math.sqrt(row.reduce((sum, v) => sum + (v - mean) ** 2, 0) / n + shape.eps);
            const shift = (c * U * row.reduce((sum, v) => sum + Math.abs(v), 0)) / n;
            const got = args[0].subarray(r * stride, r * stride + n);
            const want = twin[0].subarray(r * stride, r * stride + n);
            const { excess, at } = worst(got, want, (i) => {
              const z = Math.abs(row[i]! - mean) * inverse;
              const relative = (c / 2 + 8) * U + (shift * inverse) ** 2 / 2;
              // What is subnormal is rounded to 2^-149.
              const absolute = (shift + 2 ** -147) * inverse;
              return Math.abs(gain[i]!) * (absolute + z * relative) + 2 * U * Math.abs(want[i]!) + 2 ** -149;
            });
            expect(excess, `row ${r}, element ${at}`).toBeLessThanOrEqual(0);
          }
          for (const [begin, end] of pieces(random, rows)) {
            split[5] = begin;
            split[6] = end;
            runKernel(instance, "layer_norm_f32", split);
          }
          expect(split[0]).toEqual(args[0]);
          const inPlace = copyArguments<"layer_norm_f32">(args);
          inPlace[0] = inPlace[1];
          runKernel(instance, "layer_norm_f32", inPlace);
          for (let r = 0; r < rows; r++)
            expect(inPlace[0].subarray(r * stride, r * stride + n)).toEqual(
              args[0].subarray(r * stride, r * stride + n),
            );
        }
  });

  test("a NaN or an infinity makes its own row NaN and no other", () => {
    const n = 13;
    for (const poison of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const x = floats(createRandom(1), 3 * n);
      x[n + 12] = poison;
      const ones = new Float32Array(n).fill(1);
      const out = new Float32Array(3 * n);
      runKernel(instance, "layer_norm_f32", [out, x, ones, null, { n, stride: n, eps: 1e-5 }, 0, 3]);
      expect(Array.from({ length: 3 }, (_, r) => out.subarray(r * n, (r + 1) * n).some(Number.isNaN))).toEqual([
        false,
        true,
        false,
      ]);
      expect(out.subarray(n, 2 * n).every(Number.isNaN)).toBe(true);
    }
  });
});
