// The work of one shard, in a worker or on the calling thread: it attends with its heads and projects its columns of y.

import { PANEL } from "../../assembly/layout.ts";
import { packAttention } from "../attention/attention.ts";
import type { CheckedWeights } from "../attention/check-weights.ts";
import type { CheckedConfig } from "../attention/config.ts";
import { leastLength } from "../cache/aging.ts";
import { type Cache, createCache } from "../cache/cache.ts";
import type { CacheOptions } from "../cache/kv-cache.ts";
import { type AttendCall, type AttendOptions, checkAttend, commit } from "../forward/call.ts";
import { forward } from "../forward/forward.ts";
import { chunkRows } from "../forward/layer-scratch.ts";
import { modesOf, placeLinearScratch, placeLinears, prepareInput, project, storeLinear } from "../linear/linear.ts";
import type { CheckedLinear } from "../linear/options.ts";
import { stagedFloats } from "../linear/pack.ts";
import { scriptName } from "../platform/workers.ts";
import { createFloats } from "../tensor/tensor.ts";
import { chunksOf } from "../util/rows.ts";
import { finish } from "../util/steps.ts";
import type { Modules } from "../wasm/instantiate.ts";
import { ownKernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { type Failure, failureOf } from "./failure.ts";
import { arraysIn, lengthOf, type Span } from "./partition.ts";

/** The script of the workers. One of another version may have other requests and replies. */
export const SCRIPT: string = scriptName("headwise/shards-worker");

/** A request to a worker, or its reply, which has the `id` of the request. */
export interface ShardMessage<Body> {
  readonly script: string;
  readonly id: number;
  readonly body: Body;
}

/** The first request to a shard, which defines it. */
export interface StartRequest {
  readonly kind: "start";
  readonly where: string;
  readonly modules: Modules;
  /** The configuration of its heads; their outputs are those of its layer. */
  readonly config: CheckedConfig;
  readonly weights: CheckedWeights;
  /** Its columns of y. */
  readonly wo: CheckedLinear;
  readonly columns: number;
  /** The range of each shard's outputs in a row of all heads' outputs. */
  readonly outputs: readonly Span[];
  /** Ports to the other shards, in their order; undefined at the shard's own index. */
  readonly peers: readonly (MessagePort | undefined)[];
}

/** A call. Its cache holds the first `past` tokens of those that the shard's cache holds. */
export interface AttendRequest {
  readonly kind: "attend";
  readonly where: string;
  readonly x: Float32Array;
  readonly past: number;
  readonly cache: number | undefined;
  readonly options: AttendOptions;
}

/** Requests to a shard. They are sent one at a time, except "forget", which has no reply. */
export type ShardRequest =
  | StartRequest
  | AttendRequest
  | { readonly kind: "cache"; readonly cache: number; readonly options: CacheOptions }
  | { readonly kind: "forget"; readonly cache: number };

/** The reply: its columns of y for a call, or an error; neither if another shard failed. */
export interface ShardReply {
  readonly y?: Float32Array;
  /** The x of the call, reused for the next copy: new memory costs more than the copy. */
  readonly x?: Float32Array;
  /** The smallest length above 0 that the cache can be truncated to after the call. */
  readonly least?: number;
  readonly error?: Failure;
}

/**
 * What a request transfers: ports, and the arrays that were copied for it. Its configuration is cloned, because the layer
 * and the other requests hold the same arrays.
 */
export function transfersOf(request: ShardRequest): Transferable[] {
  if (request.kind === "start")
    return [...buffersIn([request.weights, request.wo]), ...request.peers.filter((port) => port !== undefined)];
  return request.kind === "attend" ? buffersIn([request.x, request.options]) : [];
}

/** The buffers of all typed arrays in a value, which must be copies: they are transferred. */
export function buffersIn(value: unknown): ArrayBuffer[] {
  return arraysIn(value).map(({ buffer }) => buffer as ArrayBuffer);
}

/** A shard's part of a cache. */
interface CachePart {
  readonly cache: Cache;
  /** The last call on it, until the next one shows whether it has succeeded in all shards. */
  last: AttendCall | undefined;
}

interface Shard {
  createCache(id: number, options: CacheOptions): void;
  forget(id: number): void;
  attend(request: AttendRequest): Promise<Float32Array | undefined>;
  /** The smallest length above 0 that the cache of a call can be truncated to once the call is committed. */
  leastLength(request: AttendRequest): number;
}

/** Creates a shard without weights, as a function from requests to replies. */
export function createShard(): (request: ShardRequest) => Promise<ShardReply | undefined> {
  let shard: Shard | undefined;
  return async (request) => {
    try {
      if (request.kind === "start") shard = await startShard(request);
      else if (request.kind === "cache") shard?.createCache(request.cache, request.options);
      else if (request.kind === "attend")
        return { y: await shard?.attend(request), x: request.x, least: shard?.leastLength(request) };
      else {
        shard?.forget(request.cache);
        return undefined;
      }
      return {};
    } catch (error) {
      return { error: failureOf(error) };
    }
  };
}

async function startShard(start: StartRequest): Promise<Shard> {
  const { where, config, weights, columns, outputs } = start;
  const { floats, weights: ofWeights, caches: ofCaches } = start.modules;
  const others = ofWeights && ofCaches && { weights: ofWeights, caches: ofCaches };
  const kernels = await ownKernels({ module: floats, quantized: others && { simd: others, relaxed: others } });
  const attention = packAttention(where, kernels, config, weights);
  const exchange = createExchange(start.peers);
  const caches = new Map<number, CachePart>();

  const {
    formats: { o: format },
    fast,
  } = weights;
  const modeOf = modesOf(kernels, [format], fast);
  const width = Math.max(...outputs.map(({ end }) => end));
  const layout = new Layout();
  const [place] = placeLinears(layout, columns > 0 ? [{ n: columns, k: width, format }] : []);
  const base = kernels.memory.allocate(where, layout.bytes);
  const staging = kernels.memory.allocate(where, place ? 4 * stagedFloats(place) : 0);
  const wo = place && storeLinear(kernels, base, place, start.wo.w, weights.layout, start.wo.bias, staging);
  kernels.memory.free(staging);

  /** Copies the heads' outputs of all shards side by side, a chunk at a time, and projects them. */
  const projectHeads = (where: string, parts: readonly Float32Array[]): Float32Array => {
    const rows = (parts[0]?.length ?? 0) / lengthOf(outputs[0] as Span);
    const y = createFloats(where, "y", rows * columns);
    if (!wo) return y;
    const { memory } = kernels;
    const stride = wo.panels * PANEL;
    const chunk = new Layout();
    const most = chunkRows(config, rows);
    const at = {
      heads: chunk.floats(most * width),
      y: chunk.floats(most * stride),
      linear: placeLinearScratch(chunk, [wo], most),
    };
    const scratch = memory.scratch(where, chunk.bytes);
    const heads = { at: pointer.f32(scratch + at.heads), stride: width };
    const out = { at: pointer.f32(scratch + at.y), stride };
    for (const [begin, end] of chunksOf(rows, most)) {
      const into = memory.f32(heads.at, (end - begin) * width);
      for (const [i, part] of parts.entries()) {
        const span = outputs[i] as Span;
        const floats = lengthOf(span);
        for (let r = begin; r < end; r++)
          into.set(part.subarray(r * floats, (r + 1) * floats), (r - begin) * width + span.begin);
      }
      // A scale is shared by a whole row of heads, so every shard computes the same one.
      const mode = modeOf(end - begin);
      const input = prepareInput(kernels, [wo], heads, end - begin, mode, at.linear, scratch);
      finish(project(kernels, wo, out, input, end - begin, Infinity));
      const from = memory.f32(out.at, (end - begin) * stride);
      for (let r = begin; r < end; r++) {
        const row = (r - begin) * stride;
        y.set(from.subarray(row, row + columns), r * columns);
      }
    }
    return y;
  };

  /** Brings a cache to the `past` tokens that the layer holds: with those of the last call if that has succeeded. */
  const confirm = (part: CachePart, past: number) => {
    if (part.last && past > part.cache.length) commit([part.last]);
    part.last = undefined;
    part.cache.truncate(past);
  };

  const attendHeads = ({ where, x, past, cache: id, options }: AttendRequest): Float32Array => {
    const part = id === undefined ? undefined : caches.get(id);
    if (part) confirm(part, past);
    const call = checkAttend(where, attention, x, { ...options, cache: part?.cache });
    const { ys } = finish(forward(attention, [call], { where }));
    if (part) part.last = call;
    return ys[0] as Float32Array;
  };

  return {
    createCache: (id, options) => void caches.set(id, { cache: createCache(attention, options), last: undefined }),
    forget(id) {
      caches.get(id)?.cache.release();
      caches.delete(id);
    },
    leastLength({ cache: id }) {
      const { cache, last } = caches.get(id ?? -1) ?? {};
      return cache && last ? leastLength(cache.pages, cache.length + last.newKeys).least : 0;
    },
    async attend(request) {
      let heads: Float32Array | undefined;
      let failure: unknown;
      try {
        heads = attendHeads(request);
      } catch (error) {
        failure = error;
      }
      // A shard that failed takes part in the exchange: otherwise the others would wait for it, and messages would
      // remain for the next call.
      const parts = await exchange(heads);
      if (failure !== undefined) throw failure;
      return parts && projectHeads(request.where, parts);
    },
  };
}

/**
 * Sends this shard's part to all others (undefined if it has none) and resolves to the parts of all, in order; to
 * undefined if one has none. Calls do not overlap, so a port holds one message at most.
 */
type Exchange = (part: Float32Array | undefined) => Promise<Float32Array[] | undefined>;

function createExchange(peers: readonly (MessagePort | undefined)[]): Exchange {
  const next = (port: MessagePort | undefined) =>
    port &&
    new Promise<Float32Array | undefined>((resolve) => {
      port.onmessage = ({ data }: MessageEvent<Float32Array | undefined>) => resolve(data);
    });
  // Other shards may send before this one has begun.
  let coming = peers.map(next);
  return async (part) => {
    for (const port of peers) {
      const copy = port && part?.slice();
      port?.postMessage(copy, copy ? [copy.buffer] : []);
    }
    const parts = await Promise.all(coming.map((message) => message ?? part));
    coming = peers.map(next);
    return parts.every((one) => one !== undefined) ? parts : undefined;
  };
}
