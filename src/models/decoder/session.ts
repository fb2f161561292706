import { expectInt, readFields } from "../../base/util/arguments.ts";
import { HeadwiseError, underName } from "../../base/util/errors.ts";
import { expectMade, type Handle, makeHandle, type Releasable } from "../../base/util/lifetime.ts";
import { type Cache, createCache, planCache } from "../../layers/pass/cache.ts";
import type { CallTokens } from "../../layers/pass/call.ts";
import type { LayerCall } from "../../layers/pass/steps.ts";
import { type CacheOptions, expectFreeFor, expectTruncatable } from "../../layers/state/kv-cache.ts";
import { LARGEST_MEMORY, type Layout } from "../../wasm/memory.ts";
import { expectModel, type LoadedModel, type Model, reserve } from "../blocks/model.ts";
import type { PackedBlock } from "../blocks/places.ts";
import type { LayerRun } from "../blocks/scratch.ts";
import { expectPositions, mostTokens } from "../spec/read-spec.ts";

/**
 * A sequence of tokens that a model has read: the caches of all layers. The memory of `maxSeqLen` tokens is allocated when it
 * is made, and freed by `release()`.
 */
export interface Session extends Releasable, Handle {
  /** The model that reads the tokens: a `Model` of `createSession`, a `Seq2Seq` of `readSource`. */
  readonly model: LoadedModel<"Model" | "Seq2Seq">;
  /** Tokens that fit. */
  readonly maxSeqLen: number;
  /** Tokens that were read. */
  readonly length: number;
  /** Bytes of linear memory. */
  readonly bytes: number;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /**
   * Forgets the tokens from `length` on. Reading them again gives the same bits.
   * @throws What `truncate` of a cache throws; then no layer's cache has changed.
   */
  truncate(length: number): void;
  /** @internal One for each layer. */
  readonly caches: readonly Cache[];
  /** @internal The tokens that were read. */
  readonly tokens: number[];
  /** @internal How often tokens were added or forgotten: its length may be as before, and its tokens others. */
  readonly changes: { count: number };
  /** @internal What the decoder of a model with two halves attends to. */
  readonly source: Source | undefined;
}

/** The outputs of an encoder as keys and values of each layer, and how a decoder attends to them. */
export interface Source {
  /** One for each layer. */
  readonly caches: readonly Cache[];
  /** Plans a layer of the decoder. */
  plan(model: LoadedModel, block: PackedBlock, layout: Layout, rows: number, formats: number): LayerRun;
  /** The queries of a call on the keys of a layer. */
  callOf(layer: number, tokens: CallTokens): LayerCall;
}

/** Options of `createSession`: those of `createCache`, for all layers. */
export interface SessionOptions extends Pick<CacheOptions, "format" | "truncatable"> {
  /**
   * Tokens that fit; memory is taken for whole pages of 128. At most the positions of the model, where it has a table of them.
   * Elsewhere more than config.json says are taken, but what a model gives beyond the lengths that it was trained on is seldom of
   * use. Default what `loadModel` was given as `maxSeqLen`, else what config.json says, at most 4096.
   */
  readonly maxSeqLen?: number | undefined;
}

export const SESSION_OPTIONS = ["maxSeqLen", "format", "truncatable"] as const;

/**
 * Allocates a session: a cache for each layer.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED` or `NO_QUANTIZED`. Nothing is
 * allocated then.
 */
export function createSession(model: Model, options: SessionOptions = {}): Session {
  const where = "createSession";
  expectModel(where, model);
  return makeSession(where, model, readFields(where, "options", options, SESSION_OPTIONS));
}

/** Checks the options of a session. Returns its length, and the bytes of its caches. */
export function checkSession(
  where: string,
  model: LoadedModel,
  { maxSeqLen: given, ...rest }: SessionOptions,
): { readonly maxSeqLen: number; readonly bytes: number } {
  const maxSeqLen = expectInt(where, "maxSeqLen", given ?? model.spec.sessionLength);
  expectPositions(where, mostTokens(model.spec), maxSeqLen);
  const { memory } = model.kernels;
  const bytes = model.weights.blocks.reduce(
    (sum, { attention: { pageShape, config } }) => sum + planCache(where, pageShape, config, maxSeqLen, rest).bytes,
    0,
  );
  const room = LARGEST_MEMORY - memory.used;
  if (bytes > room)
    throw new HeadwiseError(
      "OUT_OF_MEMORY",
      `${where}: maxSeqLen expected a session of at most ${room} bytes, as many as memory may grow, got ${maxSeqLen} with ${bytes}`,
    );
  return { maxSeqLen, bytes };
}

/** Makes a session under the name of the public function `where`. `source` is what a decoder attends to besides. */
export function makeSession(where: string, model: Session["model"], options: SessionOptions, source?: Source): Session {
  const { maxSeqLen, bytes } = checkSession(where, model, options);
  const caches: Cache[] = [];
  reserve(where, model.kernels.memory, bytes);
  try {
    for (const { attention } of model.weights.blocks)
      caches.push(underName(where, () => createCache(attention, { ...options, maxSeqLen })));
  } catch (error) {
    for (const cache of caches) cache.release();
    throw error;
  }
  const release = () => {
    for (const cache of [...caches, ...(source?.caches ?? [])]) cache.release();
  };
  const tokens: number[] = [];
  const changes = { count: 0 };
  const parts = {
    ...{ model, maxSeqLen, caches, tokens, changes, source },
    bytes: bytes + (source?.caches ?? []).reduce((sum, cache) => sum + cache.bytes, 0),
    get length() {
      return caches[0]?.length ?? 0;
    },
    truncate(length: number) {
      for (const { pages, length: held } of caches) expectTruncatable(pages, held, length);
      for (const cache of caches) cache.truncate(length);
      if (length < tokens.length) changes.count++;
      tokens.length = length;
    },
  };
  const hidden = ["model", "caches", "tokens", "changes", "source"] as const;
  return makeHandle<Session>("Session", "createSession", parts, hidden, release);
}

/** Throws unless `session` came from createSession and neither it nor its model was released. */
export function expectSession(where: string, session: Session): void {
  expectMade(where, "session", session, "createSession");
  expectModel(where, session.model, session.source ? "loadSeq2Seq" : "loadModel");
}

/** Throws IN_USE if an unfinished call is using the session. */
export function expectUnused(where: string, { caches }: Session): void {
  for (const cache of caches) expectFreeFor(where, cache, true);
}
