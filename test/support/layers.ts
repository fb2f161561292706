// Random layers and inputs for tests of the whole forward pass.

import { readFileSync } from "node:fs";
import relaxed from "../../build/relaxed.wasm";
import simd from "../../build/simd.wasm";
import { findHost } from "../../src/base/platform/workers.ts";
import {
  type Attention,
  type AttentionConfig,
  createAttention,
  type Kernels,
  loadKernels,
  type SeparateWeights,
  type Tensor,
  type WeightOptions,
} from "../../src/entries/core.ts";
import { statistics } from "../../src/entries/inspect.ts";
import { latent } from "../../src/entries/latent.ts";
import { models } from "../../src/entries/models.ts";
import { quantized } from "../../src/entries/quantized.ts";
import { LIMITS, loadThreaded } from "../../src/hosts/threads/load.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import type { Builds } from "../../src/wasm/modules.ts";
import { floats } from "./harness.ts";
import { moduleOf, modulesOf, shippedBuilds } from "./modules.ts";

export { shippedBuilds };

/** Fresh kernels of one build. */
export function kernelsOf(build: (typeof shippedBuilds)[number]): Promise<Kernels> {
  return loadKernels(modulesOf(build, moduleOf));
}

/** What the bundles of `headwise/threads` and `headwise/quantized` inline. */
export const threadedBuilds: Builds = { simd, relaxed };
export { quantized };

/** The source of a worker as it ships. */
export const workerSource: string = readFileSync(new URL("../../build/worker.txt", import.meta.url), "utf8");

/** Shares even the smallest work, in the smallest tiles. */
const SHARE_ALL: typeof LIMITS = { ...LIMITS, shares: { call: 0, tile: 0 } };

/** Fresh kernels of one build with threads, which share even the smallest work unless `limits` says otherwise. */
export function threadedKernels(
  build: (typeof shippedBuilds)[number],
  threads: number,
  limits: Partial<typeof LIMITS> = {},
  source: string = workerSource,
): Promise<Kernels> {
  const options = { deterministic: build === "simd", threads, quantized, latent, models, statistics };
  return loadThreaded(threadedBuilds, options, findHost(globalThis, source), { ...SHARE_ALL, ...limits });
}

export function matrix(random: Random, rows: number, columns: number): Tensor {
  const data = floats(random, rows * columns);
  const scale = 1 / Math.sqrt(columns);
  return { data: data.map((w) => w * scale), shape: [rows, columns] };
}

/** Weights that fit a configuration, with every bias, norm and sink that `parts` names. */
export function randomWeights(
  random: Random,
  config: AttentionConfig,
  parts: { readonly biases?: boolean; readonly sinks?: boolean; readonly extraKey?: boolean } = {},
): SeparateWeights<Tensor> {
  const { dModel, numHeads, numKvHeads = numHeads, headDim = dModel / numHeads, valueDim = headDim } = config;
  const { kdim = dModel, vdim = dModel, qkNorm } = config;
  const [q, k, v] = [numHeads * headDim, numKvHeads * headDim, numKvHeads * valueDim];
  const gain = (full: number) => floats(random, qkNorm?.kind === "full" ? full : headDim);
  return {
    wq: matrix(random, q, dModel),
    wk: matrix(random, k, kdim),
    wv: matrix(random, v, vdim),
    wo: matrix(random, dModel, numHeads * valueDim),
    ...(parts.biases && {
      bq: floats(random, q),
      bk: floats(random, k),
      bv: floats(random, v),
      bo: floats(random, dModel),
    }),
    ...(parts.sinks && { sinkLogits: floats(random, numHeads) }),
    ...(parts.extraKey && { biasK: floats(random, k), biasV: floats(random, v) }),
    ...(qkNorm && { qNorm: gain(q), kNorm: gain(k) }),
  };
}

/** Formats of every third layer that is drawn: the properties hold for all. */
const FORMATS: readonly WeightOptions[] = [
  { weights: "q8" },
  { weights: { q: "f16", k: "q4", v: "q4", o: "q8-row" } },
  { weights: { q: "q8-row", k: "q8-row", v: "bf16" }, activations: "fast" },
];

/** A layer that draws its shape, its rules and its formats from the seed. */
export function randomLayer(kernels: Kernels, seed: number): { attention: Attention; random: Random } {
  const random = createRandom(seed);
  const group = [1, 2, 3, 7, 8][seed % 5] as number;
  const numKvHeads = random.int(1, 3);
  const headDim = [8, 16, 20, 5, 32][random.int(0, 4)] as number;
  const some = (probability: number) => random.next() < probability;
  const config: AttentionConfig = {
    dModel: random.int(5, 40),
    numHeads: group * numKvHeads,
    numKvHeads,
    headDim,
    valueDim: some(0.3) ? random.int(1, 24) : headDim,
    causal: true,
    ...(some(0.4) && { window: { left: random.int(0, 40) } }),
    ...(some(0.2) && { softcap: 2 }),
    ...(some(0.2) && { alibi: "geometric" }),
    ...(some(0.4) && headDim % 2 === 0 && { rope: { theta: 10_000, pairing: some(0.5) ? "half" : "interleaved" } }),
    ...(some(0.3) && { qkNorm: { kind: some(0.5) ? "per-head" : "full" } }),
    addZeroAttn: some(0.1),
  };
  const weights = randomWeights(random, config, { biases: some(0.5), sinks: some(0.2), extraKey: some(0.1) });
  const options = seed % 3 === 2 ? FORMATS[Math.floor(seed / 3) % FORMATS.length] : {};
  return { attention: createAttention(kernels, config, weights, options), random };
}

/** The first place where two arrays differ by Object.is, or -1. */
export function firstDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  if (a.length !== b.length) return Math.min(a.length, b.length);
  for (let i = 0; i < a.length; i++) if (!Object.is(a[i], b[i])) return i;
  return -1;
}
