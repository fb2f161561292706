import { attend } from "../api/attend.ts";
import type { Attention } from "../attention/attention.ts";
import type { CheckedConfig } from "../attention/config.ts";
import { type Cache, createCache } from "../cache/cache.ts";
import type { CacheFormat } from "../cache/page-layout.ts";
import { FloatDigest } from "../diagnostics/float-digest.ts";
import { median } from "../diagnostics/timing.ts";
import type { CheckedLatentConfig } from "../latent/config.ts";
import type { PackedFormat, WeightFormat } from "../linear/formats.ts";
import type { Kernels, Threads } from "../wasm/kernels.ts";
import type { Build } from "../wasm/select-build.ts";
import { formatsOf, type Layer, packLayer } from "./layer.ts";

/** What to run on a layer, and the formats of its weights and cache. */
export interface LayerWork {
  /** [tokens, dModel]. */
  readonly x: Float32Array;
  /** Of cross-attention: what keys and values are projected from, [keys, kdim]. */
  readonly keys: Float32Array | undefined;
  /** How many tokens, the last ones, are decoded one by one. */
  readonly decode: number;
  readonly weights: WeightFormat | undefined;
  readonly cache: CacheFormat | undefined;
}

/** Milliseconds of calls: the median and the minimum. */
interface Times {
  readonly ms: number;
  readonly bestMs: number;
}

/** Result of running a layer. */
export interface LayerRun {
  /** Of latent attention, with its further fields. */
  readonly config: CheckedConfig | CheckedLatentConfig;
  /** Of each packed matrix. */
  readonly formats: Readonly<Record<string, PackedFormat>>;
  readonly cacheFormat: CacheFormat;
  readonly weightBytes: number;
  readonly cacheBytes: number;
  readonly memoryBytes: number;
  readonly packMs: number;
  readonly kernels: { readonly build: Build; readonly reason: string; readonly threads: Threads };
  readonly prefill: Times & { readonly tokens: number; readonly firstMs: number };
  /** Undefined if later tokens change earlier rows, or no token is decoded. */
  readonly decode?: Times & {
    readonly tokens: number;
    /** Tokens before the first decoded one. */
    readonly past: number;
    /** Whether every row has the same bits as in the prefill. */
    readonly same: boolean;
    readonly differing: number;
  };
  /** How many keys there are, in cross-attention. */
  readonly keys?: number;
  readonly y: { readonly shape: readonly number[]; readonly digest: string; readonly first: readonly number[] };
}

const MOST_PREFILLS = 20;
const PREFILLS_MS = 1000;
const DECODES = 3;

/**
 * Prefills all tokens, then most of them and the rest one by one, and compares. In cross-attention, every token attends the
 * same keys, which are projected once.
 */
export function runLayer(
  kernels: Kernels,
  layer: Layer,
  { x, keys, decode, weights: format, cache: cacheFormat = "f32" }: LayerWork,
): LayerRun {
  const began = performance.now();
  const attention = packLayer(kernels, layer, format);
  const packMs = performance.now() - began;
  const { dModel, kdim, vdim, causal, window } = attention.config;
  const width = keys === undefined ? dModel : kdim;
  if (kdim !== width || vdim !== width)
    throw new Error(`run: MODEL expected keys and values from the same rows, got ${kdim} and ${vdim} floats of each`);
  const tokens = x.length / dModel;
  const keyTokens = keys && keys.length / kdim;
  const cache = createCache(attention, { maxSeqLen: keyTokens ?? tokens, format: cacheFormat });
  const { y, ...prefill } = timePrefill(attention, cache, x, keys);
  const attendsEarlierOnly = keys !== undefined || causal || window.right === 0;
  const digest = new FloatDigest();
  digest.add(y);
  const { build, reason, threads } = kernels;
  return {
    config: attention.config,
    formats: formatsOf(attention, layer),
    cacheFormat,
    weightBytes: attention.bytes,
    cacheBytes: cache.bytes,
    packMs,
    kernels: { build, reason, threads },
    prefill: { tokens, ...prefill },
    ...(attendsEarlierOnly && decode > 0 && { decode: timeDecode(attention, cache, x, keys, y, decode) }),
    ...(keyTokens !== undefined && { keys: keyTokens }),
    y: { shape: [tokens, dModel], digest: digest.toString(), first: Array.from(y.subarray(0, 6)) },
    memoryBytes: kernels.memoryBytes,
  };
}

function timePrefill(attention: Attention, cache: Cache, x: Float32Array, keys: Float32Array | undefined) {
  const times: number[] = [];
  let y = new Float32Array() as Float32Array;
  const end = performance.now() + PREFILLS_MS;
  while (times.length < 2 || (times.length < MOST_PREFILLS && performance.now() < end)) {
    cache.truncate(0);
    const began = performance.now();
    y = attend(attention, x, { cache, keys });
    times.push(performance.now() - began);
  }
  // The first call is slower: the engine optimises the kernels while it runs.
  const [firstMs, ...others] = times as [number, ...number[]];
  return { y, firstMs, ms: median(others), bestMs: Math.min(...others) };
}

function timeDecode(
  attention: Attention,
  cache: Cache,
  x: Float32Array,
  keys: Float32Array | undefined,
  y: Float32Array,
  tokens: number,
): NonNullable<LayerRun["decode"]> {
  const { dModel } = attention.config;
  const row = (t: number) => x.subarray(t * dModel, (t + 1) * dModel);
  const all = x.length / dModel;
  const past = all - tokens;
  // Keys of cross-attention are cached by the first call, of any token.
  const before = keys === undefined ? past : Math.max(past, 1);
  const options = keys === undefined ? { cache } : { cache, append: false };
  const times: number[] = [];
  const differing = new Set<number>();
  for (let pass = 0; pass < DECODES; pass++) {
    cache.truncate(0);
    if (before > 0) attend(attention, x.subarray(0, before * dModel), { cache, keys });
    for (let t = past; t < all; t++) {
      const began = performance.now();
      const one = attend(attention, row(t), options);
      times.push(performance.now() - began);
      if (one.some((value, i) => !Object.is(value, y[t * dModel + i]))) differing.add(t);
    }
  }
  return {
    ...{ tokens, past, ms: median(times), bestMs: Math.min(...times) },
    ...{ same: differing.size === 0, differing: differing.size },
  };
}
