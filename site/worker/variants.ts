// What the variants of attention cost as the context grows: bytes of the cache, and the time of a token.

import {
  type Attention,
  attend,
  type Cache,
  createAttention,
  createCache,
  HeadwiseError,
  type Kernels,
  plan,
} from "headwise";
import { createLatentAttention, latent, planLatent } from "headwise/latent";
import { type CachePage, exportPages, importPages } from "headwise/models";
import { quantized } from "headwise/quantized";
import { loadKernels } from "headwise/threads";
import type { Call } from "./call.ts";
import { pause } from "./pause.ts";
import { normals } from "./random.ts";
import {
  type Cost,
  FORMATS,
  type Format,
  hasFormat,
  type Layer,
  layerOf,
  lengthsUpTo,
  type ShapeName,
  VARIANTS,
  type Variant,
} from "./variant-layers.ts";

/** How times were measured. */
export interface Conditions {
  readonly build: string;
  readonly threads: number;
  /** How many caches memory has no room for. */
  readonly tooLarge: number;
  /** The slowest sample of a time over the fastest: the median over all times. */
  readonly spread: number;
}

interface Given {
  readonly shape: ShapeName;
  readonly most: number;
}

/** All variants in all formats at all lengths, with the bytes of their caches. */
export function variantBytesTask({ shape, most }: Given): Cost[] {
  return lengthsUpTo(most).flatMap((length) =>
    VARIANTS.flatMap((variant) => {
      const layer = layerOf(variant, shape);
      return FORMATS.filter((format) => hasFormat(variant, format)).map((format) => ({
        ...{ variant, format, length, bytes: cacheBytes(layer, format, length) },
      }));
    }),
  );
}

function cacheBytes(layer: Layer, format: Format, maxSeqLen: number): number {
  const sizes = { maxSeqLen, format };
  return "latent" in layer ? planLatent(layer.latent, sizes).cache : plan(layer.plain, sizes).cache;
}

/** A sample takes at least so long: clocks of pages tick up to a millisecond apart. */
const SAMPLE_MS = 20;
/** Samples of a time in each pass over all of them: what else the device does changes within seconds. */
const SAMPLES = 3;
const PASSES = 3;
/** Tokens of a page of a cache. */
const PAGE = 128;

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1] as number;

/** A time that is being measured. */
interface Load {
  readonly cost: Cost;
  readonly layer: Attention;
  readonly pages: (length: number) => Iterable<CachePage>;
  /** Milliseconds a token. */
  readonly samples: number[];
  /** Tokens of a sample; 0 before the first, and undefined where memory has no room for the cache. */
  tokens: number | undefined;
}

/** Measures all times in passes. Each is reported whenever it has new samples: a stop leaves what was measured. */
export async function variantTimesTask({ shape, most }: Given, { report, signal }: Call): Promise<Conditions> {
  const kernels = await loadKernels({ quantized, latent });
  try {
    const loads = await createLoads(kernels, shape, variantBytesTask({ shape, most }), signal);
    for (let pass = 0; pass < PASSES; pass++)
      for (const [i, load] of loads.entries()) {
        await sample(load, signal);
        const { samples } = load;
        const range = [Math.min(...samples), Math.max(...samples)] as const;
        const cost = samples.length > 0 ? { ...load.cost, ms: median(samples), range } : load.cost;
        report({ kind: "cost", cost, done: pass * loads.length + i + 1, all: PASSES * loads.length });
      }
    const tooLarge = loads.filter(({ tokens }) => tokens === undefined).length;
    const spreads = loads.flatMap(({ samples }) =>
      samples.length > 0 ? [Math.max(...samples) / Math.min(...samples)] : [],
    );
    return { build: kernels.build, threads: kernels.threads.used, tooLarge, spread: median(spreads) };
  } finally {
    kernels.release();
  }
}

