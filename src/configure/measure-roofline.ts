// Measures what a machine reaches, with the kernels that models run on.

import { PANEL } from "../../assembly/layout.ts";
import { linear } from "../api/linear.ts";
import { scaledDotProductAttention } from "../api/sdpa.ts";
import { createKvCache } from "../cache/kv-cache.ts";
import { CACHE_FORMATS, type CacheFormat } from "../cache/page-layout.ts";
import { startPeak } from "../diagnostics/peak.ts";
import { createRandom } from "../diagnostics/random.ts";
import { startStream } from "../diagnostics/stream.ts";
import { type Effort, type Load, timeLoads } from "../diagnostics/timing.ts";
import { createLinear } from "../linear/create-linear.ts";
import { WEIGHT_FORMATS, type WeightFormat } from "../linear/formats.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { expectInt, expectOneOf, readFields } from "../util/arguments.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import type { Roofline } from "./roofline.ts";

/** What to measure. */
export interface RooflineOptions {
  /** Format of the weights. Default "f32". */
  readonly weights?: WeightFormat;
  /** Format of the cache. Default "f32". */
  readonly cache?: CacheFormat;
  /** Heads of the attention that is measured. Default 12. */
  readonly numHeads?: number;
  /** Heads of keys and values. Default numHeads. */
  readonly numKvHeads?: number;
  /** Floats in a head. Default 64. */
  readonly headDim?: number;
}

const OPTIONS = ["weights", "cache", "numHeads", "numKvHeads", "headDim"] as const;

/** A few seconds in all. */
const EFFORT: Effort = { warmupMs: 60, sampleMs: 8, rounds: 15, mostMs: 4000 };
/** Memory that no cache of a processor holds. */
const STREAMED = 2 ** 28;
/** What stays in the nearer caches of a processor, in its last one, and in memory. */
const SIZES = [2 ** 20, 2 ** 23, 2 ** 26];
/** Inputs of the matrices, and rows of a prompt. */
const [INPUTS, ROWS] = [1024, 128];
/** Tokens of the attention. */
const TOKENS = 512;

/** A load whose memory is freed by `release`. */
export interface Placed extends Load {
  release?(): void;
}

/**
 * Measures the roofline of one machine in some five seconds: the peak of arithmetic and of reading memory, and what the kernels reach
 * with weights of a format and attention of a shape. Speeds are those of the fastest of some samples, as other programs only make them
 * slower.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `NO_QUANTIZED`, `OUT_OF_MEMORY` or `RELEASED`; an Error where the
 * clock stands still while code runs.
 * @example
 * import { loadKernels } from "headwise";
 * import { configure, measureRoofline } from "headwise/configure";
 * const kernels = await loadKernels();
 * const options = { parameterBudget: 1e6, seqLen: 256, target: "browser", weights: "f32" } as const;
 * const { speed } = configure({ ...options, roofline: await measureRoofline(kernels) });
 * console.log(speed !== undefined && speed.decodeTokensPerSecond > 0); // true
 * kernels.release();
 */
export async function measureRoofline(kernels: Kernels, options: RooflineOptions = {}): Promise<Roofline> {
  const where = "measureRoofline";
  expectKernels(where, kernels);
  const given = readFields(where, "options", options, OPTIONS);
  const { weights = "f32", cache = "f32", numHeads = 12, numKvHeads = numHeads, headDim = 64 } = given;
  expectOneOf(where, "options.weights", weights, WEIGHT_FORMATS);
  expectOneOf(where, "options.cache", cache, CACHE_FORMATS);
  for (const [name, value] of Object.entries({ numHeads, numKvHeads, headDim }))
    expectInt(where, `options.${name}`, value);
  const loads = rooflineLoads(kernels, { weights, cache, numHeads, numKvHeads, headDim });
  const all = [...loads.prompt, ...loads.token];
  try {
    const rates = await timeLoads(all, EFFORT);
    if (rates) return loads.read(rates.map(({ bestGflops }) => 1e9 * bestGflops));
    throw new Error(`${where}: clock expected to advance while code runs, got one that stands still`);
  } finally {
    for (const load of all) load.release?.();
  }
}

/** Loads whose rates make a roofline: of prompts, and of a token. */
export interface RooflineLoads {
  readonly prompt: readonly Placed[];
  readonly token: readonly Placed[];
  /** The roofline of the rates per second of `prompt`, then of `token`. */
  read(rates: readonly number[]): Roofline;
}

