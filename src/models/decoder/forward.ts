// Rows of tokens through all layers of a decoder, for any number of sessions at once: calls, and how they run.

import { PAGE } from "../../../assembly/layout.ts";
import { createFloats } from "../../base/tensor/tensor.ts";
import { expectInt, expectOneOf, readFields } from "../../base/util/arguments.ts";
import { CHUNK_ROWS, chunksOf, listRows, type RowRun, rowsIn } from "../../base/util/rows.ts";
import { finish, type Steps, settledOrAborted, type WaitingSteps } from "../../base/util/steps.ts";
import { fillTables } from "../../layers/attention/rope.ts";
import type { Measure } from "../../layers/attention/segment.ts";
import { linearFlops, type Rows } from "../../layers/linear/products.ts";
import type { CallTokens, LayerCall, LayerState, RunRows, StateCall } from "../../layers/mixer/mixer.ts";
import { tokensBehind } from "../../layers/pass/call.ts";
import {
  checkSlices,
  runSlices,
  SLICE_OPTIONS,
  type SliceOptions,
  type Slices,
  stepFlopsOf,
} from "../../layers/pass/forward.ts";
import { expectRoom } from "../../layers/state/kv-cache.ts";
import { planToken, repeatCalls, type TokenCalls } from "../../wasm/token-calls.ts";
import {
  type BlockRows,
  blockRows,
  type LayerRun,
  MOST_TOP,
  type PassPlan,
  planPass,
  runBlock,
} from "../blocks/block.ts";
import { type EmbeddedTokens, embedTokens, type OutputSink, readInputs, runHead } from "../blocks/ends.ts";
import type { LoadedModel, PackedBlock, ReadRow } from "../blocks/model.ts";
import type { LayerSite, RowWork } from "../blocks/rows.ts";
import { joinStreams, spreadStreams } from "../blocks/streams.ts";
import { type BlockSpec, headsOf, stateLayer } from "../spec/spec.ts";
import { expectReady, expectSession, expectUnused, readIds, type Session, type TokenIds } from "./session.ts";

/** Options of `forward`. */
export interface ForwardOptions {
  /** Whose logits: those of the last token, or of all of `ids`. Default "last". */
  readonly rows?: "last" | "all" | undefined;
  /**
   * Only the largest logits of each row, 1 to 1024, and their ids: 1 is greedy decoding. They are found in linear memory, so that
   * no row is copied. Default all logits.
   */
  readonly top?: number | undefined;
}

/** What `forward` gives. */
export interface ForwardResult {
  /** [vocabSize] of the last token, or [ids.length, vocabSize]; with `top`, that many instead of vocabSize, descending. */
  logits: Float32Array;
  /** With `top`: the ids of these logits, of equal ones the lower first. */
  ids?: Int32Array;
}

/** A checked call on a session. */
export function checkModelCall(where: string, session: Session, ids: TokenIds, rows: unknown): ModelCall {
  expectSession(where, session);
  expectOneOf(where, "rows", rows, ["last", "all"]);
  const read = readIds(where, "ids", ids, session.model.vocabSize, session.maxSeqLen);
  if (read.length === 0) throw new RangeError(`${where}: ids expected 1 or more tokens, got none`);
  // Reading them may have run code of the caller's.
  expectSession(where, session);
  expectUnused(where, session);
  expectRoom(where, session, "ids", read.length);
  return {
    where,
    session,
    past: session.length,
    ids: Int32Array.from(read),
    outputs: rows === "all" ? read.length : 1,
  };
}

/**
 * Reads tokens: runs them through all layers, behind those that the session has read, and returns logits.
 *
 * The logits of a token have the same bits in one call, in several, token by token, in any batch and on any number of threads.
 * @param ids Tokens, 1 or more.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `CACHE_FULL`, `OUT_OF_MEMORY`, `RELEASED`, `IN_USE`,
 * `NOT_RESIDENT` where inputs of layers are in a file (`LoadModelOptions.perLayer`), and with threads `WORKER_LOST` or
 * `KERNEL_FAILED`. The session is then unchanged.
 * @example
 * import { loadKernels } from "headwise";
 * import { quantized } from "headwise/quantized";
 * import { createSession, forward, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models, quantized });
 * const model = await loadModel(kernels, "model");
 * const session = createSession(model);
 * const { logits } = forward(session, [3, 1, 4]);
 * console.log(logits.length === model.vocabSize, session.length); // true 3
 * kernels.release();
 */
