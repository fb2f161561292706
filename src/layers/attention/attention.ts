// A layer of attention in linear memory, and caches for it.

import { readFields } from "../../base/util/arguments.ts";
import { expectMade, type Handle, makeHandle, type Releasable } from "../../base/util/lifetime.ts";
import { rowsIn } from "../../base/util/rows.ts";
import { expectKernels, freeing, type Kernels } from "../../wasm/kernels.ts";
import { pointer } from "../../wasm/memory.ts";
import type { BlockLayer, Mixer, Passes } from "../mixer/mixer.ts";
import { CACHE_OPTIONS, type CacheOptions, checkCacheOptions, type KvCache, makeCache } from "../state/kv-cache.ts";
import type { PageShape } from "../state/pages.ts";
import { type AttentionConfig, type CheckedConfig, checkConfig } from "./config.ts";
import { HEAD_PASSES } from "./head-passes.ts";
import { HEADS, type HeadNorm, type HeadRules, type HeadsLayer, normGroups } from "./heads.ts";
import { type KvState, retentionOf } from "./kv-state.ts";
import { createRotary, type Rotary } from "./rope.ts";
import {
  type AttentionWeights,
  type CheckedWeights,
  checkWeightOptions,
  checkWeights,
  expectFormatsLoaded,
  type LayerFormats,
  storeLayer,
  WEIGHT_OPTIONS,
  type WeightOptions,
} from "./weights.ts";

/**
 * One attention layer: its configuration, and its weights packed in linear memory until `release()`.
 * @example
 * import { attend, createAttention, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * console.log(attend(attention, new Float32Array(12).fill(1)).length); // 12: three tokens of four floats
 * attention.release();
 */
export interface Attention extends Releasable, Handle {
  /** The kernels that run the layer, in whose memory its weights lie. */
  readonly kernels: Kernels;
  /** The configuration with every default filled in. */
  readonly config: CheckedConfig;
  /** The format of each packed matrix. */
  readonly formats: LayerFormats;
  /** Bytes of linear memory that the weights take. */
  readonly bytes: number;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /** @internal What `createCache` and calls without a cache make pages for. */
  readonly pageShape: PageShape;
  /** @internal */
  readonly rotary: Rotary | undefined;
  /** @internal The name of its mixer. */
  readonly kind: string;
  /** @internal How calls run it. */
  readonly passes: Passes;
}

/**
 * Packs the weights of a layer into linear memory. Each matrix keeps the format it is stored in, unless `options.weights`
 * names another: one for all matrices, or one for some, as in `{ q: "q8", o: "f16" }`. The given arrays are not used later.
 * @throws TypeError or RangeError naming the argument, the rule and the value. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or
 * `NO_QUANTIZED` for formats other than "f32" with kernels that were loaded without `quantized`. Nothing is allocated then.
 * @example
 * import { createAttention, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const matrix = { data: new Float32Array(64 * 64), shape: [64, 64] };
 * using attention = createAttention(kernels, { dModel: 64, numHeads: 4 }, { wq: matrix, wk: matrix, wv: matrix, wo: matrix });
 * console.log(attention.config.headDim); // 16
 */
export function createAttention(
  kernels: Kernels,
  config: AttentionConfig,
  weights: AttentionWeights,
  options: WeightOptions = {},
): Attention {
  const where = "createAttention";
  expectKernels(where, kernels);
  const checked = checkConfig(where, config);
  const formats = checkWeightOptions(where, "options.", readFields(where, "options", options, WEIGHT_OPTIONS));
  const given = checkWeights(where, checked, weights, formats, kernels.quantized);
  // Again, because reading arguments may have run code of the caller's that released them.
  expectKernels(where, kernels);
  expectFormatsLoaded(where, kernels.quantized, given.formats);
  return packAttention(where, kernels, checked, given);
}

/**
 * `createAttention` for a checked configuration and checked weights. Without `weights.linears.o`, y holds the heads'
 * outputs: [.., numHeads·valueDim].
 */
export function packAttention(
  where: string,
  kernels: Kernels,
  config: CheckedConfig,
  weights: CheckedWeights,
): Attention & HeadsLayer {
  const parts = { ...packHeads(where, kernels, config, weights, undefined, undefined), passes: HEAD_PASSES };
  return makeHandle<Attention & HeadsLayer>(
    "Attention",
    MAKER,
    parts,
    [...INTERNAL, "passes"],
    freeing(kernels, parts.layer.at),
  );
}

