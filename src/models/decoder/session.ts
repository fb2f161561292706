// Sessions: what the layers of a model keep of a sequence of tokens, and copies of it as pages of bytes.

import { expectInt, readList, readOptions } from "../../base/util/arguments.ts";
import { describe, HeadwiseError, underName } from "../../base/util/errors.ts";
import { expectAlive, expectMade, type Handle, makeHandle, type Releasable } from "../../base/util/lifetime.ts";
import { expectPages } from "../../layers/attention/kv-state.ts";
import type { BlockLayer, CallTokens, LayerCall, LayerState } from "../../layers/mixer/mixer.ts";
import { nearestOf, openAll, statesOf } from "../../layers/recurrent/parallel.ts";
import { exportStates, fillState, RecurrentState } from "../../layers/recurrent/state.ts";
import { type CachePage, exportPages, fillCache } from "../../layers/state/export.ts";
import { type CacheOptions, expectNoHold } from "../../layers/state/kv-cache.ts";
import { expectKernels } from "../../wasm/kernels.ts";
import { LARGEST_MEMORY, type Layout } from "../../wasm/memory.ts";
import type { LayerRun } from "../blocks/block.ts";
import {
  expectModel,
  type LoadedModel,
  type Model,
  type ModelHalf,
  type PackedBlock,
  reserve,
} from "../blocks/model.ts";
import { type BlockSpec, expectPositions, mostTokens, stateLayer } from "../spec/spec.ts";

/** Token ids: integers from 0 to vocabSize - 1. */
export type TokenIds = ArrayLike<number>;

/** Reads token ids: a copy, checked. Of a list of more than `most` ids, the result has the length only. */
export function readIds(where: string, name: string, ids: unknown, vocabSize: number, most: number): ArrayLike<number> {
  return readList(where, name, ids, most, (id, i) => {
    if (typeof id === "number" && Number.isInteger(id) && id >= 0 && id < vocabSize) return id;
    const way = typeof id === "bigint" ? `: convert them with Array.from(${name}, Number)` : "";
    const text = `${where}: ${name}[${i}] expected an integer from 0 to ${vocabSize - 1}, got ${describe(id)}${way}`;
    throw typeof id === "number" ? new RangeError(text) : new TypeError(text);
  });
}

/**
 * A sequence of tokens that a model has read, as what its layers keep of them: caches of keys and values, or the states of recurrent
 * layers. The memory of `maxSeqLen` tokens is allocated when it is made, and freed by `release()`; pages that forks share are freed
 * with the last of them.
 */
export interface Session extends Releasable, Handle {
  /** The model that reads the tokens: a `Model` of `createSession`, a `Seq2Seq` of `readSource`. */
  readonly model: LoadedModel<"Model" | "Seq2Seq">;
  /** Tokens that fit. */
  readonly maxSeqLen: number;
  /** Tokens that were read. */
  readonly length: number;
  /** Bytes of linear memory that were allocated for it. */
  readonly bytes: number;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /**
   * Forgets the tokens from `length` on. Reading them again gives the same bits. With recurrent layers, `length` is one whose states
   * were kept.
   * @throws What `truncate` of a cache throws; then no layer's cache has changed. A fork that is cut to tokens that it shares
   * takes memory to read them again: HeadwiseError `OUT_OF_MEMORY`.
   */
  truncate(length: number): void;
  /**
   * A second session with the same tokens, at the cost of none of them: both share the pages of 128 tokens that are full, and a
   * page that is not is copied when one of them adds to it. Each goes on alone, with the bits of a session that has read all by
   * itself, and is released alone. In a loop over `generate` with `draft`, a fork has all tokens that the last pass chose, those too
   * that the loop has not been given yet.
   *
   * The memory that the fork may come to need is allocated now, so that no call of either lacks any: the pages from that of the
   * next token to `maxSeqLen`, as its `bytes` says. Where tokens are dropped behind a window it is that of a whole session, which
   * is small, and where they age also the pages of all stages but the last.
   * @throws HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or `IN_USE` while an asynchronous call or a step of a generation runs on the
   * session. Nothing is allocated then.
   * @example
   * import { loadKernels } from "headwise";
   * import { createSession, forward, loadModel, models } from "headwise/models";
   * const kernels = await loadKernels({ models });
   * const session = createSession(await loadModel(kernels, "model"), { maxSeqLen: 96 });
   * forward(session, [81, 90, 23, 0]); // what all answers begin with, read once
   * const [one, other] = [session.fork(), session.fork()];
   * forward(one, [81]);
   * forward(other, [90, 23]);
   * console.log(session.length, one.length, other.length); // 4 5 6
   * kernels.release();
   */
  fork(): Session;
  /** @internal What layers keep, those that keep something of their own. */
  readonly states: readonly LayerState[];
  /** @internal What a layer keeps, or the one whose keys it attends. */
  stateOf(layer: number): LayerState;
  /** @internal The formats of the pages of all layers, by which plans of calls are known. */
  readonly formats: string;
  /** @internal How many unfinished calls rely on the session as it is. */
  readonly holds: { count: number };
  /** @internal The tokens that were read. */
  readonly tokens: number[];
  /** @internal How often tokens were added or forgotten: its length may be as before, and its tokens others. */
  readonly changes: { count: number };
  /** @internal What the decoder of a model with two halves attends to. */
  readonly source: Source | undefined;
}