export function forward(session: Session, ids: TokenIds, options: ForwardOptions = {}): ForwardResult {
  const where = "forward";
  const { rows = "last", top } = readFields(where, "options", options, ["rows", "top"]);
  const call = checkModelCall(where, session, ids, rows);
  const { result, sink } = collectLogits(where, call, top);
  finish(runModel(where, session.model, [call], sink));
  commitCalls([call]);
  return result;
}

/** Options of `forwardAsync`. */
export type ForwardAsyncOptions = ForwardOptions & SliceOptions;

/**
 * `forward` in time slices, with yields to the event loop between them. The session is in use until the promise settles: other
 * calls on it throw `IN_USE`.
 * @throws The same errors as `forward`, instead of `NOT_RESIDENT` the `BAD_FILE` of a read that failed, and the signal's reason. The
 * session is then unchanged.
 * @example
 * import { loadKernels } from "headwise";
 * import { createSession, forwardAsync, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const session = createSession(await loadModel(kernels, "model"));
 * let last = 0;
 * await forwardAsync(session, [3, 1, 4], { onProgress: (done) => (last = done) });
 * console.log(session.length, last); // 3 1
 * kernels.release();
 */
export async function forwardAsync(
  session: Session,
  ids: TokenIds,
  options: ForwardAsyncOptions = {},
): Promise<ForwardResult> {
  const where = "forwardAsync";
  const { rows = "last", top, ...rest } = readFields(where, "options", options, ["rows", "top", ...SLICE_OPTIONS]);
  const slices = checkSlices(where, rest);
  const call = checkModelCall(where, session, ids, rows);
  const { result, sink } = collectLogits(where, call, top);
  await runCalls(where, session.model, [call], sink, slices);
  return result;
}

/** Arrays for the logits of a call, or for the largest of them, and what fills them. */
export function collectLogits(
  where: string,
  { session, outputs }: ModelCall,
  top: number | undefined,
): { result: ForwardResult; sink: OutputSink } {
  const { vocabSize } = session.model;
  if (top === undefined) {
    const logits = createFloats(where, "logits", outputs * vocabSize);
    return { result: { logits }, sink: (row) => logits.set(row.logits(), row.output * vocabSize) };
  }
  const count = expectInt(where, "top", top, 1, Math.min(MOST_TOP, vocabSize));
  const logits = createFloats(where, "logits", outputs * count);
  const ids = new Int32Array(logits.length);
  const sink: OutputSink = (row) => {
    const found = row.top(count);
    logits.set(found.values, row.output * count);
    ids.set(found.ids, row.output * count);
  };
  return { result: { logits, ids }, sink };
}

// A pass: the tokens of all calls through all layers, in chunks of rows.

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

function prepareCall(call: ModelCall, firstOutput: number): PreparedCall {
  const { where, session, ids, past } = call;
  const numHeads = headsOf((session.model.spec.blocks[0] as BlockSpec).mixer);
  return { call, tokens: tokensBehind(where, { numHeads }, past, ids.length), firstOutput, ids, past };
}

/** Plans by model: that of the last pass, which the next one often needs again. */
const PLANS = new WeakMap<LoadedModel, { readonly key: string; readonly plan: PassPlan }>();

