// What formats of fewer bits cost in accuracy.

import { PANEL } from "../../../assembly/layout.ts";
import { expectFloats, expectFunction, readFields, readList } from "../../base/util/arguments.ts";
import { describe, underName } from "../../base/util/errors.ts";
import { expectMade } from "../../base/util/lifetime.ts";
import { ln } from "../../base/util/math.ts";
import { finish } from "../../base/util/steps.ts";
import { attendWithMaps } from "../../layers/api/attend.ts";
import { type Attention, createCache, packAttention } from "../../layers/attention/attention.ts";
import type { CheckedConfig } from "../../layers/attention/config.ts";
import { HEAD_PASSES } from "../../layers/attention/head-passes.ts";
import { asHeads, type HeadsLayer, withoutOutputs } from "../../layers/attention/heads.ts";
import {
  type CheckedWeights,
  checkWeightOptions,
  expectFormatsLoaded,
  type LayerFormats,
  PROJECTIONS,
  type ProjectionName,
  projectionSizes,
  vectorSizes,
  WEIGHT_OPTIONS,
  type WeightOptions,
} from "../../layers/attention/weights.ts";
import { type CheckedLinear, eachOf, type PackedLinear, WEIGHT_FORMATS } from "../../layers/linear/formats.ts";

import { checkAttend } from "../../layers/pass/call.ts";
import { forward } from "../../layers/pass/forward.ts";
import type { CacheOptions } from "../../layers/state/kv-cache.ts";
import { checkCacheFormat, describeStages, expectStagesLoaded } from "../../layers/state/pages.ts";
import { type F32Ptr, NULL, type NullPtr } from "../../wasm/abi.ts";
import { expectKernels, type Kernels } from "../../wasm/kernels.ts";

/** Formats that are tried together, as `createAttention` and `createCache` take them. Default float32. */
export interface QuantizeTrial extends WeightOptions {
  /** Format of the cache. */
  readonly cache?: CacheOptions["format"];
}

/** Options of `quantizeReport`. */
export interface QuantizeReportOptions {
  /**
   * The formats to try. Default every weight format for each matrix alone and for all matrices, every cache format for keys
   * alone, values alone and both, and two combinations: "q8" and "q4" weights, each with a "q8" cache.
   */
  readonly trials?: readonly QuantizeTrial[];
  /** Called after each trial of each sample with the fraction of the work that is done: above 0, and 1 at the end. */
  readonly onProgress?: (done: number) => void;
}

/** Result of one trial. */
export interface QuantizeResult {
  /** The formats that were tried. */
  readonly trial: QuantizeTrial;
  /** Bytes of linear memory for the weights. */
  readonly weightBytes: number;
  /** Bytes of linear memory for a cache of the longest sample. */
  readonly cacheBytes: number;
  /** Error of the layer's y over all samples. */
  readonly output: Deviation;
  /** Error of each head, [numHeads]: of its output before the output projection, and of its maps. */
  readonly heads: readonly (Deviation & {
    /**
     * Kullback-Leibler divergence of the maps in nats, the mean over all queries: Σ p·ln(p / q) + q - p, where p is the
     * weight in float32, and q is the weight in the tried formats, at least 2^-126.
     */
    readonly divergence: number;
  })[];
}

const WHERE = "quantizeReport";

/**
 * Measures how each format changes the outputs of a layer on samples of its inputs: y, and the output and the maps of each
 * head. It runs the kernels that the format would run. Each trial takes as much memory as the layer, and frees it again.
 * @param attention A layer with float32 weights.
 * @param samples One or more sequences x [qLen, dModel]. Take inputs that the layer gets on real text: errors on random
 * inputs are different.
 * @returns One result per trial, in order.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or `NO_QUANTIZED` with
 * kernels that were loaded without `quantized`.
 * @example
 * import { createAttention, loadKernels } from "headwise";
 * import { quantized, quantizeReport } from "headwise/quantized";
 * const kernels = await loadKernels({ quantized });
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2 }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const [q8] = quantizeReport(attention, Float32Array.of(1, 2, 3, 4, 4, 3, 2, 1), { trials: [{ weights: "q8" }] });
 * console.log(q8!.output.relative < 1e-3, q8!.heads.length); // true 2
 * kernels.release();
 */
