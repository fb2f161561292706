// Random layers of latent attention.

import type { Kernels, Tensor } from "../../src/entries/core.ts";
import {
  createLatentAttention,
  type LatentAttention,
  type LatentConfig,
  type LatentOptions,
  type LatentWeights,
} from "../../src/entries/latent.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { floats } from "./harness.ts";
import type { ReferenceLatentWeights } from "./latent-oracle.ts";
import { matrix } from "./layers.ts";

export const PATHS = ["absorbed", "expanded"] as const;
export type Path = (typeof PATHS)[number];

/** Weights that fit a configuration. */
export function latentWeights(random: Random, config: LatentConfig, biases = false): LatentWeights<Tensor> {
  const { dModel, numHeads, kvLoraRank, qLoraRank, nopeDim, ropeDim, valueDim = nopeDim, latentNorm = true } = config;
  const q = numHeads * (nopeDim + ropeDim);
  const gain = (length: number) => floats(random, length).map((g) => 1 + g / 5);
  return {
    ...(qLoraRank
      ? {
          wqDown: matrix(random, qLoraRank, dModel),
          wqUp: matrix(random, q, qLoraRank),
          ...(latentNorm && { qNorm: gain(qLoraRank) }),
          ...(biases && { bqDown: floats(random, qLoraRank) }),
        }
      : { wq: matrix(random, q, dModel) }),
    wkvDown: matrix(random, kvLoraRank + ropeDim, dModel),
    ...(latentNorm && { kvNorm: gain(kvLoraRank) }),
    wkvUp: matrix(random, numHeads * (nopeDim + valueDim), kvLoraRank),
    wo: matrix(random, dModel, numHeads * valueDim),
    ...(biases && { bq: floats(random, q), bkvDown: floats(random, kvLoraRank + ropeDim), bo: floats(random, dModel) }),
  };
}

/** The same weights as the float64 reference takes them. */
export function plainOf(weights: LatentWeights<Tensor>): ReferenceLatentWeights {
  const { layout: _, ...parts } = weights;
  return Object.fromEntries(
    Object.entries(parts).map(([name, part]) => [name, part instanceof Float32Array ? part : part.data]),
  ) as unknown as ReferenceLatentWeights;
}

const YARN = { kind: "yarn", factor: 40, originalMaxSeqLen: 64, mscale: 0.7, mscaleAllDim: 0.8 } as const;

/** A configuration that draws its shape and its rules. */
export function randomLatentConfig(random: Random): LatentConfig {
  const pick = (...from: readonly number[]) => from[random.int(0, from.length - 1)] as number;
  const some = (probability: number) => random.next() < probability;
  const ropeDim = pick(0, 2, 4, 6, 8, 14);
  const nopeDim = pick(1, 3, 8, 10, 16, 20);
  return {
    dModel: random.int(5, 40),
    numHeads: pick(1, 2, 3, 5, 8),
    kvLoraRank: pick(1, 3, 5, 8, 12, 17, 32, 40),
    ...(some(0.4) && { qLoraRank: pick(1, 4, 7, 16) }),
    ...{ nopeDim, ropeDim },
    ...(some(0.6) && { valueDim: pick(1, 7, 8, 20) }),
    ...(ropeDim > 0 && {
      rope: {
        theta: pick(100, 10_000),
        pairing: some(0.5) ? "half" : "interleaved",
        ...(some(0.3) && { scaling: YARN }),
      },
    }),
    ...(some(0.2) && { latentNorm: false }),
    ...(some(0.3) && { normEps: 1e-5 }),
    causal: true,
    ...(some(0.2) && { softcap: 2 }),
    ...(some(0.2) && { scale: 0.3 }),
    ...(ropeDim > 0 && some(0.3) && { rope: false as const }),
  };
}

/** Formats of every fourth layer that is drawn: whatever does not compare two paths or numbers holds for all. */
const FORMATS: readonly LatentOptions[] = [
  { weights: "q8" },
  { weights: { q: "f16", kvDown: "q8", k: "f16", v: "q4", o: "q8-row" } },
  { weights: { qDown: "q8", q: "q8", k: "bf16" }, activations: "fast" },
];

/** A layer for both paths that draws its configuration and its formats from the seed. */
export function randomLatentLayer(
  kernels: Kernels,
  seed: number,
  rules: Partial<LatentConfig> = {},
): { attention: LatentAttention; random: Random } {
  const random = createRandom(seed);
  const config = { ...randomLatentConfig(random), ...rules };
  const weights = latentWeights(random, config, random.next() < 0.5);
  const formats = seed % 4 === 3 ? FORMATS[Math.floor(seed / 4) % FORMATS.length] : {};
  return { attention: createLatentAttention(kernels, config, weights, { ...formats, expanded: true }), random };
}