function planOf(model: LoadedModel, calls: readonly ModelCall[], { maps, measures }: PassSettings): PassPlan {
  const total = calls.reduce((sum, { ids }) => sum + ids.length, 0);
  const most = Math.min(
    ...model.weights.blocks.map(({ attention }) => attention.mixer.chunkRows(attention, CHUNK_ROWS)),
  );
  const rows = Math.min(total, most);
  const outputs = Math.min(
    rows,
    calls.reduce((sum, each) => sum + each.outputs, 0),
  );
  // Keys of the one call whose weights are read or measured.
  const [{ past, ids }] = calls as [ModelCall];
  const reading = { kvLen: maps || measures ? past + ids.length : 0, maps: maps !== undefined };
  const formats = calls.map(({ session }) => session.formats).join();
  const key = `${rows} ${outputs} ${formats} ${reading.kvLen} ${reading.maps}`;
  const known = PLANS.get(model);
  if (known?.key === key) return known.plan;
  const { spec, places, weights } = model;
  // All sessions of a model have a source, or none.
  const source = calls[0]?.session.source;
  const ropes = source ? [] : weights.blocks.map(({ attention }) => attention.mixer.rope(attention));
  const plan = planPass(spec, places, { rows, outputs, ropes }, (layer, layout, rotations): LayerRun => {
    const block = weights.blocks[layer] as PackedBlock;
    const own = calls.reduce((all, { session }) => all | session.stateOf(layer).formats, 0);
    if (source) return source.plan(model, block, layout, rows, own);
    const { attention } = block;
    return { self: attention.mixer.plan(attention, layout, rows, own, reading, rotations) };
  });
  PLANS.set(model, { key, plan });
  return plan;
}

/** How a pass runs. */
export interface PassSettings {
  /** Whether other calls run between its steps: these are short then, and scratch is allocated for the pass alone. Default false. */
  readonly sliced?: boolean;
  /** How a sliced pass waits for rows of a file. Default until they are there. */
  readonly wait?: (work: Promise<void>) => Promise<void>;
  readonly tap?: ModelTap | undefined;
  /** Softmax weights of layers [numHeads, qLen, kvLen], for a single call; layers that are not in it give none. */
  readonly maps?: ReadonlyMap<number, Float32Array> | undefined;
  /** What measures the rows of attention of layers, for a single call. */
  readonly measures?: ReadonlyMap<number, Measure> | undefined;
  /** Takes the rows of each chunk behind the last layer, where no logits are asked for. */
  readonly take?: ((work: RowWork, plan: PassPlan, rows: BlockRows, runs: ChunkRuns) => Steps) | undefined;
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
  { sliced = false, wait = (work) => work, tap, maps, measures, take }: PassSettings = {},
): WaitingSteps {
  const { kernels, weights } = model;
  const { memory } = kernels;
  const plan = planOf(model, calls, { maps, measures });
  for (const { session } of calls) for (const state of session.states) state.begin();
  const base = sliced ? memory.allocate(where, plan.bytes) : memory.scratch(where, plan.bytes);
  try {
    const { shape, linear } = plan;
    const stepFlops = sliced ? stepFlopsOf(kernels) : Infinity;
    const work: RowWork = { kernels, base, shape, linear, mode: weights.mode, stepFlops };
    let outputs = 0;
    const prepared = calls.map((call) => {
      const firstOutput = outputs;
      outputs += call.outputs;
      return prepareCall(call, firstOutput);
    });
    const list = listRows(prepared, ({ call }) => [[0, call.ids.length]]);
    const isShared = model.spec.blocks.some((block, layer) => stateLayer(block, layer) !== layer);
    for (const [begin, end] of isShared ? chunksOfPages(calls, plan.rows) : chunksOf(list.total, plan.rows)) {
      const runs = list.runs(begin, end);
      const inputRow = yield* readInputs(where, model, runs, sliced ? wait : undefined);
      yield* runChunk(work, model, plan, runs, sink, { tap, maps, measures, take }, inputRow);
    }
  } finally {
    if (sliced && !kernels.released) memory.free(base);
  }
}

/**
 * Cuts the rows of calls into chunks of up to `most` in each of which no sequence begins another page. A layer that attends the keys
 * of another one runs behind it, and finds them as they are at the end of the chunk: pages age with the first query of a page.
 */
function* chunksOfPages(calls: readonly ModelCall[], most: number): ReturnType<typeof chunksOf> {
  function* cut(from: number, to: number): ReturnType<typeof chunksOf> {
    for (const [begin, end] of chunksOf(to - from, most)) yield [from + begin, from + end];
  }
  let [begin, at] = [0, 0];
  for (const { past, ids } of calls) {
    for (let next = PAGE - (past % PAGE); next < ids.length; next += PAGE) {
      yield* cut(begin, at + next);
      begin = at + next;
    }
    at += ids.length;
  }
  yield* cut(begin, at);
}

