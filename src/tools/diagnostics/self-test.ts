// Whether this engine computes the published bits of a layer.

import type { Tensor } from "../../base/tensor/tensor.ts";
import { expectFloats, expectFunction } from "../../base/util/arguments.ts";
import { underName } from "../../base/util/errors.ts";
import type { attend, attendWithMaps } from "../../layers/api/attend.ts";
import type { scaledDotProductAttention } from "../../layers/api/sdpa.ts";
import type { Attention, createAttention, createCache } from "../../layers/attention/attention.ts";
import type { AttentionConfig } from "../../layers/attention/config.ts";
import { expectKernels, type Kernels } from "../../wasm/kernels.ts";
import { createRandom } from "./random.ts";

/** The digest that every engine must give if multiply and add round once. */
const FUSED = "1e12bb10e7175e25";
/** The same if they round twice, as always in the simd build. */
const UNFUSED = "9e246a77089b1b21";

/** The functions of `headwise` that `selfTest` runs. */
export interface SelfTested {
  /** Makes a layer. */
  readonly createAttention: typeof createAttention;
  /** Makes its cache. */
  readonly createCache: typeof createCache;
  /** A call of a layer. */
  readonly attend: typeof attend;
  /** A call of a layer, with its maps. */
  readonly attendWithMaps: typeof attendWithMaps;
  /** Attention on tensors; `diagnose` measures its speed too. */
  readonly scaledDotProductAttention: typeof scaledDotProductAttention;
}

/** Result of `selfTest`. */
export interface SelfTest {
  /** Whether the digest is the published one. */
  readonly ok: boolean;
  /** Digest of the outputs' bits, 16 hex digits. */
  readonly digest: string;
  /** The published digest for these kernels. */
  readonly expected: string;
  /** How many output arrays the digest covers. */
  readonly outputs: number;
}

/**
 * Checks that this engine computes the published bits. It runs 40 seeded layers that cover every rule, prefill, decode and
 * maps, and compares a digest of about 200 outputs with the published one, in a fraction of a second. All memory is freed
 * but the scratch that calls share, which later calls use.
 * @param headwise The module `headwise`, or another with the same functions, such as `headwise/threads`.
 * @throws TypeError if `headwise` or `kernels` is something else. HeadwiseError `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import * as headwise from "headwise";
 * import { selfTest } from "headwise/doctor";
 * const kernels = await headwise.loadKernels({ deterministic: true });
 * console.log(selfTest(headwise, kernels).ok); // true
 * kernels.release();
 */
export function selfTest(headwise: SelfTested, kernels: Kernels): SelfTest {
  expectTested("selfTest", headwise);
  expectKernels("selfTest", kernels);
  const digest = new FloatDigest();
  let outputs = 0;
  const add = (data: Float32Array) => {
    digest.add(data);
    outputs++;
  };
  underName("selfTest", () => {
    for (let seed = 0; seed < LAYERS; seed++) runLayer(headwise, kernels, seed, add);
  });
  const expected = kernels.fused ? FUSED : UNFUSED;
  return { ok: digest.toString() === expected, digest: digest.toString(), expected, outputs };
}

const LAYERS = 40;

/** Cycles through the rules with different periods: in the 40 seeds, each rule occurs with and without each other. */
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

const TESTED: Readonly<Record<keyof SelfTested, 1>> = {
  createAttention: 1,
  createCache: 1,
  attend: 1,
  attendWithMaps: 1,
  scaledDotProductAttention: 1,
};

/** Throws unless `headwise` has the functions that `selfTest` runs. */
export function expectTested(where: string, headwise: SelfTested): void {
  for (const name of Object.keys(TESTED) as (keyof SelfTested)[])
    expectFunction(where, `headwise.${name}`, Object(headwise)[name]);
}

function runLayer(headwise: SelfTested, kernels: Kernels, seed: number, add: (data: Float32Array) => void): void {
  const { floats } = createRandom(seed);
  const config = configOf(seed);
  const { dModel, numHeads, numKvHeads = numHeads, headDim = 0, valueDim = 0 } = config;
  const matrix = (rows: number, columns: number): Tensor => ({
    data: floats(rows * columns).map((w) => w * 0.25),
    shape: [rows, columns],
  });
  const attention = headwise.createAttention(kernels, config, {
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
    const { y, maps } = headwise.attendWithMaps(attention, x);
    add(y);
    add(maps.data);
    add(continued(headwise, attention, x, tokens));
    const heads = (count: number, dim: number): Tensor => ({
      data: floats(tokens * count * dim),
      shape: [1, count, tokens, dim],
    });
    const { output, lse } = headwise.scaledDotProductAttention(
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

/** A prefill of two thirds of the tokens, then the rest token by token. */
function continued(
  { attend, createCache }: SelfTested,
  attention: Attention,
  x: Float32Array,
  tokens: number,
): Float32Array {
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

/**
 * A hash of the bits of float arrays: two 32-bit lanes of multiplications and rotations. It detects any difference, is
 * the same on every engine, and is synchronous, which the engine's own hashes are not.
 */
export class FloatDigest {
  #a = 0x9e3779b9;
  #b = 0x85ebca6b;

  add(data: Float32Array): void {
    const words = new Uint32Array(data.buffer, data.byteOffset, data.length);
    let a = this.#a;
    let b = this.#b;
    for (const word of words) {
      a = Math.imul(a ^ word, 0xcc9e2d51);
      a = (a << 15) | (a >>> 17);
      b = Math.imul(b + a, 0x1b873593) ^ word;
      b = (b << 13) | (b >>> 19);
    }
    this.#a = Math.imul(a ^ words.length, 0xc2b2ae35);
    this.#b = Math.imul(b ^ (a >>> 16), 0x27d4eb2f);
  }

  /** 16 hexadecimal digits. */
  toString(): string {
    return [this.#a, this.#b].map((lane) => (lane >>> 0).toString(16).padStart(8, "0")).join("");
  }
}

/**
 * A hash of the bits of float arrays, one after the other, to compare results of engines and machines: those that print the same 16
 * digits have the same bits, but for chance. It is no protection against whoever wants two results to have one hash.
 * @returns 16 hexadecimal digits. They depend on where an array ends.
 * @throws TypeError naming the argument.
 * @example
 * import { digestFloats } from "headwise/inspect";
 * console.log(digestFloats(Float32Array.of(1, 2))); // bb5723cd9e6d55de
 */
export function digestFloats(...arrays: readonly Float32Array[]): string {
  const digest = new FloatDigest();
  for (const [i, data] of arrays.entries()) digest.add(expectFloats("digestFloats", `arrays[${i}]`, data));
  return digest.toString();
}
