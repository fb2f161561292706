// One shard, in a worker or on the calling thread, which attends with its heads and projects its columns of y, and the messages
// between it and its caller.

import { PANEL } from "../../../assembly/layout.ts";
import { scriptName } from "../../base/platform/workers.ts";
import { createFloats, orRefuse } from "../../base/tensor/tensor.ts";
import { HeadwiseError, type HeadwiseErrorCode } from "../../base/util/errors.ts";
import { chunksOf } from "../../base/util/rows.ts";
import { finish } from "../../base/util/steps.ts";
import { type Cache, createCache, packAttention } from "../../layers/attention/attention.ts";
import type { CheckedConfig } from "../../layers/attention/config.ts";
import { chunkRows } from "../../layers/attention/heads.ts";
import type { CheckedWeights } from "../../layers/attention/weights.ts";
import type { CheckedLinear } from "../../layers/linear/formats.ts";
import {
  modeOf,
  placeLinearScratch,
  placeLinears,
  prepareInput,
  project,
  stagedFloats,
  storeLinear,
} from "../../layers/linear/products.ts";
import { type AttendOptions, checkAttend } from "../../layers/pass/call.ts";
import { forward } from "../../layers/pass/forward.ts";
import type { CacheOptions } from "../../layers/state/kv-cache.ts";
import { leastLength } from "../../layers/state/table.ts";
import { type Kernels, ownKernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import type { Modules } from "../../wasm/modules.ts";
import { arraysIn, lengthOf, type Span } from "./partition.ts";

/** A shard's part of a cache. */
interface CachePart {
  readonly cache: Cache;
  /** The keys of the last call on it, which the next one commits if that has succeeded in all shards. */
  newKeys: number;
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
  const { where, config, weights } = start;
  const { floats, weights: ofWeights, caches: ofCaches } = start.modules;
  const others = ofWeights && ofCaches && { weights: ofWeights, caches: ofCaches };
  const kernels = await ownKernels({ module: floats, quantized: others && { simd: others, relaxed: others } });
  const attention = packAttention(where, kernels, config, weights);
  const exchange = createExchange(start.peers);
  const projectHeads = packOutputs(kernels, start);
  const caches = new Map<number, CachePart>();

  /** Brings a cache to the `past` tokens that the layer holds: with those of the last call if that has succeeded. */
  const confirm = (part: CachePart, past: number) => {
    if (past > part.cache.length) part.cache.commit(part.newKeys);
    part.newKeys = 0;
    part.cache.truncate(past);
  };

  const attendHeads = ({ where, x, past, cache: id, options }: AttendRequest): Float32Array => {
    const part = id === undefined ? undefined : caches.get(id);
    if (part) confirm(part, past);
    const call = checkAttend(where, attention, x, { ...options, cache: part?.cache });
    const { ys } = finish(forward(attention, attention.passes, [call], { where }));
    if (part) part.newKeys = call.newKeys;
    return ys[0] as Float32Array;
  };

  return {
    createCache: (id, options) => void caches.set(id, { cache: createCache(attention, options), newKeys: 0 }),
    forget(id) {
      caches.get(id)?.cache.release();
      caches.delete(id);
    },
    leastLength({ cache: id }) {
      const part = caches.get(id ?? -1);
      return part ? leastLength(part.cache.pages, part.cache.length + part.newKeys).least : 0;
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
      const parts = await exchange(request.where, heads);
      if (failure !== undefined) throw failure;
      return parts && projectHeads(request.where, parts);
    },
  };
}

/** What projects the heads' outputs of all shards to a shard's columns of y: side by side, a chunk of rows at a time. */
function packOutputs(
  kernels: Kernels,
  start: StartRequest,
): (where: string, parts: readonly Float32Array[]) => Float32Array {
  const { config, columns, outputs, weights } = start;
  const {
    formats: { o: format },
    fast,
  } = weights;
  const mode = modeOf(kernels, [format], fast);
  const width = Math.max(...outputs.map(({ end }) => end));
  const layout = new Layout();
  const [place] = placeLinears(layout, columns > 0 ? [{ n: columns, k: width, format }] : []);
  const base = kernels.memory.allocate(start.where, layout.bytes);
  const staging = kernels.memory.allocate(start.where, place ? 4 * stagedFloats(place) : 0);
  const wo = place && storeLinear(kernels, base, place, start.wo.w, weights.layout, start.wo.bias, staging);
  kernels.memory.free(staging);

  return (where, parts) => {
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
}

/**
 * Sends this shard's part to all others (undefined if it has none) and resolves to the parts of all, in order; to
 * undefined if one has none. Throws after that if a part could not be sent, whose receiver got none. Calls do not overlap, so
 * a port holds one message at most.
 */
type Exchange = (where: string, part: Float32Array | undefined) => Promise<Float32Array[] | undefined>;

function createExchange(peers: readonly (MessagePort | undefined)[]): Exchange {
  const next = (port: MessagePort | undefined) =>
    port &&
    new Promise<Float32Array | null>((resolve) => {
      port.onmessage = ({ data }: MessageEvent<Float32Array | null>) => resolve(data);
    });
  // Other shards may send before this one has begun.
  let coming = peers.map(next);
  return async (where, part) => {
    let failure: unknown;
    for (const port of peers)
      try {
        const copy = port && part && orRefuse(where, "a copy of the heads' outputs", () => part.slice());
        // Not undefined, which Node delivers as null.
        port?.postMessage(copy ?? null, copy ? [copy.buffer] : []);
      } catch (error) {
        failure = error;
        port?.postMessage(null);
      }
    const parts = await Promise.all(coming.map((message) => message ?? part ?? null));
    coming = peers.map(next);
    if (failure !== undefined) throw failure;
    return parts.every((one) => one !== null) ? parts : undefined;
  };
}

// What the calling thread and a shard say to each other.

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

/** An error as data, for a message. */
interface Failure {
  readonly name: string;
  readonly message: string;
  readonly code: HeadwiseErrorCode | undefined;
}

export function failureOf(error: unknown): Failure {
  const { name, message } = error instanceof Error ? error : { name: "Error", message: String(error) };
  return { name, message, code: error instanceof HeadwiseError ? error.code : undefined };
}

/** The error again, of the function that was called: a shard runs others, which its caller does not know. */
export function namedError(
  where: string,
  { name, message, code }: Failure,
  options?: { readonly cause?: unknown },
): Error {
  const text = `${where}: ${message.replace(/^\w+: /, "")}`;
  if (code) return new HeadwiseError(code, text, options);
  const Kind = name === "TypeError" ? TypeError : name === "RangeError" ? RangeError : Error;
  return new Kind(text, options);
}
