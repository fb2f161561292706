import type { Cache } from "./cache.ts";
import { type AttentionConfig, type CheckedConfig, checkConfig } from "./config.ts";
import { describe, expectFields, expectFlag, expectFloats, expectInt, HeadwiseError } from "./errors.ts";
import { type AttendCall, forward } from "./forward.ts";
import { expectKernels, type Kernels } from "./kernels.ts";
import { type Layer, storeLayer } from "./layer.ts";
import { DISPOSE, expectMade, type Releasable } from "./lifetime.ts";
import { checkMasks, type MaskOptions } from "./mask.ts";
import {
  expectPositions,
  isPositional,
  MOST_SEQUENCES,
  type PlacementOptions,
  placeQueries,
  refuseRagged,
} from "./positions.ts";
import { createRotary, type Rotary } from "./rotary.ts";
import type { Tensor } from "./tensor.ts";
import type { AttentionWeights } from "./weights.ts";

/**
 * One attention layer: its weights packed in linear memory and the rules it follows.
 * @example
 * import { attend, createAttention, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * console.log(attend(attention, new Float32Array(12).fill(1)).length); // 12: three tokens of four floats
 * attention.release();
 */
export interface Attention extends Releasable {
  readonly kernels: Kernels;
  /** With every default filled in. */
  readonly config: CheckedConfig;
  /** Bytes of linear memory that the weights hold. */
  readonly bytes: number;
  readonly released: boolean;
  /** @internal */
  readonly layer: Layer;
  /** @internal */
  readonly rotary: Rotary | undefined;
}

/** What one call of `attend` may say. */
export interface AttendOptions extends MaskOptions, PlacementOptions {
  /** Sequences in x, up to 2^20; default that of the cache, or 1. */
  readonly batch?: number;
  /** Keys and values of earlier tokens; this call's are appended. */
  readonly cache?: Cache;
  /** false: attend to what the cache holds and append nothing (cross-attention over keys cached once). Default true. */
  readonly append?: boolean;
  /** Cross-attention: rows [batch, kvLen, kdim] that keys are projected from; default x, if kdim is dModel. */
  readonly keys?: Float32Array;
  /** Rows [batch, kvLen, vdim] that values are projected from; default `keys`, if vdim is kdim. */
  readonly values?: Float32Array;
  /** RoPE positions of x, [qLen] or [batch, qLen], integers >= 0; default past, past + 1, …, with `keys` 0, 1, … */
  readonly positions?: ArrayLike<number>;
  /** Where to write y; default a fresh array. It may be x, but not overlap it in part. */
  readonly out?: Float32Array;
}

/**
 * Packs a layer's weights. Throws TypeError or RangeError naming the argument, the rule and the value (both shapes for a
 * matrix of the wrong one), and HeadwiseError OUT_OF_MEMORY; nothing is allocated then.
 * @example
 * import { createAttention, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const matrix = { data: new Float32Array(64 * 64), shape: [64, 64] };
 * using attention = createAttention(kernels, { dModel: 64, numHeads: 4 }, { wq: matrix, wk: matrix, wv: matrix, wo: matrix });
 * console.log(attention.config.headDim); // 16
 */
export function createAttention(kernels: Kernels, config: AttentionConfig, weights: AttentionWeights): Attention {
  expectKernels("createAttention", kernels);
  const checked = checkConfig("createAttention", config);
  const layer = storeLayer("createAttention", kernels, checked, weights);
  let released = false;
  const release = () => {
    if (released) return;
    released = true;
    if (!kernels.released) kernels.memory.free(layer.at);
  };
  return {
    kernels,
    config: checked,
    bytes: layer.bytes,
    layer,
    rotary: checked.rope && createRotary(checked.rope),
    get released() {
      return released;
    },
    release,
    [DISPOSE]: release,
  };
}

/**
 * The layer's output y [batch, qLen, dModel] for x [batch, qLen, dModel]. The same bits for one prefill, any chunks of
 * it, token by token, and any batch. Masked positions cannot change it, whatever they hold; a row with no key to attend
 * has zeros before the output projection. A call that throws leaves the cache as it was.
 * @example
 * import { attend, createAttention, createCache, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const cache = createCache(attention, { maxSeqLen: 16 });
 * attend(attention, Float32Array.of(1, 0, 0, 0, 0, 1, 0, 0), { cache }); // prefill: two tokens
 * attend(attention, Float32Array.of(0, 0, 1, 0), { cache }); // decode: one more
 * console.log(cache.length); // 3
 * kernels.release();
 */
export function attend(attention: Attention, x: Float32Array, options: AttendOptions = {}): Float32Array {
  return forward(attention, checkCall("attend", attention, x, options)).y;
}

/**
 * The same y as `attend`, bit for bit, and the weights that each query gave each key: maps [numHeads, qLen, kvLen], with
 * a leading batch dimension when `options.batch` is given or a cache has more than one sequence. Extra keys (biasK, addZeroAttn) are columns behind the others.
 * @example
 * import { attendWithMaps, createAttention, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const { maps } = attendWithMaps(attention, new Float32Array(12).fill(1));
 * console.log(maps.shape, maps.data[0]); // [ 2, 3, 3 ] 1: the first token sees only itself
 * kernels.release();
 */
export function attendWithMaps(
  attention: Attention,
  x: Float32Array,
  options: AttendOptions = {},
): { y: Float32Array; maps: Tensor } {
  const call = checkCall("attendWithMaps", attention, x, options);
  const { y, maps } = forward(attention, call, true);
  const { numHeads } = attention.config;
  const columns = maps.length / (call.batch * numHeads * call.qLen || 1);
  const shape = [numHeads, call.qLen, columns];
  const single = options.batch === undefined && call.batch === 1;
  return { y, maps: { data: maps, shape: single ? shape : [call.batch, ...shape] } };
}

