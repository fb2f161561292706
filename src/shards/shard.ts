// The work of one shard, wherever it runs: it attends with its heads, and projects its columns of y.

import { PANEL } from "../../assembly/layout.ts";
import { packAttention } from "../attention/attention.ts";
import type { CheckedLinear, CheckedWeights } from "../attention/check-weights.ts";
import type { CheckedConfig } from "../attention/config.ts";
import { type Cache, createCache } from "../cache/cache.ts";
import { type AttendOptions, checkAttend, commit } from "../forward/call.ts";
import { forward } from "../forward/forward.ts";
import { chunkRows } from "../forward/layer-scratch.ts";
import { isInteger } from "../linear/formats.ts";
import { modesOf, placeLinearScratch, placeLinears, prepareInput, project, storeLinear } from "../linear/linear.ts";
import { stagedFloats } from "../linear/pack.ts";
import { createFloats } from "../tensor/tensor.ts";
import { HeadwiseError, type HeadwiseErrorCode } from "../util/errors.ts";
import { chunksOf } from "../util/rows.ts";
import { finish } from "../util/steps.ts";
import type { Modules } from "../wasm/instantiate.ts";
import { ownKernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { lengthOf, type Span } from "./partition.ts";

/** The first request to a shard: what it is. */
export interface StartRequest {
  readonly kind: "start";
  readonly where: string;
  readonly modules: Modules;
  /** Those of its heads; heads' outputs are what its layer gives. */
  readonly config: CheckedConfig;
  readonly weights: CheckedWeights;
  /** Its columns of y. */
  readonly wo: CheckedLinear;
  readonly columns: number;
  /** Where the outputs of each shard's heads lie in a row of all heads' outputs. */
  readonly outputs: readonly Span[];
  /** To the other shards, in their order; undefined at its own place. */
  readonly peers: readonly (MessagePort | undefined)[];
}

/** One call. Its cache holds the first `past` tokens of what it holds here. */
export interface AttendRequest {
  readonly kind: "attend";
  readonly where: string;
  readonly x: Float32Array;
  readonly past: number;
  readonly cache: number | undefined;
  readonly options: AttendOptions;
}

/** What a shard is asked for, one at a time; only a "forget" may come between and has no reply. */
export type ShardRequest =
  | StartRequest
  | AttendRequest
  | { readonly kind: "cache"; readonly cache: number; readonly maxSeqLen: number; readonly batch: number }
  | { readonly kind: "forget"; readonly cache: number };

/** The answer: its columns of y for a call, or why not. Neither where another shard failed. */
export interface ShardReply {
  readonly y?: Float32Array;
  /** That of the call, for the next one to be copied into: new memory costs more than the copy. */
  readonly x?: Float32Array;
  readonly error?: { readonly message: string; readonly code: HeadwiseErrorCode | undefined };
}

interface Shard {
  createCache(id: number, maxSeqLen: number, batch: number): void;
  forget(id: number): void;
  attend(request: AttendRequest): Promise<Float32Array | undefined>;
}

/** A shard that has nothing yet: gives the replies to requests. */
export function createShard(): (request: ShardRequest) => Promise<ShardReply | undefined> {
  let shard: Shard | undefined;
  return async (request) => {
    try {
      if (request.kind === "start") shard = await startShard(request);
      else if (request.kind === "cache") shard?.createCache(request.cache, request.maxSeqLen, request.batch);
      else if (request.kind === "attend") return { y: await shard?.attend(request), x: request.x };
      else {
        shard?.forget(request.cache);
        return undefined;
      }
      return {};
    } catch (error) {
      const code = error instanceof HeadwiseError ? error.code : undefined;
      return { error: { code, message: error instanceof Error ? error.message : String(error) } };
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
  const caches = new Map<number, Cache>();

  const {
    formats: { o: format },
    fast,
  } = weights;
  const modeOf = isInteger(format) ? modesOf(kernels, fast) : () => 0;
  const width = Math.max(...outputs.map(({ end }) => end));
  const layout = new Layout();
  const [place] = placeLinears(layout, columns > 0 ? [{ n: columns, k: width, format }] : []);
  const base = kernels.memory.allocate(where, layout.bytes);
  const staging = kernels.memory.allocate(where, place ? 4 * stagedFloats(place) : 0);
  const wo = place && storeLinear(kernels, base, place, start.wo.w, weights.layout, start.wo.bias, staging);
  kernels.memory.free(staging);

  /** Puts the heads' outputs of all shards side by side, a chunk at a time, and projects them. */
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
      // A scale belongs to a whole row of heads, so every shard finds the same one.
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

  const attendHeads = ({ where, x, past, cache: id, options }: AttendRequest): Float32Array => {
    const cache = id === undefined ? undefined : caches.get(id);
    // What a call appended here stays when it failed elsewhere, until now.
    cache?.truncate(past);
    const call = checkAttend(where, attention, x, { ...options, cache });
    const { ys } = finish(forward(attention, [call], { where }));
    commit([call]);
    return ys[0] as Float32Array;
  };

  return {
    createCache: (id, maxSeqLen, batch) => void caches.set(id, createCache(attention, { maxSeqLen, batch })),
    forget(id) {
      caches.get(id)?.release();
      caches.delete(id);
    },
    async attend(request) {
      let heads: Float32Array | undefined;
      let failure: unknown;
      try {
        heads = attendHeads(request);
      } catch (error) {
        failure = error;
      }
      // A shard that failed takes part all the same: nobody waits for it, and nothing is left for the next call.
      const parts = await exchange(heads);
      if (failure !== undefined) throw failure;
      return parts && projectHeads(request.where, parts);
    },
  };
}

/**
 * Gives all other shards this one's part (undefined: it has none) and resolves to the parts of all, in their order, or to
 * undefined where one has none. Calls come one after the other, so a port holds one message at most.
 */
type Exchange = (part: Float32Array | undefined) => Promise<Float32Array[] | undefined>;

function createExchange(peers: readonly (MessagePort | undefined)[]): Exchange {
  const next = (port: MessagePort | undefined) =>
    port &&
    new Promise<Float32Array | undefined>((resolve) => {
      port.onmessage = ({ data }: MessageEvent<Float32Array | undefined>) => resolve(data);
    });
  // Others may be done before this shard has begun.
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
