// What the calling thread and a shard say to each other.

import type { CheckedWeights } from "../attention/check-weights.ts";
import type { CheckedConfig } from "../attention/config.ts";
import type { CacheOptions } from "../cache/kv-cache.ts";
import type { AttendOptions } from "../forward/call.ts";
import type { CheckedLinear } from "../linear/options.ts";
import { scriptName } from "../platform/workers.ts";
import type { Modules } from "../wasm/instantiate.ts";
import type { Failure } from "./failure.ts";
import { arraysIn, type Span } from "./partition.ts";

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