/** The outputs of an encoder as keys and values of each layer, and how a decoder attends to them. */
export interface Source {
  /** Bytes of linear memory. */
  readonly bytes: number;
  /** Sessions that have it: the last one that is released frees it. */
  readonly holds: { count: number };
  release(): void;
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
  return makeSession(where, model, readOptions(where, options, SESSION_OPTIONS));
}

/** The layers that keep something of their own. */
const keepingLayers = ({ weights, spec }: ModelHalf): readonly BlockLayer[] =>
  weights.blocks.flatMap(({ attention }, layer) =>
    stateLayer(spec.blocks[layer] as BlockSpec, layer) === layer ? attention : [],
  );

/** Checks the options of a session. Returns its length, and the bytes of its caches. */
export function checkSession(
  where: string,
  model: LoadedModel,
  { maxSeqLen: given, ...rest }: SessionOptions,
): { readonly maxSeqLen: number; readonly bytes: number } {
  const maxSeqLen = expectInt(where, "maxSeqLen", given ?? model.spec.sessionLength);
  expectPositions(where, mostTokens(model.spec), maxSeqLen);
  const { memory } = model.kernels;
  const bytes = keepingLayers(model).reduce(
    (sum, layer) => sum + statesOf(layer).bytes(where, layer, maxSeqLen, rest),
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
  const states = openStates(where, model, bytes, keepingLayers(model), (layer) =>
    statesOf(layer).create(where, layer, maxSeqLen, options),
  );
  return sessionOf(model, maxSeqLen, states, [], bytes + (source?.bytes ?? 0), source);
}

/** A state for each of `of`, which take so many bytes together; none if one cannot be made. */
function openStates<T>(
  where: string,
  { kernels }: LoadedModel,
  bytes: number,
  of: readonly T[],
  open: (each: T) => LayerState,
): LayerState[] {
  reserve(where, kernels.memory, bytes);
  return openAll(of, (each) => underName(where, () => open(each)));
}

/** A session with these states, which have read these tokens. */
function sessionOf(
  model: Session["model"],
  maxSeqLen: number,
  states: readonly LayerState[],
  tokens: number[],
  bytes: number,
  source: Source | undefined,
): Session {
  let released = false;
  if (source) source.holds.count++;
  const release = () => {
    released = true;
    for (const state of states) state.release();
    if (source && --source.holds.count === 0) source.release();
  };
  const changes = { count: 0 };
  const holds = { count: 0 };
  const owners = model.spec.blocks.map(stateLayer);
  const keeping = owners.filter((owner, layer) => owner === layer);
  const stateByLayer = owners.map((owner) => states[keeping.indexOf(owner)] as LayerState);
  // No function may refer to the handle, which could not be collected then.
  const parts = {
    ...{ model, maxSeqLen, bytes, states, tokens, changes, holds, source },
    formats: states.map(({ formats }) => formats).join(),
    stateOf: (layer: number) => stateByLayer[layer] as LayerState,
    get length() {
      return tokens.length;
    },
    truncate(length: number) {
      const where = "truncate";
      expectAlive(where, "cache", { released });
      expectKernels(where, model.kernels, "cache.kernels");
      expectNoHold(where, holds.count);
      for (const state of states) state.expectTruncatable(length);
      try {
        for (const state of states) state.reserve(length);
      } catch (error) {
        for (const state of states) state.reserve(tokens.length);
        throw error;
      }
      for (const state of states) state.truncate(length);
      if (length < tokens.length) changes.count++;
      tokens.length = length;
    },
    fork() {
      const where = "fork";
      expectAlive(where, "session", { released });
      expectModel(where, model, source ? "loadSeq2Seq" : "loadModel");
      expectNoHold(where, holds.count);
      // What a call that failed has left would count.
      for (const state of states) state.begin();
      const own = states.reduce((sum, state) => sum + state.forkBytes, 0);
      const forks = openStates(where, model, own, states, (state) => state.fork(where));
      return sessionOf(model, maxSeqLen, forks, [...tokens], own, source);
    },
  };
  const hidden = ["model", "states", "formats", "tokens", "changes", "holds", "source"] as const;
  return makeHandle<Session>("Session", "createSession", parts, hidden, release);
}

/**
 * The longest length up to `length` that a session can be cut to once it holds `held` tokens: with recurrent layers, one whose states
 * were kept, and behind a window that drops tokens, 0 or one whose keys are there.
 */
export function nearestLength({ states }: Session, length: number, held: number): number {
  return nearestOf(states, length, held);
}

/** Throws unless `session` came from createSession and neither it nor its model was released. */
export function expectSession(where: string, session: Session): void {
  expectMade(where, "session", session, "createSession");
  expectModel(where, session.model, session.source ? "loadSeq2Seq" : "loadModel");
}

/** Throws IN_USE if an unfinished call is using the session. */
export function expectUnused(where: string, { holds }: Session): void {
  expectNoHold(where, holds.count);
}

// Calls on a session that others may use at the same time.

/**
 * Throws IN_USE if another call has changed a session: if it no longer has `length` tokens, or has gone through other than `changes`
 * changes, where that number is known.
 */
export function expectUnchanged(where: string, session: Session, length: number, changes?: number): void {
  const { count } = session.changes;
  if (session.length === length && (changes ?? count) === count) return;
  const got = session.length === length ? "others" : session.length;
  throw new HeadwiseError(
    "IN_USE",
    `${where}: session expected the ${length} tokens that it had, got ${got}: another call has changed it`,
  );
}

/** Throws unless a session is free, and has the `length` tokens that it is known to have. */
export function expectReady(where: string, session: Session, length: number, changes?: number): void {
  expectSession(where, session);
  expectUnused(where, session);
  expectUnchanged(where, session, length, changes);
}

/** Runs `work` while the session is in use. */
export async function holdSession<T>({ holds }: Session, work: () => Promise<T>): Promise<T> {
  holds.count++;
  try {
    return await work();
  } finally {
    holds.count--;
  }
}

/**
 * Truncates a session to `to` tokens at the end of a generation, which left it with `length` tokens and `changes` changes. If it has
 * others, its owner has released it or goes on with it, and it stays as it is.
 * @throws HeadwiseError `OUT_OF_MEMORY` if it was forked meanwhile, and shares what is cut. It is then unchanged.
 */
export function forgetTokens(where: string, session: Session, length: number, to: number, changes: number): void {
  const { model, holds } = session;
  if (session.released || model.released || model.kernels.released) return;
  if (session.length !== length || session.changes.count !== changes) return;
  if (holds.count === 0) underName(where, () => session.truncate(to));
}

// A session as pages of bytes, to store it and to go on with it later.

/** What has a list of pages of its own: the state of a layer, or of each of its mixers that lie side by side. */
function partsOf({ states }: Session): { readonly name: string; readonly state: LayerState }[] {
  return states.flatMap(({ parts }, layer) =>
    parts
      ? parts.map((state, mixer) => ({ name: `layer ${layer}, mixer ${mixer}`, state }))
      : { name: `layer ${layer}`, state: states[layer] as LayerState },
  );
}

/**
 * Copies the pages of all layers of a session, or only those that have changed since it held `since` tokens, so that a stored
 * copy can be updated with few pages. A page of a recurrent layer holds its state behind the page's last token; of those behind
 * full pages only some are kept, and the pages of others hold nothing. What the decoder of a model with two halves attends to is
 * not among them.
 * @param since Tokens that the stored copy holds. If the session was truncated after that copy was made, the shortest length
 * that it has had since. Default 0: all pages.
 * @returns A list for each layer with keys or a state of its own, or for each of its mixers that lie side by side: what `exportPages`
 * gives of a cache.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or `IN_USE` while an
 * asynchronous call or a step of a generation runs on the session.
 * @example
 * import { loadKernels } from "headwise";
 * import { createSession, forward, loadModel, models } from "headwise/models";
 * import { exportSession, importSession } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * const [session, copy] = [createSession(model, { maxSeqLen: 96 }), createSession(model, { maxSeqLen: 96 })];
 * const ids = [81, 90, 23, 0, 81, 90];
 * forward(session, ids);
 * importSession(copy, exportSession(session), ids); // two layers of one page
 * const [a, b] = [session, copy].map((each) => forward(each, [23]).logits);
 * console.log(copy.length, a?.every((logit, i) => Object.is(logit, b?.[i]))); // 7 true
 * kernels.release();
 */
export function exportSession(session: Session, since = 0): CachePage[][] {
  const where = "exportSession";
  expectSession(where, session);
  expectUnused(where, session);
  expectInt(where, "since", since, 0, session.length);
  const { length } = session;
  return partsOf(session).map(({ state }) => {
    if (state instanceof RecurrentState) return exportStates(where, state, length, since);
    return underName(where, () => exportPages(expectPages(where, state).cache, since));
  });
}

/**
 * Fills an empty session from pages that `exportSession` made, in this process or another, of a session of the same model, with the
 * same format. Later calls give the same bits as with the exported session.
 *
 * The header of each page is checked, also for how many tokens the page holds, but not the numbers after it: store pages where no
 * write is left half done, together with the model that they belong to and the tokens that they hold.
 * @param pages For each list of `exportSession` all pages that hold the tokens, in ascending order. Pages of iterables are read one
 * at a time, and those behind the last token are not read.
 * @param ids The tokens that the session has read then: all that were exported, or the first of them. More are refused, and with
 * recurrent layers all other numbers than those of full pages whose states were kept. Behind a generation these are
 * `session.length` tokens: its last one has not been read.
 * @throws TypeError or RangeError naming the argument, whatever `pages` throws, HeadwiseError `RELEASED`, or `IN_USE` while
 * another call uses the session. A session that was empty is then empty again.
 * @example
 * import { loadKernels } from "headwise";
 * import { createSession, forward, loadModel, models } from "headwise/models";
 * import { exportSession, importSession } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * const [session, fork] = [createSession(model, { maxSeqLen: 96 }), createSession(model, { maxSeqLen: 96 })];
 * forward(session, [81, 90, 23, 0]);
 * importSession(fork, exportSession(session), [81, 90]); // the first two of four tokens
 * console.log(fork.length); // 2
 * kernels.release();
 */
export function importSession(session: Session, pages: Iterable<Iterable<CachePage>>, ids: TokenIds): void {
  const where = "importSession";
  expectSession(where, session);
  const { states, model, maxSeqLen } = session;
  const parts = partsOf(session);
  for (const { state } of parts) if (!(state instanceof RecurrentState)) expectPages(where, state);
  // Reading the arguments may run code of the caller's, and so may reading pages.
  const layers = readLayers(where, pages, parts.length);
  const tokens = readIds(where, "ids", ids, model.vocabSize, maxSeqLen);
  expectSession(where, session);
  expectUnused(where, session);
  if (session.length > 0) throw new RangeError(`${where}: session expected one without tokens, got ${session.length}`);
  expectInt(where, "ids.length", tokens.length, 0, maxSeqLen);
  session.holds.count++;
  try {
    for (const [i, { name, state }] of parts.entries()) {
      const own = layers[i] as Iterable<CachePage>;
      const named = `${where}: ${name}`;
      if (state instanceof RecurrentState)
        fillState(named, state, own, tokens.length, () => expectSession(where, session));
      else fillCache(named, expectPages(where, state).cache, own, tokens.length, "ids.length");
    }
    expectSession(where, session);
    for (let i = 0; i < tokens.length; i++) session.tokens.push(tokens[i] as number);
  } catch (error) {
    if (!session.released && !model.kernels.released) for (const state of states) state.truncate(0);
    throw error;
  } finally {
    session.holds.count--;
  }
}

/** Reads the lists of pages of the `count` layers or mixers that keep a state, but none of the pages. */
function readLayers(where: string, pages: unknown, count: number): Iterable<CachePage>[] {
  const isIterable = typeof Object(pages)[Symbol.iterator] === "function" && typeof pages === "object";
  if (!isIterable) throw new TypeError(`${where}: pages expected the lists of exportSession, got ${describe(pages)}`);
  const layers: Iterable<CachePage>[] = [];
  for (const layer of pages as Iterable<Iterable<CachePage>>) if (layers.push(layer) > count) break;
  if (layers.length === count) return layers;
  const got = layers.length > count ? "more" : layers.length;
  throw new RangeError(`${where}: pages expected the ${count} lists of exportSession, got ${got}`);
}