export function quantizeReport(
  attention: Attention,
  samples: Float32Array | readonly Float32Array[],
  options: QuantizeReportOptions = {},
): QuantizeResult[] {
  const { trials, inputs, onProgress } = checkReport(attention, samples, options);
  const totals = trials.map(() => createTotals(attention.config));
  const weights = unpackWeights(asHeads(attention));
  for (const [s, x] of inputs.entries()) {
    const exact = measure(attention, x, undefined);
    for (const [i, { formats, fast, cache }] of trials.entries()) {
      const tried = packAttention(WHERE, attention.kernels, attention.config, { ...weights, formats, fast });
      try {
        totals[i]?.add(exact, measure(tried, x, cache));
      } finally {
        tried.release();
      }
      onProgress?.((s * trials.length + i + 1) / (inputs.length * trials.length));
    }
  }
  return trials.map(({ trial }, i) => ({ trial, ...(totals[i] as Totals).result() }));
}

/** The results of a layer for one sample. */
interface Measured {
  readonly y: Float32Array;
  /** [qLen, numHeads, valueDim]. */
  readonly heads: Float32Array;
  /** [numHeads, qLen, columns]. */
  readonly maps: Float32Array;
  readonly weightBytes: number;
  readonly cacheBytes: number;
}

/** Runs the layer on x, first without its output projection, so that y holds the heads' outputs. */
function measure(attention: Attention, x: Float32Array, format: CacheOptions["format"]): Measured {
  const pass = (layer: HeadsLayer, maps: boolean) => {
    const maxSeqLen = x.length / attention.config.dModel;
    const cache = underName(WHERE, () => createCache(attention, { maxSeqLen, format }));
    try {
      const call = checkAttend(WHERE, attention, x, { cache });
      const { ys, maps: weights } = finish(
        forward(layer, HEAD_PASSES, [call], { where: WHERE, maps, ownScratch: true }),
      );
      return { y: ys[0] as Float32Array, maps: weights, cacheBytes: cache.bytes };
    } finally {
      cache.release();
    }
  };
  const layer = asHeads(attention);
  const { y: heads, maps } = pass(withoutOutputs(layer), true);
  const { y, cacheBytes } = pass(layer, false);
  return { y, heads, maps, weightBytes: attention.bytes, cacheBytes };
}

/** The errors of one trial, sample by sample. */
interface Totals {
  add(exact: Measured, tried: Measured): void;
  result(): Omit<QuantizeResult, "trial">;
}

function createTotals({ numHeads, valueDim }: CheckedConfig): Totals {
  const output = new DeviationSum();
  const heads = Array.from({ length: numHeads }, () => ({ deviation: new DeviationSum(), divergence: 0 }));
  let [rows, weightBytes, cacheBytes] = [0, 0, 0];
  return {
    add(exact, tried) {
      output.add(exact.y, tried.y, 0, exact.y.length);
      const width = exact.maps.length / numHeads;
      for (const [h, head] of heads.entries()) {
        for (let at = h * valueDim; at < exact.heads.length; at += numHeads * valueDim)
          head.deviation.add(exact.heads, tried.heads, at, at + valueDim);
        head.divergence += divergence(exact.maps, tried.maps, h * width, (h + 1) * width);
      }
      rows += exact.heads.length / (numHeads * valueDim);
      weightBytes = tried.weightBytes;
      cacheBytes = Math.max(cacheBytes, tried.cacheBytes);
    },
    result: () => ({
      weightBytes,
      cacheBytes,
      output: output.result(),
      heads: heads.map(({ deviation, divergence }) => ({ ...deviation.result(), divergence: divergence / rows })),
    }),
  };
}

