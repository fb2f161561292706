// Rows of tokens through all layers of a decoder, for any number of sessions at once.

import { HeadwiseError } from "../../base/util/errors.ts";
import { chunksOf, listRows, type RowRun } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { checkMasks } from "../../layers/attention/mask.ts";
import type { Measure } from "../../layers/attention/segment.ts";
import type { Rows } from "../../layers/linear/products.ts";
import type { CallTokens } from "../../layers/pass/call.ts";
import type { RunRows } from "../../layers/pass/forward.ts";
import { mostRowsOf, planRows } from "../../layers/pass/row-pass.ts";
import { runSlices, type Slices, stepFlopsOf } from "../../layers/pass/slices.ts";
import type { LayerCall } from "../../layers/pass/steps.ts";
import { expectRoom } from "../../layers/state/kv-cache.ts";
import { blockRows, runBlock } from "../blocks/block.ts";
import { type EmbeddedTokens, embedTokens, type OutputSink, runHead } from "../blocks/ends.ts";
import type { LoadedModel } from "../blocks/model.ts";
import type { PackedBlock } from "../blocks/places.ts";
import type { LayerSite, RowWork } from "../blocks/rows.ts";
import { type LayerRun, type PassPlan, passFlops, planPass } from "../blocks/scratch.ts";
import { expectSession, expectUnused, type Session } from "./session.ts";
import { runToken } from "./token-calls.ts";

/** Tokens that a session reads, and those of them whose rows become logits: the last `outputs`. */
export interface ModelCall {
  readonly where: string;
  readonly session: Session;
  /** Tokens that the session has, and the call was checked for. */
  readonly past: number;
  readonly ids: Int32Array;
  readonly outputs: number;
}

/** A call, what attention needs to know of its tokens, and its first output among those of all calls. */
interface PreparedCall extends EmbeddedTokens {
  readonly call: ModelCall;
  readonly tokens: CallTokens;
  readonly firstOutput: number;
}

/** Plans by model: that of the last pass, which the next one often needs again. */
const PLANS = new WeakMap<LoadedModel, { readonly key: string; readonly plan: PassPlan }>();

function planOf(model: LoadedModel, calls: readonly ModelCall[], { maps, measures }: PassSettings): PassPlan {
  const total = calls.reduce((sum, { ids }) => sum + ids.length, 0);
  const most = Math.min(...model.weights.blocks.map(({ attention }) => mostRowsOf(attention)));
  const rows = Math.min(total, most);
  const outputs = Math.min(
    rows,
    calls.reduce((sum, each) => sum + each.outputs, 0),
  );
  // Keys of the one call whose weights are read or measured.
  const [{ past, ids }] = calls as [ModelCall];
  const reading = { kvLen: maps || measures ? past + ids.length : 0, maps: maps !== undefined };
  const formats = calls.map(({ session }) => session.formats);
  const key = `${rows} ${outputs} ${formats.join()} ${reading.kvLen} ${reading.maps}`;
  const known = PLANS.get(model);
  if (known?.key === key) return known.plan;
  const { spec, places, weights } = model;
  // All sessions of a model have a source, or none.
  const source = calls[0]?.session.source;
  const plan = planPass(spec, places, { rows, outputs }, (layer, layout): LayerRun => {
    const block = weights.blocks[layer] as PackedBlock;
    const own = formats.reduce((all, of) => all | (of[layer] as number), 0);
    if (source) return source.plan(model, block, layout, rows, own);
    return { self: planRows(block.attention, layout, rows, own, reading) };
  });
  PLANS.set(model, { key, plan });
  return plan;
}

