import { expect, test } from "vitest";
import { createLinear, linear, loadKernels } from "../../../../src/entries/index.ts";
import { models } from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";
import { WEIGHT_FORMATS } from "../../../../src/layers/linear/formats.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { readMatrix } from "../../../../src/tools/inspect/parts.ts";

const kernels = await loadKernels({ models, quantized });

test.each(WEIGHT_FORMATS)(
  "a matrix of %s is read as what it multiplies by: rows of any part, within 2^-22",
  (weights) => {
    const [n, k] = [43, 70];
    const weight = { data: createRandom(7).floats(n * k), shape: [n, k] };
    using layer = createLinear(kernels, { weight }, { weights });
    const identity = Float64Array.from({ length: k * k }, (_, at) => Number(at % (k + 1) === 0));
    // Activations of 14 bits hold 1 exactly.
    const columns = linear(layer, Float32Array.from(identity));
    const whole = readMatrix("test", kernels, layer.packed, 0, n);
    for (const [at, value] of whole.entries())
      expect(Math.abs(value - columns[(at % k) * n + Math.floor(at / k)]!)).toBeLessThan(2 ** -22);
    if (weights === "f32") expect(whole).toEqual(weight.data);
    expect(readMatrix("test", kernels, layer.packed, 5, 14)).toEqual(whole.subarray(5 * k, 14 * k));
  },
);

test("a large matrix is read in pieces", () => {
  const [n, k] = [9, 2 ** 18];
  const weight = { data: createRandom(8).floats(n * k), shape: [n, k] };
  using layer = createLinear(kernels, { weight });
  const got = readMatrix("test", kernels, layer.packed, 0, n);
  expect(got.every((value, at) => value === weight.data[at])).toBe(true);
});