/** The weights of a float32 layer, read back from its panels without loss. */
function unpackWeights({ kernels, config, layer }: HeadsLayer): Omit<CheckedWeights, "formats" | "fast"> {
  const [sizes, lengths] = [projectionSizes(config), vectorSizes(config)];
  const vector = (at: F32Ptr | NullPtr, length: number) =>
    at === NULL ? undefined : kernels.memory.f32(at, length).slice();
  const linear = (name: ProjectionName) => unpackLinear(kernels, layer.linears[name] as PackedLinear, sizes[name].n);
  return {
    layout: "out-in",
    linears: eachOf(PROJECTIONS, linear),
    vectors: {
      qNorm: vector(layer.qNorm, lengths.qNorm),
      kNorm: vector(layer.kNorm, lengths.kNorm),
      slopes: vector(layer.slopes, lengths.slopes),
      sinks: vector(layer.sinks, lengths.sinks),
      extraKey: vector(layer.extraKey, lengths.extraKey),
      extraValue: vector(layer.extraValue, lengths.extraValue),
    },
  };
}

/** The matrix and bias in the first n outputs of panels [panels][k][8]. */
function unpackLinear({ memory }: Kernels, { w, bias, panels, k }: PackedLinear, n: number): CheckedLinear {
  const packed = memory.f32(w, panels * k * PANEL);
  const data = new Float32Array(n * k);
  for (let row = 0; row < n; row++) {
    const at = Math.floor(row / PANEL) * k * PANEL + (row % PANEL);
    for (let i = 0; i < k; i++) data[row * k + i] = packed[at + i * PANEL] as number;
  }
  return {
    w: { name: "w", dtype: "F32", shape: [n, k], bytes: new Uint8Array(data.buffer) },
    bias: memory.f32(bias, n).slice(),
  };
}

/** Each format, and two pairs. */
function defaultTrials(): QuantizeTrial[] {
  const weights = WEIGHT_FORMATS.filter((format) => format !== "f32");
  const caches = ["f16", "q8", "q4"] as const;
  return [
    ...weights.flatMap((format) => [
      ...PROJECTIONS.map((part) => ({ weights: { [part]: format } })),
      { weights: format },
    ]),
    ...caches.flatMap((format): QuantizeTrial[] => [
      { cache: { keys: format, values: "f32" } },
      { cache: { keys: "f32", values: format } },
      { cache: format },
    ]),
    { weights: "q8", cache: "q8" },
    { weights: "q4", cache: "q8" },
  ];
}

/** A trial that was read: its weights' formats, and that of its cache. */
interface CheckedTrial {
  /** The trial as it was given. */
  readonly trial: QuantizeTrial;
  readonly formats: LayerFormats;
  readonly fast: boolean;
  readonly cache: CacheOptions["format"];
}

/** Throws unless `attention` is one of createAttention, whose heads have weights of their own. */
function expectLayer(attention: Attention): void {
  expectMade(WHERE, "attention", attention, "createAttention");
  expectKernels(WHERE, attention.kernels, "attention.kernels");
}

/** Reads samples, each once. Whether they are rows of a layer is checked later. */
function readSamples(where: string, samples: Float32Array | readonly Float32Array[]) {
  const isList = Array.isArray(samples);
  const nameOf = (i: number) => (isList ? `samples[${i}]` : "samples");
  const readSample = (x: unknown, i: number) => expectFloats(where, nameOf(i), x);
  const inputs = Array.from(readList(where, "samples", isList ? samples : [samples], Infinity, readSample));
  const expectRows = (dModel: number) => {
    if (inputs.length === 0) throw new RangeError(`${where}: samples expected one or more, got none`);
    for (const [i, { length }] of inputs.entries())
      if (length === 0 || length % dModel !== 0)
        throw new RangeError(`${where}: ${nameOf(i)} expected a multiple of dModel (${dModel}) floats, got ${length}`);
  };
  return { inputs, expectRows };
}