/** A layer of a model, for a checked configuration and checked weights. */
export function packBlockHeads(
  where: string,
  kernels: Kernels,
  config: CheckedConfig,
  weights: CheckedWeights,
  headNorm: HeadNorm | undefined,
  rules: HeadRules | undefined,
): BlockLayer {
  const mixer = rules?.pairs ? inPairs(rules.pairs) : HEADS;
  const parts = { ...packHeads(where, kernels, config, weights, headNorm, rules), mixer };
  type Made = BlockLayer & HeadsLayer & Pick<Attention, "formats" | "released" | typeof Symbol.dispose>;
  return makeHandle<Made>("Attention", MAKER, parts, [...INTERNAL, "mixer"], freeing(kernels, parts.layer.at));
}

/**
 * The mixer of heads of which those of the second half, times λ, are subtracted from those of the first, and leave zeros. λ and the
 * gains of the norm are at `at`.
 */
const inPairs = ({ at, eps }: NonNullable<HeadRules["pairs"]>): Mixer<HeadsLayer, KvState> => ({
  ...HEADS,
  plan(attention, ...of) {
    const run = HEADS.plan(attention, ...of);
    const { table, memory } = attention.kernels;
    const { numHeads, valueDim } = attention.config;
    const n = (numHeads / 2) * valueDim;
    return (base, stepFlops, runs, io) =>
      run(base, stepFlops, runs, {
        ...io,
        *finish(heads) {
          const rows = rowsIn(runs);
          const rowOf = (r: number, first: number) => pointer.f32(heads.at + 4 * (r * heads.stride + first));
          const share = -(memory.f32(at, 1)[0] as number);
          for (let r = 0; r < rows; r++) table.add_scaled_f32(rowOf(r, 0), rowOf(r, 0), rowOf(r, n), n, share, 0, 1);
          normGroups(attention.kernels, heads, rows, numHeads / 2, valueDim, pointer.f32(at + 4), eps);
          table.cap_logits_f32(rowOf(0, n), n, heads.stride, 0, 0, 0, rows);
          yield* io.finish?.(heads) ?? [];
        },
      });
  },
});

const MAKER = "createAttention";
const INTERNAL = ["kind", "pageShape", "headNorm", "rules", "layer", "rotary"] as const;

function packHeads(
  where: string,
  kernels: Kernels,
  config: CheckedConfig,
  weights: CheckedWeights,
  headNorm: HeadNorm | undefined,
  rules: HeadRules | undefined,
): HeadsLayer & Pick<Attention, "formats" | "bytes"> {
  const layer = storeLayer(where, kernels, config, weights);
  return {
    ...{ kind: "heads", kernels, config, headNorm, rules, layer, pageShape: config },
    formats: Object.freeze(layer.formats),
    bytes: layer.bytes,
    rotary: config.rope && createRotary(config.rope, rules?.backwards),
  };
}

// Caches.

/**
 * The KV cache of one attention layer: keys and values of `batch` sequences, which always have the same length. All of its
 * memory is allocated when it is made, in pages of 128 tokens, and freed by `release()`.
 * @example
 * import { createAttention, createCache, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2 }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const cache = createCache(attention, { maxSeqLen: 100 });
 * console.log(cache.length, cache.bytes); // 0 10304: no token yet, and one page of 128 tokens
 * kernels.release();
 */
export interface Cache extends KvCache {
  /** @internal */
  readonly attention: Attention;
}

/**
 * Allocates a KV cache for an attention layer. If the layer has a window to the left, and no query attends later keys
 * (`causal`, or `window.right` 0), the cache keeps only the pages that the window needs, however large `maxSeqLen` is; see
 * `CacheOptions.truncatable`.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or `NO_QUANTIZED` for
 * formats other than "f32" with kernels that were loaded without `quantized`. Nothing is allocated then.
 * @example
 * import { attend, createAttention, createCache, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2 }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const cache = createCache(attention, { maxSeqLen: 100, batch: 2 });
 * attend(attention, new Float32Array(2 * 3 * 4), { cache }); // three tokens of each sequence
 * console.log(cache.length, cache.read().key.shape); // 3 [ 2, 2, 3, 2 ]
 * kernels.release();
 */
export function createCache(attention: Attention, options: CacheOptions): Cache {
  const where = "createCache";
  expectMade(where, "attention", attention, ...LAYERS);
  const { kernels, config, pageShape } = attention;
  const given = readFields(where, "options", options, CACHE_OPTIONS);
  const checked = checkCacheOptions(where, pageShape, given);
  // After all arguments were read, which may run code of the caller's.
  expectMade(where, "attention", attention, ...LAYERS);
  expectKernels(where, kernels, "attention.kernels");
  const retention = retentionOf(where, config, given.truncatable);
  return makeCache<Cache>("Cache", where, kernels, pageShape, checked, retention, { attention });
}

/** What makes the layers that have caches. */
const LAYERS = ["createAttention", "createLatentAttention"];
