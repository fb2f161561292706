// The work of one shard, in a worker or on the calling thread: it attends with its heads and projects its columns of y.

import { PANEL } from "../../assembly/layout.ts";
import { packAttention } from "../attention/attention.ts";
import { leastLength } from "../cache/aging.ts";
import { type Cache, createCache } from "../cache/cache.ts";
import type { CacheOptions } from "../cache/kv-cache.ts";
import { checkAttend } from "../forward/call.ts";
import { forward } from "../forward/forward.ts";
import { chunkRows } from "../forward/layer-scratch.ts";
import { modeOf, placeLinearScratch, placeLinears, prepareInput, project, storeLinear } from "../linear/linear.ts";
import { stagedFloats } from "../linear/pack.ts";
import { createFloats, orRefuse } from "../tensor/tensor.ts";
import { chunksOf } from "../util/rows.ts";
import { finish } from "../util/steps.ts";
import { ownKernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { failureOf } from "./failure.ts";
import type { AttendRequest, ShardReply, ShardRequest, StartRequest } from "./messages.ts";
import { lengthOf, type Span } from "./partition.ts";

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
  const mode = modeOf(kernels, [format], fast);
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
    if (past > part.cache.length) part.cache.advance(part.newKeys);
    part.newKeys = 0;
    part.cache.truncate(past);
  };

  const attendHeads = ({ where, x, past, cache: id, options }: AttendRequest): Float32Array => {
    const part = id === undefined ? undefined : caches.get(id);
    if (part) confirm(part, past);
    const call = checkAttend(where, attention, x, { ...options, cache: part?.cache });
    const { ys } = finish(forward(attention, [call], { where }));
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