/** Reads all arguments, each field once, and then checks all of them. */
function checkReport(
  attention: Attention,
  samples: Float32Array | readonly Float32Array[],
  options: QuantizeReportOptions,
): {
  trials: readonly CheckedTrial[];
  inputs: readonly Float32Array[];
  onProgress: QuantizeReportOptions["onProgress"];
} {
  expectLayer(attention);
  const { config, formats, kernels } = attention;
  const { dModel, kdim, vdim } = config;
  const { trials = defaultTrials(), onProgress } = readFields(WHERE, "options", options, ["trials", "onProgress"]);
  if (onProgress !== undefined) expectFunction(WHERE, "onProgress", onProgress);
  if (!Array.isArray(trials)) throw new TypeError(`${WHERE}: trials expected an array, got ${describe(trials)}`);
  const readTrial = (each: unknown, i: number) => {
    const [trial, path] = [each as QuantizeTrial, `trials[${i}]`];
    const given = readFields(WHERE, path, trial, [...WEIGHT_OPTIONS, "cache"]);
    const { formats: asked, fast } = checkWeightOptions(WHERE, `${path}.`, given);
    const stages = checkCacheFormat(WHERE, `${path}.cache`, given.cache, config);
    return { trial, fast, stages, formats: eachOf(PROJECTIONS, (name) => asked[name] ?? formats[name]) };
  };
  const read = Array.from(readList(WHERE, "trials", trials, Infinity, readTrial));
  const { inputs, expectRows } = readSamples(WHERE, samples);

  expectLayer(attention);
  for (const part of PROJECTIONS)
    if (formats[part] !== "f32")
      throw new RangeError(
        `${WHERE}: attention expected weights of "f32", got ${describe(formats[part])} for w${part}`,
      );
  if (kdim !== dModel || vdim !== dModel)
    throw new RangeError(
      `${WHERE}: attention expected kdim and vdim equal to dModel (${dModel}), got ${kdim} and ${vdim}`,
    );
  expectRows(dModel);
  for (const { formats, stages } of read) {
    expectFormatsLoaded(WHERE, kernels.quantized, formats);
    expectStagesLoaded(WHERE, kernels.quantized, stages);
  }
  return {
    inputs,
    onProgress,
    trials: read.map(({ stages, ...rest }) => ({ ...rest, cache: describeStages(stages) })),
  };
}

/** How far a layer is from another one. */
export interface LayerDeviation {
  /** Error of the layer's y over all samples. */
  readonly output: Deviation;
  /** Kullback-Leibler divergence of the maps in nats, as in `QuantizeResult`: the mean over all heads and queries. */
  readonly divergence: number;
}

/**
 * Measures how far a layer is from another one that it stands for, such as what `convertToMla` or `convertToGqa` made of it, on samples
 * of its inputs: y and the maps. `quantizeReport` does it for formats of fewer bits.
 * @param exact The layer that counts as exact.
 * @param other The other one, of the same width and number of heads; it may be of latents, and have other kernels.
 * @param samples One or more sequences x [qLen, dModel], such as the layer gets on real text.
 * @param options `onProgress` is called after each sample.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { createAttention, loadKernels } from "headwise";
 * import { compareLayers } from "headwise/quantized";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const half = { data: eye.data.map((w) => w / 2), shape: [4, 4] };
 * const [exact, other] = [eye, half].map((wo) => createAttention(kernels, { dModel: 4, numHeads: 2 }, { wq: eye, wk: eye, wv: eye, wo }));
 * const { output, divergence } = compareLayers(exact!, other!, Float32Array.of(1, 2, 3, 4, 4, 3, 2, 1));
 * console.log(output.relative, divergence); // 0.5 0
 * kernels.release();
 */