type ChunkRuns = readonly RowRun<PreparedCall>[];

/** The tokens of a chunk through all layers. */
function* runChunk(
  work: RowWork,
  model: LoadedModel,
  plan: PassPlan,
  runs: ChunkRuns,
  sink: OutputSink,
  seen: Pick<PassSettings, "tap" | "maps" | "measures" | "take">,
  inputRow: ReadRow | undefined,
): Steps {
  const rows = blockRows(plan, work.base);
  yield* embedTokens(work, model, plan, rows, runs, rowsIn(runs), inputRow);
  seen.tap?.(0, "embed", rows.residual, runs);
  const { streams } = model.weights;
  const [width, count] = [model.dModel, rowsIn(runs)];
  if (streams) yield* spreadStreams(work, streams.into, plan.streams, width, rows.residual, count);
  for (const places of plan.rotations) {
    const { attention } = model.weights.blocks[places.layer] as PackedBlock;
    fillTables({ attention, places, base: work.base }, runs, ({ tokens }) => tokens.positions);
  }
  const token = callsOf(work, model, plan, runs, rows, seen);
  if (token) yield* repeatCalls(work.kernels, token, (runs[0] as ChunkRuns[number]).of.past);
  else yield* runLayers(work, model, plan, runs, rows, seen);
  if (streams) yield* joinStreams(work, streams.out, plan.streams, width, rows.residual, rows.branch, count);
  if (seen.take) return yield* seen.take(work, plan, rows, runs);
  const outputs = runs.flatMap((run) => [...outputsOf(run)]);
  yield* runHead(work, model, plan, rows, outputs, sink);
}

/** Runs the rows of a chunk through all layers. */
function* runLayers(
  work: RowWork,
  { weights }: LoadedModel,
  plan: PassPlan,
  runs: ChunkRuns,
  rows: BlockRows,
  { tap, maps, measures }: Pick<PassSettings, "tap" | "maps" | "measures">,
): Steps {
  const { base, stepFlops } = work;
  for (const [i, block] of weights.blocks.entries()) {
    const own = runs.map((run): RowRun<StateCall> => {
      const state = run.of.call.session.stateOf(i);
      const { target } = run.of.tokens;
      const tokens = { ...run.of.tokens, target: { ...target, numHeads: block.attention.config.numHeads } };
      return { ...run, of: { tokens, state } };
    });
    const { self, cross } = plan.attention[i] as LayerRun;
    const attendCross = (io: Parameters<RunRows>[3]): Steps => {
      const calls = runs.map((run) => ({
        ...run,
        of: run.of.call.session.source?.callOf(i, run.of.tokens) as LayerCall,
      }));
      return (cross as RunRows)(base, stepFlops, calls, io);
    };
    const seen = {
      tap: tap && ((site: LayerSite, at: Rows) => tap(i, site, at, runs)),
      ...{ maps: maps?.get(i), measure: measures?.get(i) },
    };
    yield* runBlock({ ...work, ...seen }, block, plan, self, own, rows, rowsIn(runs), cross && attendCross);
  }
}

/**
 * Where the last token of a session worked, and its calls from the second one on, by the turn of its states: the first may be the only
 * one in its place.
 */
interface LastToken extends Pick<RowWork, "base" | "stepFlops"> {
  readonly plan: PassPlan;
  readonly calls: (TokenCalls | undefined)[];
}

const LAST = new WeakMap<Session, LastToken>();

/** The turns of a state, or of those that it consists of. */
const turnsOf = ({ turn, parts }: LayerState): readonly number[] =>
  parts ? parts.flatMap(turnsOf) : turn === undefined ? [] : [turn];

/**
 * The calls of the layers for a chunk that is a single token. Undefined if the host does more for it than to call kernels: it routes
 * experts, keeps the largest gates, mixes streams, scales queries by their positions or heads by their gates, puts latent attention
 * together, cuts tokens into chunks, takes or ages pages, keeps a checkpoint of a recurrent state, attends to the outputs of an
 * encoder, or shows rows.
 */
