// forwardWith: statistics of the layers of whole decoders.

import { describe, expect, test } from "vitest";
import { loadKernels } from "../../../../src/entries/index.ts";
import { forwardWith, statistics } from "../../../../src/entries/inspect.ts";
import { latent } from "../../../../src/entries/latent.ts";
import { createSession, forward, loadModel, models } from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";
import { firstDifference } from "../../../support/layers.ts";
import { TINY, tinyFolder } from "../../../support/tiny-models.ts";

const kernels = await loadKernels({ models, quantized, latent, statistics });
const IDS = Array.from({ length: 300 }, (_, i) => (i * 37 + (i % 7) * 5) % 64);

describe.each(["llama", "gemma2", "gpt2", "gpt_oss", "deepseek_v3"] as const)("%s", async (name) => {
  const model = await loadModel(kernels, tinyFolder(TINY[name]));

  test.each(["f32", "q8"] as const)(
    "logits keep their bits, and mass and distance are those of the patterns, %s",
    (format) => {
      const length = Math.min(model.maxSeqLen ?? IDS.length, IDS.length);
      const ids = IDS.slice(0, length);
      using plain = createSession(model, { format, maxSeqLen: length });
      const { logits } = forward(plain, ids, { rows: "all" });
      using session = createSession(model, { format, maxSeqLen: length });
      const options = { rows: "all", patterns: [0, 1], statistics: { topK: 2, received: true } } as const;
      const got = forwardWith(session, ids, options);
      expect(firstDifference(got.logits, logits)).toBe(-1);
      expect(got.statistics.length).toBe(model.layers);
      // With keys in q8, queries are rounded to 14 bits where the patterns multiply floats; latents are measured as floats.
      const bound = format === "f32" || name === "deepseek_v3" ? 1e-6 : 1e-3;
      for (const layer of [0, 1]) {
        const { mass, distance, topWeights, topKeys, received } = got.statistics[layer]!;
        const { data, shape } = got.patterns[layer]!;
        const columns = shape[2]!;
        const sums = new Float64Array(shape[0]! * length);
        for (let row = 0; row < shape[0]! * length; row++) {
          const w = data.subarray(row * columns, row * columns + length);
          const all = w.reduce((sum, weight) => sum + weight, 0);
          const away = w.reduce((sum, weight, j) => sum + weight * Math.abs((row % length) - j), 0);
          expect(Math.abs(mass.data[row]! - all)).toBeLessThan(bound);
          expect(Math.abs(distance.data[row]! * all - away)).toBeLessThan(bound * (128 + away));
          expect(Math.abs(topWeights.data[2 * row]! - Math.max(...w))).toBeLessThan(bound);
          expect(Math.abs(w[topKeys.data[2 * row]!]! - Math.max(...w))).toBeLessThan(bound);
          for (const [j, weight] of w.entries()) sums[Math.floor(row / length) * length + j]! += weight;
        }
        for (const [i, sum] of sums.entries())
          expect(Math.abs(received!.data[i]! - sum)).toBeLessThan(bound * (1 + sum));
      }
    },
  );

  test("a token has the same statistics in a prompt and alone", () => {
    using whole = createSession(model);
    const all = forwardWith(whole, IDS.slice(0, 20), { statistics: { layers: [1] } }).statistics[0]!;
    using pieces = createSession(model);
    forward(pieces, IDS.slice(0, 19));
    const last = forwardWith(pieces, IDS.slice(19, 20), { statistics: { layers: [1] } }).statistics[0]!;
    for (const name of ["lse", "entropy", "distance", "effectiveKeys", "topWeights", "topKeys"] as const)
      expect(last[name].data).toEqual(all[name].data.filter((_, i) => i % 20 === 19));
  });
});

test("what cannot be measured is refused, and nothing has changed", async () => {
  using session = createSession(await loadModel(kernels, tinyFolder(TINY.llama)));
  const call = (statistics: object) => () => forwardWith(session, [1, 2], { statistics });
  expect(call({ layers: [0, 0] })).toThrow(
    "forwardWith: options.statistics.layers expected layers, each once, got [0, 0]",
  );
  expect(call({ layers: [2] })).toThrow(
    "forwardWith: options.statistics.layers[0] expected an integer from 0 to 1, got 2",
  );
  expect(call({ topK: 0 })).toThrow("forwardWith: options.statistics.topK expected an integer from 1 to 1024, got 0");
  expect(session.length).toBe(0);
  const few = await loadKernels({ models });
  using none = createSession(await loadModel(few, tinyFolder(TINY.llama)));
  expect(() => forwardWith(none, [1, 2], { statistics: {} })).toThrow(
    "forwardWith: statistics need loadKernels({ statistics }), with `statistics` of headwise/inspect",
  );
});