export function compareLayers(
  exact: Attention,
  other: Attention,
  samples: Float32Array | readonly Float32Array[],
  options: Pick<QuantizeReportOptions, "onProgress"> = {},
): LayerDeviation {
  const where = "compareLayers";
  const { onProgress } = readFields(where, "options", options, ["onProgress"]);
  if (onProgress !== undefined) expectFunction(where, "options.onProgress", onProgress);
  const { inputs, expectRows } = readSamples(where, samples);
  for (const [name, layer] of Object.entries({ exact, other })) {
    expectMade(where, name, layer, "createAttention", "createLatentAttention");
    expectKernels(where, layer.kernels, `${name}.kernels`);
    const { dModel, kdim, vdim } = layer.config;
    if (kdim !== dModel || vdim !== dModel)
      throw new RangeError(
        `${where}: ${name} expected kdim and vdim equal to dModel (${dModel}), got ${kdim} and ${vdim}`,
      );
  }
  const { dModel, numHeads } = exact.config;
  for (const [name, size] of Object.entries({ dModel, numHeads } as const))
    if (other.config[name as "dModel" | "numHeads"] !== size)
      throw new RangeError(
        `${where}: other expected ${name} ${size}, as exact has, got ${other.config[name as "dModel" | "numHeads"]}`,
      );
  expectRows(dModel);
  const output = new DeviationSum();
  let [rows, sum] = [0, 0];
  for (const [s, x] of inputs.entries()) {
    const [a, b] = underName(where, () => [attendWithMaps(exact, x), attendWithMaps(other, x)]) as [Attended, Attended];
    const { length } = a.maps.data;
    if (length !== b.maps.data.length)
      throw new RangeError(
        `${where}: other expected maps of ${length} weights, as exact has, got ${b.maps.data.length}`,
      );
    output.add(a.y, b.y, 0, a.y.length);
    sum += divergence(a.maps.data, b.maps.data, 0, length);
    rows += (numHeads * x.length) / dModel;
    onProgress?.((s + 1) / inputs.length);
  }
  return { output: output.result(), divergence: sum / rows };
}

type Attended = ReturnType<typeof attendWithMaps>;

type Floats = ArrayLike<number>;

/** How far numbers z are from the exact numbers y. */
export interface Deviation {
  /** ‖z - y‖ / ‖y‖, the ratio of the Euclidean norms. */
  readonly relative: number;
  /** Cosine of the angle between y and z; 0 if one of them is 0. */
  readonly cosine: number;
  /** max |z - y| / max |y|. */
  readonly largest: number;
}

/** Sums the error over pairs of numbers. */
export class DeviationSum {
  #lost = 0;
  #exact = 0;
  #other = 0;
  #product = 0;
  #mostLost = 0;
  #most = 0;

  /** Adds the pairs y[i], z[i] for i from `begin` to `end`. */
  add(y: Floats, z: Floats, begin: number, end: number): void {
    for (let i = begin; i < end; i++) {
      const [exact, other] = [y[i] as number, z[i] as number];
      const lost = Math.abs(other - exact);
      this.#lost += lost * lost;
      this.#exact += exact * exact;
      this.#other += other * other;
      this.#product += exact * other;
      this.#mostLost = Math.max(this.#mostLost, lost);
      this.#most = Math.max(this.#most, Math.abs(exact));
    }
  }

  result(): Deviation {
    const lengths = Math.sqrt(this.#exact * this.#other);
    return {
      relative: ratio(Math.sqrt(this.#lost), Math.sqrt(this.#exact)),
      // Rounding may make the cosine of equal vectors larger than 1.
      cosine: this.#lost === 0 ? 1 : lengths === 0 ? 0 : Math.min(1, this.#product / lengths),
      largest: ratio(this.#mostLost, this.#most),
    };
  }
}

/** lost / all; 0 of 0 is no error. */
function ratio(lost: number, all: number): number {
  return lost === 0 ? 0 : lost / all;
}

/**
 * Weights of the other map count as at least the smallest normal float32: a weight that was rounded to 0 was not
 * excluded.
 */
const LEAST = 2 ** -126;

/**
 * Σ p·ln(p / q) + q - p over weights p and q, in nats. Each term is >= 0. For maps with equal row sums it is the
 * Kullback-Leibler divergence.
 */
export function divergence(p: Floats, q: Floats, begin: number, end: number): number {
  let sum = 0;
  for (let i = begin; i < end; i++) {
    const [exact, other] = [p[i] as number, q[i] as number];
    sum += exact === 0 ? other : exact * ln(exact / Math.max(other, LEAST)) + other - exact;
  }
  return sum;
}