/** How a pass runs. */
export interface PassSettings {
  /** Operations of a step. Default all. */
  readonly stepFlops?: number;
  /** Whether scratch is allocated for the pass alone, because other calls run between its steps. */
  readonly ownScratch?: boolean;
  readonly tap?: ModelTap | undefined;
  /** Softmax weights of layers [numHeads, qLen, kvLen], for a single call; layers that are not in it give none. */
  readonly maps?: ReadonlyMap<number, Float32Array> | undefined;
  /** What measures the rows of attention of layers, for a single call. */
  readonly measures?: ReadonlyMap<number, Measure> | undefined;
}

/** Sees the rows of a chunk at a site of layer `layer`, or of the embedding; `runs` says whose tokens they are. */
export type ModelTap = (layer: number, site: LayerSite | "embed", rows: Rows, runs: ChunkRuns) => void;

/**
 * Runs the tokens of all calls, which have the same model, through all layers, and gives the rows that become logits to `sink`,
 * in the order of the calls. The projections of all calls are one list of rows. Nothing has changed until the calls are
 * committed.
 */
export function* runModel(
  where: string,
  model: LoadedModel,
  calls: readonly ModelCall[],
  sink: OutputSink,
  { stepFlops = Number.POSITIVE_INFINITY, ownScratch = false, tap, maps, measures }: PassSettings = {},
): Steps {
  const { kernels, weights } = model;
  const { memory } = kernels;
  const plan = planOf(model, calls, { maps, measures });
  for (const { session } of calls) for (const state of session.states) state.begin();
  const base = ownScratch ? memory.allocate(where, plan.bytes) : memory.scratch(where, plan.bytes);
  try {
    const work: RowWork = {
      ...{ kernels, base, shape: plan.shape, linear: plan.linear, mode: weights.mode, stepFlops },
    };
    let outputs = 0;
    const prepared = calls.map((call): PreparedCall => {
      const firstOutput = outputs;
      outputs += call.outputs;
      return { call, tokens: tokensOf(call), firstOutput, ids: call.ids, past: call.past };
    });
    const list = listRows(prepared, ({ call }) => [[0, call.ids.length]]);
    for (const [begin, end] of chunksOf(list.total, plan.rows))
      yield* runChunk(work, model, plan, list.runs(begin, end), sink, { tap, maps, measures });
  } finally {
    if (ownScratch && !kernels.released) memory.free(base);
  }
}

type ChunkRuns = readonly RowRun<PreparedCall>[];

/** The tokens of a chunk through all layers. */
function* runChunk(
  work: RowWork,
  model: LoadedModel,
  plan: PassPlan,
  runs: ChunkRuns,
  sink: OutputSink,
  { tap, maps, measures }: Pick<PassSettings, "tap" | "maps" | "measures">,
): Steps {
  const { weights } = model;
  const count = runs.reduce((sum, { begin, end }) => sum + end - begin, 0);
  const rows = blockRows(plan, work.base);
  yield* embedTokens(work, model, plan, rows, runs, count);
  tap?.(0, "embed", rows.residual, runs);
  const isSeen = tap !== undefined || maps !== undefined || measures !== undefined;
  const layer = (i: number): Steps => {
    const block = weights.blocks[i] as PackedBlock;
    const own = runs.map((run): RowRun<LayerCall> => {
      const { pages } = run.of.call.session.stateOf(i);
      const { target } = run.of.tokens;
      const tokens = { ...run.of.tokens, target: { ...target, numHeads: block.attention.config.numHeads } };
      return { ...run, of: { tokens, pages, inStep: pages.ages } };
    });
    const { self, cross } = plan.attention[i] as LayerRun;
    const sourced = runs.map((run) => ({
      ...run,
      of: run.of.call.session.source?.callOf(i, run.of.tokens) as LayerCall,
    }));
    const attendCross = cross && ((io: Parameters<RunRows>[3]) => cross(work.base, work.stepFlops, sourced, io));
    const seen = {
      tap: tap && ((site: LayerSite, at: Rows) => tap(i, site, at, runs)),
      ...{ maps: maps?.get(i), measure: measures?.get(i) },
    };
    return runBlock(isSeen ? { ...work, ...seen } : work, block, plan, self, own, rows, count, attendCross);
  };
  const [{ of, begin }] = runs as [ChunkRuns[number]];
  // Calls on the outputs of an encoder, and those that a tap interrupts, are not recorded.
  if (plan.rows === 1 && !model.encoder && !isSeen)
    yield* runToken(work, plan, of.call.session, of.call.past + begin, layer);
  else for (let i = 0; i < weights.blocks.length; i++) yield* layer(i);
  yield* runHead(
    work,
    model,
    plan,
    rows,
    runs.flatMap((run) => [...outputsOf(run)]),
    sink,
  );
}