/** The loads of a roofline. `sizes` are bytes of weights whose reading is timed, ascending. */
export function rooflineLoads(
  kernels: Kernels,
  { weights, ...heads }: Required<RooflineOptions>,
  sizes: readonly number[] = SIZES,
): RooflineLoads {
  const product = productOf(kernels, weights, INPUTS, ROWS);
  return {
    prompt: [startPeak(kernels.fused), startStream(STREAMED), product, promptOf(kernels, heads)],
    token: [decodeOf(kernels, heads), ...sizes.map((size) => readingOf(kernels, weights, size))],
    read([flops = 0, bytes = 0, products = 0, prompt = 0, token = 0, ...reading]) {
      const curve = reading.map((perSecond, i) => [sizes[i] as number, perSecond] as const);
      return {
        ...{ flops, bytes, attention: { prompt, token } },
        weights: { [weights]: { flops: products, bytes: curve } },
      };
    },
  };
}

/** Rows times a matrix of `outputs` outputs. */
function productOf(kernels: Kernels, weights: WeightFormat, outputs: number, rows: number): Placed & { bytes: number } {
  const { floats } = createRandom(outputs);
  // As small as in models: of 16-bit floats, those near 0 are widened more slowly.
  const data = floats(outputs * INPUTS).map((value) => value / Math.sqrt(INPUTS));
  const layer = createLinear(kernels, { weight: { data, shape: [outputs, INPUTS] } }, { weights });
  const [x, out] = [floats(rows * INPUTS), new Float32Array(rows * outputs)];
  return {
    flops: 2 * rows * outputs * INPUTS,
    bytes: layer.bytes,
    run: () => void linear(layer, x, { out }),
    release: () => layer.release(),
  };
}

/** One row times square matrices of about `size` bytes together, which are counted. */
function readingOf(kernels: Kernels, weights: WeightFormat, size: number): Placed {
  const panel = productOf(kernels, weights, PANEL, 1);
  panel.release?.();
  const panels = Math.max(1, Math.round(size / panel.bytes));
  const count = Math.ceil((panels * PANEL) / INPUTS);
  const products = Array.from({ length: count }, () =>
    productOf(kernels, weights, PANEL * Math.ceil(panels / count), 1),
  );
  return {
    flops: products.reduce((sum, { bytes }) => sum + bytes, 0),
    run() {
      for (const product of products) product.run();
    },
    release() {
      for (const product of products) product.release?.();
    },
  };
}

type Heads = Required<Omit<RooflineOptions, "weights">>;

/** Random rows of heads. */
function rowsOf(heads: number, tokens: number, headDim: number): Tensor {
  return { data: createRandom(heads).floats(heads * tokens * headDim), shape: [1, heads, tokens, headDim] };
}

/** Attention of a prompt, through a cache as models have it. */
function promptOf(kernels: Kernels, { cache: format, numHeads, numKvHeads, headDim }: Heads): Placed {
  const cache = createKvCache(kernels, { numKvHeads, headDim, maxSeqLen: TOKENS, format });
  const q = rowsOf(numHeads, TOKENS, headDim);
  const kv = rowsOf(numKvHeads, TOKENS, headDim);
  return {
    flops: 2 * numHeads * headDim * TOKENS * (TOKENS + 1),
    run() {
      scaledDotProductAttention(kernels, q, kv, kv, { cache, causal: true });
      cache.truncate(0);
    },
    release: () => cache.release(),
  };
}

/** Attention of a token behind a prompt. */
function decodeOf(kernels: Kernels, { cache: format, numHeads, numKvHeads, headDim }: Heads): Placed {
  const cache = createKvCache(kernels, { numKvHeads, headDim, maxSeqLen: TOKENS, format });
  const [q, kv] = [rowsOf(numHeads, 1, headDim), rowsOf(numKvHeads, 1, headDim)];
  const before = rowsOf(numKvHeads, TOKENS - 1, headDim);
  scaledDotProductAttention(kernels, q, before, before, { cache });
  return {
    flops: 4 * numHeads * headDim * TOKENS,
    run() {
      scaledDotProductAttention(kernels, q, kv, kv, { cache, causal: true });
      cache.truncate(TOKENS - 1);
    },
    release: () => cache.release(),
  };
}
