import { attend } from "../api/attend.ts";
import { type Attention, createAttention } from "../attention/attention.ts";
import type { AttentionConfig, CheckedConfig } from "../attention/config.ts";
import type { LayerFormats } from "../attention/weight-options.ts";
import type { AttentionWeights } from "../attention/weights.ts";
import { type Cache, createCache } from "../cache/cache.ts";
import type { CacheFormat } from "../cache/page-layout.ts";
import { Digest } from "../diagnostics/digest.ts";
import { median } from "../diagnostics/timing.ts";
import type { WeightFormat } from "../linear/formats.ts";
import type { Kernels, Threads } from "../wasm/kernels.ts";
import type { Build } from "../wasm/select-build.ts";

/** What to run on a layer, and the formats of its weights and cache. */
export interface LayerWork {
  /** [tokens, dModel]. */
  readonly x: Float32Array;
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
  readonly config: CheckedConfig;
  readonly formats: LayerFormats;
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
  readonly y: { readonly shape: readonly number[]; readonly digest: string; readonly first: readonly number[] };
}

const MOST_PREFILLS = 20;
const PREFILLS_MS = 1000;
const DECODES = 3;

/** Prefills all tokens, then most of them and the rest one by one, and compares. */
export function runLayer(
  kernels: Kernels,
  config: AttentionConfig,
  weights: AttentionWeights,
  { x, decode, weights: format, cache: cacheFormat = "f32" }: LayerWork,
): LayerRun {
  const began = performance.now();
  const attention = createAttention(kernels, config, weights, { weights: format });
  const packMs = performance.now() - began;
  const { dModel, kdim, vdim, causal, window } = attention.config;
  if (kdim !== dModel || vdim !== dModel)
    throw new Error(`run: MODEL expected a layer of self-attention, got one with keys of ${kdim} floats`);
  const tokens = x.length / dModel;
  const cache = createCache(attention, { maxSeqLen: tokens, format: cacheFormat });
  const { y, ...prefill } = timePrefill(attention, cache, x);
  const attendsEarlierOnly = causal || window.right === 0;
  const digest = new Digest();
  digest.add(y);
  const { build, reason, threads } = kernels;
  return {
    config: attention.config,
    formats: attention.formats,
    cacheFormat,
    weightBytes: attention.bytes,
    cacheBytes: cache.bytes,
    packMs,
    kernels: { build, reason, threads },
    prefill: { tokens, ...prefill },
    ...(attendsEarlierOnly && decode > 0 && { decode: timeDecode(attention, cache, x, y, decode) }),
    y: { shape: [tokens, dModel], digest: digest.toString(), first: Array.from(y.subarray(0, 6)) },
    memoryBytes: kernels.memoryBytes,
  };
}

function timePrefill(attention: Attention, cache: Cache, x: Float32Array) {
  const times: number[] = [];
  let y = new Float32Array() as Float32Array;
  const end = performance.now() + PREFILLS_MS;
  while (times.length < 2 || (times.length < MOST_PREFILLS && performance.now() < end)) {
    cache.truncate(0);
    const began = performance.now();
    y = attend(attention, x, { cache });
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
  y: Float32Array,
  tokens: number,
): NonNullable<LayerRun["decode"]> {
  const { dModel } = attention.config;
  const row = (t: number) => x.subarray(t * dModel, (t + 1) * dModel);
  const all = x.length / dModel;
  const past = all - tokens;
  const times: number[] = [];
  const differing = new Set<number>();
  for (let pass = 0; pass < DECODES; pass++) {
    cache.truncate(0);
    if (past > 0) attend(attention, x.subarray(0, past * dModel), { cache });
    for (let t = past; t < all; t++) {
      const began = performance.now();
      const one = attend(attention, row(t), { cache });
      times.push(performance.now() - began);
      if (one.some((value, i) => !Object.is(value, y[t * dModel + i]))) differing.add(t);
    }
  }
  return {
    ...{ tokens, past, ms: median(times), bestMs: Math.min(...times) },
    ...{ same: differing.size === 0, differing: differing.size },
  };
}