async function createLoads(
  kernels: Kernels,
  shape: ShapeName,
  costs: readonly Cost[],
  signal: AbortSignal,
): Promise<Load[]> {
  const layers = new Map<Variant, Attention>();
  const pages = new Map<string, CachePage>();
  const loads: Load[] = [];
  for (const cost of costs) {
    await pause(signal);
    const { variant, format } = cost;
    const layer = layers.get(variant) ?? createLayer(kernels, layerOf(variant, shape));
    layers.set(variant, layer);
    const key = `${variant} ${format}`;
    const page = pages.get(key) ?? fillPage(layer, format);
    pages.set(key, page);
    loads.push({ cost, layer, pages: (length) => repeated(page, length), samples: [], tokens: 0 });
  }
  return loads;
}

/** A layer with random weights; their values do not change its speed. */
function createLayer(kernels: Kernels, layer: Layer): Attention {
  const matrix = (rows: number, columns: number) => ({
    data: normals(rows * columns, rows).map((weight) => weight / Math.sqrt(columns)),
    shape: [rows, columns],
  });
  if ("latent" in layer) {
    const { dModel, numHeads, kvLoraRank, nopeDim, ropeDim } = layer.latent;
    return createLatentAttention(kernels, layer.latent, {
      wq: matrix(numHeads * (nopeDim + ropeDim), dModel),
      wkvDown: matrix(kvLoraRank + ropeDim, dModel),
      kvNorm: new Float32Array(kvLoraRank).fill(1),
      wkvUp: matrix(2 * numHeads * nopeDim, kvLoraRank),
      wo: matrix(dModel, numHeads * nopeDim),
    });
  }
  const { dModel, numHeads, headDim = dModel / numHeads, numKvHeads = numHeads } = layer.plain;
  return createAttention(kernels, layer.plain, {
    wq: matrix(numHeads * headDim, dModel),
    wk: matrix(numKvHeads * headDim, dModel),
    wv: matrix(numKvHeads * headDim, dModel),
    wo: matrix(dModel, numHeads * headDim),
    ...(layer.sinks && { sinkLogits: new Float32Array(numHeads) }),
  });
}

/** Times the last token of a context: a cache with all before it, the token, and the cache again without it. */
async function sample(load: Load, signal: AbortSignal): Promise<void> {
  const { layer, pages, samples } = load;
  const { format, length } = load.cost;
  if (load.tokens === undefined) return;
  let cache: Cache;
  try {
    cache = createCache(layer, { maxSeqLen: length, format });
  } catch (error) {
    if (!(error instanceof HeadwiseError && error.code === "OUT_OF_MEMORY")) throw error;
    load.tokens = undefined;
    return;
  }
  try {
    importPages(cache, pages(length - 1), length - 1);
    const x = normals(layer.config.dModel, 1);
    const out = new Float32Array(x.length);
    const run = (tokens: number): number => {
      const begin = performance.now();
      for (let i = 0; i < tokens; i++) {
        attend(layer, x, { cache, out });
        cache.truncate(length - 1);
      }
      return performance.now() - begin;
    };
    // Engines use their best compiler only after a while.
    run(3);
    for (load.tokens ||= 1; run(load.tokens) < SAMPLE_MS; load.tokens *= 2) await pause(signal);
    for (let left = SAMPLES; left > 0; ) {
      const ms = run(load.tokens);
      if (ms < SAMPLE_MS / 2) {
        // Something else slowed down the run that chose this number of tokens; for so few, clocks may show 0.
        load.tokens *= 2;
      } else {
        samples.push(ms / load.tokens);
        left--;
      }
      await pause(signal);
    }
  } finally {
    cache.release();
  }
}

/** The first page of a cache. */
function fillPage(layer: Attention, format: Format): CachePage {
  const cache = createCache(layer, { maxSeqLen: PAGE, format });
  attend(layer, normals(PAGE * layer.config.dModel, 2), { cache });
  const [page] = exportPages(cache);
  cache.release();
  return page as CachePage;
}

/** The pages of `length` tokens: one page, again and again, since reading so many tokens would take minutes. */
function* repeated({ bytes }: CachePage, length: number): Generator<CachePage> {
  for (let index = 0; index * PAGE < length; index++) yield { index, bytes };
}
