import { attend, attendWithMaps } from "../api/attend.ts";
import { scaledDotProductAttention } from "../api/sdpa.ts";
import { type Attention, createAttention } from "../attention/attention.ts";
import type { AttentionConfig } from "../attention/config.ts";
import { createCache } from "../cache/cache.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import { Digest } from "./digest.ts";
import { createRandom } from "./random.ts";

/** The digests every engine must reach: one where multiply and add round twice (always the simd build), one where once. */
const PUBLISHED = { unfused: "9e246a77089b1b21", fused: "1e12bb10e7175e25" } as const;

/** What `selfTest` found. */
export interface SelfTest {
  /** The digest is the published one. */
  readonly ok: boolean;
  readonly digest: string;
  readonly expected: string;
  /** How many output arrays went into it. */
  readonly outputs: number;
}

/**
 * Computes some 200 outputs of 40 seeded layers (every rule, prefill, chunks, decode, maps) and compares the digest of
 * their bits with the published one. Takes a fraction of a second, and memory that it gives back.
 * @example
 * import { loadKernels, selfTest } from "headwise";
 * const kernels = await loadKernels({ deterministic: true });
 * console.log(selfTest(kernels).ok); // true
 * kernels.release();
 */
export function selfTest(kernels: Kernels): SelfTest {
  expectKernels("selfTest", kernels);
  const digest = new Digest();
  let outputs = 0;
  const add = (data: Float32Array) => {
    digest.add(data);
    outputs++;
  };
  for (let seed = 0; seed < LAYERS; seed++) runLayer(kernels, seed, add);
  const expected = kernels.fused ? PUBLISHED.fused : PUBLISHED.unfused;
  return { ok: digest.toString() === expected, digest: digest.toString(), expected, outputs };
}

const LAYERS = 40;

/** Cycles through the rules: each occurs with and without each other over the 40 seeds. */
function configOf(seed: number): AttentionConfig {
  const numKvHeads = 1 + (seed % 3);
  const numHeads = numKvHeads * [1, 2, 3, 4, 7][seed % 5]!;
  const headDim = [8, 16, 20, 64][seed % 4]!;
  return {
    dModel: [24, 40, 64][seed % 3]!,
    numHeads,
    numKvHeads,
    headDim,
    valueDim: seed % 7 === 3 ? headDim + 4 : headDim,
    causal: seed % 8 !== 5,
    ...(seed % 6 === 1 && { window: { left: 1 + (seed % 11), right: seed % 4 } }),
    ...(seed % 9 === 2 && { softcap: 3 }),
    ...(seed % 5 === 4 && { alibi: "geometric" }),
    ...(seed % 2 === 0 && { rope: { theta: 10_000, pairing: seed % 4 === 0 ? "half" : "interleaved" } }),
    ...(seed % 10 === 7 && { qkNorm: { kind: "per-head" } }),
    addZeroAttn: seed % 13 === 6,
  };
}

function runLayer(kernels: Kernels, seed: number, add: (data: Float32Array) => void): void {
  const { floats } = createRandom(seed);
  const config = configOf(seed);
  const { dModel, numHeads, numKvHeads = numHeads, headDim = 0, valueDim = 0 } = config;
  const matrix = (rows: number, columns: number): Tensor => ({
    data: floats(rows * columns).map((w) => w * 0.25),
    shape: [rows, columns],
  });
  const attention = createAttention(kernels, config, {
    wq: matrix(numHeads * headDim, dModel),
    wk: matrix(numKvHeads * headDim, dModel),
    wv: matrix(numKvHeads * valueDim, dModel),
    wo: matrix(dModel, numHeads * valueDim),
    bq: seed % 3 === 0 ? floats(numHeads * headDim) : undefined,
    bo: seed % 4 === 0 ? floats(dModel) : undefined,
    sinkLogits: seed % 11 === 8 ? floats(numHeads) : undefined,
    qNorm: config.qkNorm && floats(headDim),
    kNorm: config.qkNorm && floats(headDim),
  });
  try {
    const tokens = seed % 5 === 4 ? 130 + seed : 3 + seed;
    const x = floats(tokens * dModel);
    const { y, maps } = attendWithMaps(attention, x);
    add(y);
    add(maps.data);
    add(continued(attention, x, tokens));
    const heads = (count: number, dim: number): Tensor => ({
      data: floats(tokens * count * dim),
      shape: [1, count, tokens, dim],
    });
    const { output, lse } = scaledDotProductAttention(
      kernels,
      heads(numHeads, headDim),
      heads(numKvHeads, headDim),
      heads(numKvHeads, valueDim),
      { causal: config.causal, softcap: config.softcap, lse: true },
    );
    add(output.data);
    if (lse) add(lse.data);
  } finally {
    attention.release();
  }
}

/** A prefill of two thirds, then the rest token by token. */
function continued(attention: Attention, x: Float32Array, tokens: number): Float32Array {
  const { dModel } = attention.config;
  const cache = createCache(attention, { maxSeqLen: tokens });
  try {
    const y = new Float32Array(x.length);
    const first = Math.ceil((tokens * 2) / 3);
    y.set(attend(attention, x.subarray(0, first * dModel), { cache }));
    for (let t = first; t < tokens; t++)
      y.set(attend(attention, x.subarray(t * dModel, (t + 1) * dModel), { cache }), t * dModel);
    return y;
  } finally {
    cache.release();
  }
}