/** The rows of a run that become logits: where they lie in the chunk, and which outputs they are. */
function* outputsOf({ of: { call, firstOutput }, begin, end, at }: RowRun<PreparedCall>) {
  const first = call.ids.length - call.outputs;
  for (let token = Math.max(begin, first); token < end; token++)
    yield { row: at + token - begin, output: firstOutput + token - first };
}

/** What attention needs to know of a call, but the heads of the layer. */
function tokensOf({ where, past, ids }: ModelCall): CallTokens {
  const qLen = ids.length;
  const kvLen = past + qLen;
  const rows = [[0, qLen]] as const;
  const positions = Int32Array.from(ids, (_, i) => past + i);
  const target = { batch: 1, numHeads: 0, qLen, kvLen };
  return {
    ...{ where, batch: 1, qLen, newKeys: qLen, past, rows, keyRows: rows, positions, keyPositions: positions, target },
    placements: [{ position: past, kvLen }],
    masks: checkMasks(where, {}, target),
  };
}

/** Adds what the calls read to their sessions: the last step of a pass. */
export function commitCalls(calls: readonly ModelCall[]): void {
  for (const { session, ids } of calls) {
    for (const state of session.states) state.commit(ids.length);
    // One by one: a call takes as many arguments as the stack has room for.
    for (const id of ids) session.tokens.push(id);
    session.changes.count++;
  }
}

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

/** Throws unless a session can read `count` tokens behind the `length` that it is known to have. */
export function expectReady(where: string, session: Session, length: number, count: number, changes?: number): void {
  expectSession(where, session);
  expectUnused(where, session);
  expectUnchanged(where, session, length, changes);
  expectRoom(where, session, "ids", count);
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
 */
export function forgetTokens(session: Session, length: number, to: number, changes: number): void {
  const { model, holds } = session;
  if (session.released || model.released || model.kernels.released) return;
  if (session.length !== length || session.changes.count !== changes) return;
  if (holds.count === 0) session.truncate(to);
}

/**
 * Runs the calls in time slices and commits them. Until the promise settles, their sessions are in use. If it rejects, nothing
 * has changed.
 * @throws HeadwiseError `RELEASED`, `CACHE_FULL`, or `IN_USE` for a session that another call is using or has changed.
 */
export async function runCalls(
  where: string,
  model: LoadedModel,
  calls: readonly ModelCall[],
  sink: OutputSink,
  slices: Slices,
): Promise<void> {
  const { kernels } = model;
  const expectActive = () => {
    slices.signal?.throwIfAborted();
    for (const { where, session } of calls) expectSession(where, session);
  };
  expectActive();
  for (const { where, session, past, ids } of calls) expectReady(where, session, past, ids.length);
  const all = passFlops(model, calls);
  const steps = runModel(where, model, calls, sink, { stepFlops: stepFlopsOf(kernels), ownScratch: true });
  for (const { session } of calls) session.holds.count++;
  try {
    await runSlices(steps, all, slices, expectActive);
    expectActive();
    commitCalls(calls);
  } finally {
    steps.return(undefined);
    for (const { session } of calls) {
      session.holds.count--;
      // The next call would undo what is not committed; this frees copies of pages that had aged.
      for (const state of session.states) state.begin();
    }
  }
}