function callsOf(
  work: RowWork,
  model: LoadedModel,
  plan: PassPlan,
  runs: ChunkRuns,
  rows: BlockRows,
  { tap, maps, measures }: Pick<PassSettings, "tap" | "maps" | "measures">,
): TokenCalls | undefined {
  const [{ of }] = runs as [ChunkRuns[number]];
  const { session, past, ids } = of.call;
  if (plan.rows > 1 || ids.length > 1 || model.encoder || tap || maps || measures) return undefined;
  if (!session.states.every((state) => state.settle(past))) return undefined;
  const { kernels, base, stepFlops } = work;
  const isHosted = ({ moe, mlp, streams, temperature, gatesHeads, attention }: PackedBlock) =>
    moe ||
    mlp?.activation.sparse ||
    streams ||
    temperature ||
    gatesHeads ||
    !attention.mixer.callsOnlyKernels(attention, past);
  if (model.weights.blocks.some(isHosted)) return undefined;
  const last = LAST.get(session);
  const known = last?.plan === plan && last.base === base && last.stepFlops === stepFlops ? last.calls : undefined;
  // Behind an aborted call and a cut, states may have different turns: no list of calls fits them then.
  const turns = new Set(session.states.flatMap(turnsOf));
  if (turns.size > 1) return undefined;
  const [turn = 0] = turns;
  if (known?.[turn]) return known[turn];
  const stepsAt = (position: number) => {
    const call = { ...of.call, past: position };
    return runLayers(work, model, plan, [{ of: prepareCall(call, 0), begin: 0, end: 1, at: 0 }], rows, {});
  };
  const calls = known ?? [];
  if (known) calls[turn] = planToken(kernels, past, stepsAt);
  else LAST.set(session, { plan, base, stepFlops, calls });
  return calls[turn];
}

/** The rows of a run that become logits: where they lie in the chunk, and which outputs they are. */
function* outputsOf({ of: { call, firstOutput }, begin, end, at }: RowRun<PreparedCall>) {
  const first = call.ids.length - call.outputs;
  for (let token = Math.max(begin, first); token < end; token++)
    yield { row: at + token - begin, output: firstOutput + token - first };
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
 * Runs the calls, whose tokens fit, in time slices and commits them. Until the promise settles, their sessions are in use. If it
 * rejects, nothing has changed.
 * @throws HeadwiseError `RELEASED`, or `IN_USE` for a session that another call is using or has changed.
 */
export async function runCalls(
  where: string,
  model: LoadedModel,
  calls: readonly ModelCall[],
  sink: OutputSink,
  slices: Slices,
): Promise<void> {
  const expectActive = () => {
    slices.signal?.throwIfAborted();
    for (const { where, session } of calls) expectSession(where, session);
  };
  expectActive();
  for (const { where, session, past } of calls) expectReady(where, session, past);
  const all = passFlops(model, calls);
  // What was aborted or released meanwhile says so, rather than that a read failed for it.
  const wait = (work: Promise<void>) => settledOrAborted(work, slices.signal).finally(expectActive);
  const steps = runModel(where, model, calls, sink, { sliced: true, wait });
  for (const { session } of calls) session.holds.count++;
  try {
    await runSlices(steps, all, slices, expectActive);
    expectActive();
    commitCalls(calls);
  } finally {
    for (const { session } of calls) {
      session.holds.count--;
      // The next call would undo what is not committed; this frees copies of pages that had aged.
      for (const state of session.states) state.begin();
    }
  }
}

/** About how many operations the products of these calls take: of all tokens, and of the rows that become logits. */
export function passFlops(
  model: LoadedModel,
  calls: readonly { readonly ids: Pick<ModelCall["ids"], "length">; readonly outputs: number }[],
): number {
  const rows = calls.reduce((sum, { ids }) => sum + ids.length, 0);
  const outputs = calls.reduce((sum, each) => sum + each.outputs, 0);
  return rows * model.places.rowFlops + linearFlops(model.weights.head, outputs);
}