const OPTIONS = [
  ...["batch", "cache", "append", "keys", "values", "kvLengths", "align", "keep", "drop", "bias", "positions", "out"],
];

/** Checks everything that a call says and works out its sizes; nothing has changed when it throws. */
function checkCall(where: string, attention: Attention, x: Float32Array, options: AttendOptions): AttendCall {
  expectMade(where, "attention", attention, "layer", "createAttention");
  expectKernels(where, attention.kernels, "attention.kernels");
  expectFields(where, "options", options, OPTIONS);
  const { config } = attention;
  const { cache } = options;
  if (cache !== undefined) checkCache(where, attention, cache);
  const { batch = cache ? cache.batch : 1 } = options;
  expectInt(where, "batch", batch, 1, MOST_SEQUENCES);
  if (cache && cache.batch !== batch)
    throw new RangeError(`${where}: batch expected that of the cache (${cache.batch}), got ${batch}`);
  const qLen = rowsOf(where, "x", x, batch, "dModel", config.dModel);

  const append = options.append === undefined ? true : expectFlag(where, "append", options.append);
  if (!cache && options.append === false)
    throw new RangeError(`${where}: append expected true without a cache, got false`);
  const cross = options.keys !== undefined || !append;
  if (options.values !== undefined && options.keys === undefined)
    throw new RangeError(`${where}: values expected none without keys, got ${describe(options.values)}`);
  if (!append && options.keys !== undefined)
    throw new RangeError(`${where}: keys expected none with append: false, got ${describe(options.keys)}`);
  const { dModel, kdim, vdim } = config;
  const { keys = x } = options;
  const { values = keys } = options;
  let newKeys = 0;
  if (append) {
    if (options.keys === undefined && kdim !== dModel)
      throw new RangeError(`${where}: keys expected because kdim (${kdim}) is not dModel (${dModel}), got undefined`);
    if (options.values === undefined && vdim !== kdim)
      throw new RangeError(`${where}: values expected because vdim (${vdim}) is not kdim (${kdim}), got undefined`);
    newKeys = rowsOf(where, "keys", keys, batch, "kdim", kdim);
    const newValues = rowsOf(where, "values", values, batch, "vdim", vdim);
    if (newValues !== newKeys)
      throw new RangeError(`${where}: values expected as many rows as keys (${newKeys}), got ${newValues}`);
  }
  const past = cache?.length ?? 0;
  const kvLen = past + newKeys;
  if (cache && kvLen > cache.maxSeqLen) {
    const added = cross ? `keys ${newKeys}` : `qLen ${newKeys}`;
    throw new HeadwiseError("CACHE_FULL", `${where}: past ${past} + ${added} exceeds maxSeqLen ${cache.maxSeqLen}`);
  }

  if (cache && !cross && options.kvLengths !== undefined) refuseRagged(where, options.kvLengths, batch, kvLen);
  const sizes = { batch, qLen, kvLen, past: cache && !cross ? past : undefined };
  const placements = placeQueries(where, options, sizes, isPositional(config));
  if (options.positions !== undefined && !config.rope)
    throw new RangeError(`${where}: positions expected none without config.rope, got ${describe(options.positions)}`);
  if (!append && config.rope && options.positions === undefined)
    throw new RangeError(
      `${where}: positions expected with rope and append: false, where nothing else places x, got undefined`,
    );
  const { numHeads } = config;
  const target = { batch, numHeads, qLen, kvLen };
  const out = options.out === undefined ? undefined : expectFloats(where, "out", options.out);
  if (out && out.length !== x.length)
    throw new RangeError(`${where}: out expected ${x.length} floats, got ${out.length}`);
  if (out) expectApart(where, out, x, options);
  return {
    where,
    batch,
    qLen,
    newKeys,
    past,
    x,
    keys,
    values,
    cache,
    placements,
    positions: expectPositions(where, options.positions, batch, qLen, cross ? 0 : past),
    keyPositions: cross ? expectPositions(where, undefined, batch, newKeys, past) : undefined,
    target,
    masks: checkMasks(where, options, target),
    out,
  };
}

/** Rows of y are written before later rows of x and of masks are read. */
function expectApart(where: string, out: Float32Array, x: Float32Array, { keep, drop, bias }: AttendOptions): void {
  for (const [name, data] of Object.entries({ x, keep: keep?.data, drop: drop?.data, bias: bias?.data })) {
    if (!ArrayBuffer.isView(data) || data.buffer !== out.buffer) continue;
    const overlaps =
      data.byteOffset < out.byteOffset + out.byteLength && out.byteOffset < data.byteOffset + data.byteLength;
    if (overlaps && !(name === "x" && data.byteOffset === out.byteOffset))
      throw new RangeError(
        `${where}: out expected ${name === "x" ? "x itself or " : ""}memory apart from ${name}, got one that overlaps it`,
      );
  }
}

function rowsOf(where: string, name: string, data: unknown, batch: number, dim: string, width: number): number {
  const { length } = expectFloats(where, name, data);
  const rows = length / (batch * width);
  if (Number.isInteger(rows)) return rows;
  const rule = batch === 1 ? `${dim} (${width})` : `batch (${batch}) x ${dim} (${width})`;
  throw new RangeError(`${where}: ${name} expected a multiple of ${rule} floats, got ${length}`);
}

function checkCache(where: string, attention: Attention, cache: Cache): void {
  expectMade(where, "cache", cache, "pages", "createCache");
  if (cache.layer !== attention)
    throw new RangeError(`${where}: cache expected one made for this attention, got another's`);
}
