// How far a layer is from another one.

import { expect, test } from "vitest";
import { attendWithMaps, createAttention } from "../../../../src/entries/core.ts";
import { loadKernels } from "../../../../src/entries/index.ts";
import { createLatentAttention, latent } from "../../../../src/entries/latent.ts";
import { compareLayers } from "../../../../src/entries/quantized.ts";
import { convertToMla } from "../../../../src/entries/weights.ts";
import { DeviationSum, divergence } from "../../../../src/tools/diagnostics/quantize-report.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { randomWeights } from "../../../support/layers.ts";

const CONFIG = { dModel: 32, numHeads: 4, numKvHeads: 2, causal: true } as const;
const kernels = await loadKernels({ deterministic: true, latent });
const random = createRandom(3);
const weights = randomWeights(random, CONFIG, { biases: true });
const samples = [5, 9].map((tokens) => floats(random, tokens * 32));

test("the numbers are those of attendWithMaps over all samples", () => {
  using exact = createAttention(kernels, CONFIG, weights);
  const mla = convertToMla(weights, CONFIG, { rank: 9 });
  using other = createLatentAttention(kernels, mla.config, mla.weights);
  const done: number[] = [];
  const found = compareLayers(exact, other, samples, { onProgress: (share) => void done.push(share) });
  const sum = new DeviationSum();
  let [all, rows] = [0, 0];
  for (const x of samples) {
    const [a, b] = [attendWithMaps(exact, x), attendWithMaps(other, x)];
    sum.add(a.y, b.y, 0, a.y.length);
    all += divergence(a.maps.data, b.maps.data, 0, a.maps.data.length);
    rows += 4 * (x.length / 32);
  }
  expect(found).toEqual({ output: sum.result(), divergence: all / rows });
  expect(found.output.relative).toBeGreaterThan(0.01);
  expect(done).toEqual([0.5, 1]);
  expect(compareLayers(exact, exact, samples[0] as Float32Array)).toMatchObject({
    output: { relative: 0 },
    divergence: 0,
  });
});

test("arguments that do not go together are refused", () => {
  using exact = createAttention(kernels, CONFIG, weights);
  const more = { ...CONFIG, numHeads: 8 };
  using other = createAttention(kernels, more, randomWeights(random, more));
  const wide = { ...CONFIG, dModel: 64 };
  using wider = createAttention(kernels, wide, randomWeights(random, wide));
  const x = samples[0] as Float32Array;
  const messages: [call: () => unknown, message: string][] = [
    [() => compareLayers(exact, other, x), "other expected numHeads 4, as exact has, got 8"],
    [() => compareLayers(exact, wider, x), "other expected dModel 32, as exact has, got 64"],
    [() => compareLayers(exact, {} as never, x), "other expected what createAttention or createLatentAttention gives"],
    [() => compareLayers(exact, exact, []), "samples expected one or more, got none"],
    [() => compareLayers(exact, exact, [x, x.subarray(1)]), "samples[1] expected a multiple of dModel (32) floats"],
    [() => compareLayers(exact, exact, x, { onProgress: 1 } as never), "options.onProgress expected a function, got 1"],
  ];
  for (const [call, message] of messages) expect(call).toThrow(`compareLayers: ${message}`);
});
