// A pass whose rows are captured and edited at sites.

import { createFloats, expectTensor, type Tensor } from "../../base/tensor/tensor.ts";
import { expectInt, readFields, readList } from "../../base/util/arguments.ts";
import { expectMade, type Handle, makeHandle, type Releasable } from "../../base/util/lifetime.ts";
import { finish, type WaitingSteps } from "../../base/util/steps.ts";
import { expectModel, type LoadedModel, type PackedBlock } from "../../models/blocks/model.ts";
import {
  checkModelCall,
  collectLogits,
  commitCalls,
  type ForwardOptions,
  type ForwardResult,
  type ModelTap,
  type PassSettings,
  runModel,
} from "../../models/decoder/forward.ts";
import { expectSession, readIds, type Session, type TokenIds } from "../../models/decoder/session.ts";
import { type BlockSpec, stateLayer } from "../../models/spec/spec.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { checkEdit, checkSite, type Edit, MOST_SITES, readLayers, SITE_FIELDS, type Site } from "./sites.ts";
import { type AttentionStatistics, type LayerStatisticsOptions, measureLayers } from "./statistics.ts";
import { expectHeads, headsOf } from "./views.ts";

/**
 * What a pass computed inside, at every site: what `explainScore`, `logitAttrs`, `logitLens` and `decomposeResid` read. It holds
 * arrays of JavaScript until `release()`, and no memory of the kernels.
 */
export interface CapturedRun extends Releasable, Handle {
  /** The model that ran. */
  readonly model: LoadedModel;
  /** The tokens. Others below are named by their place in here. */
  readonly ids: readonly number[];
  /** Tokens that the session had read before. */
  readonly past: number;
  /** The logits [vocabSize] of the last token. */
  readonly logits: Float32Array;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /** @internal The rows [ids.length, width] at each site that the model has. */
  readonly rows: ReadonlyMap<string, Tensor>;
}

/** Residuals, which every layer has but `residMid`, are [dModel]. */
const SITES = ["residPre", "q", "k", "z", "attnOut", "residMid", "mlpOut", "residPost"] as const;
type RunSite = (typeof SITES)[number];

const keyOf = (at: Site["at"], layer: number) => `${at} ${layer}`;

/** The sites of a run: the residual behind a layer is that before the next one. */
function runSites({ spec: { blocks }, weights }: LoadedModel): Site[] {
  return blocks.flatMap(({ parallel, mlp }, layer) => {
    const heads = headsOf((weights.blocks[layer] as PackedBlock).attention);
    return SITES.filter((at) => {
      // What heads add follows from them.
      if (at === "attnOut") return !heads || heads.isPart;
      if (!heads && (at === "q" || at === "k" || at === "z")) return false;
      if (at === "k") return stateLayer(blocks[layer] as BlockSpec, layer) === layer;
      if (at === "residMid") return !parallel;
      if (at === "mlpOut") return mlp !== undefined;
      return at !== "residPost" || layer === blocks.length - 1;
    }).map((at) => ({ at, layer }));
  });
}

/**
 * `forward` that keeps the rows of every site, for explanations: the session has then read the tokens. A token takes some
 * 4·layers·(3·dModel + 3·numHeads·headDim) bytes.
 * @param session Of a decoder: a model with an encoder is refused.
 * @param ids Tokens, 1 or more.
 * @throws What `forward` throws. HeadwiseError `OUT_OF_MEMORY` if the rows do not fit. The session is then unchanged.
 * @example
 * import { loadKernels } from "headwise";
 * import { captureRun, explainScore } from "headwise/inspect";
 * import { createSession, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * using session = createSession(await loadModel(kernels, "model"));
 * using run = captureRun(session, [3, 1, 4, 3]);
 * const { score, components } = explainScore(run, { layer: 1, head: 0, query: 3, key: 1 });
 * console.log(Number.isFinite(score), components.query.length); // true 6: embed, 4 heads, rounding
 * kernels.release();
 */
export function captureRun(session: Session, ids: TokenIds): CapturedRun {
  return finish(captureSteps(session, ids));
}

/** `captureRun` in steps, as `forwardWithSteps`. */
export function* captureSteps(session: Session, ids: TokenIds, sliced = false): WaitingSteps<CapturedRun> {
  const where = "captureRun";
  expectSession(where, session);
  if (session.source) throw new TypeError(`${where}: session expected one without an encoder, got one of readSource`);
  const { model, length: past } = session;
  const read = Array.from(readIds(where, "ids", ids, model.vocabSize, session.maxSeqLen));
  const capture = runSites(model);
  const { logits, captured } = yield* forwardWithSteps(session, read, { capture }, sliced);
  const rows = new Map(capture.map(({ at, layer = 0 }, i) => [keyOf(at, layer), captured[i] as Tensor]));
  return makeHandle<CapturedRun>(
    "CapturedRun",
    where,
    { model, ids: Object.freeze(read), past, logits, rows },
    ["model", "rows"],
    () => rows.clear(),
    false,
  );
}

/** Throws unless `run` came from captureRun, and neither it nor its model was released. */
export function expectRun(where: string, run: CapturedRun): void {
  expectMade(where, "run", run, "captureRun");
  expectModel(where, run.model);
}

/** A token of a run. */
export const expectToken = (where: string, name: string, token: unknown, { ids }: CapturedRun): number =>
  expectInt(where, name, token, 0, ids.length - 1);

/** The row of a token at a site that the model has; `layer` may be the number of layers at `residPre`. */
export function rowAt({ model, rows }: CapturedRun, at: RunSite, layer: number, token: number): Float32Array {
  const { length } = model.spec.blocks;
  let key = keyOf(at, layer);
  if (at === "residPre" && layer === length) key = keyOf("residPost", length - 1);
  if (at === "residPost" && layer < length - 1) key = keyOf("residPre", layer + 1);
  const { data, shape } = rows.get(key) as Tensor;
  const [, width] = shape as [number, number];
  return data.subarray(token * width, (token + 1) * width);
}

/** Options of `forwardWith`. */
export interface ForwardWithOptions extends ForwardOptions {
  /** What to change, in this order where several are at one site. Default nothing. */
  readonly edits?: readonly Edit[] | undefined;
  /** What to return of the pass. Default nothing. */
  readonly capture?: readonly Site[] | undefined;
  /** Layers whose attention patterns to return, each once, of those that have heads. They take [heads, tokens, keys] floats each. Default none. */
  readonly patterns?: readonly number[] | undefined;
  /** Statistics of the attention of layers, measured in the same pass, at any length. Default none. */
  readonly statistics?: LayerStatisticsOptions | undefined;
}

/** What `forwardWith` gives. */
export interface ForwardWithResult extends ForwardResult {
  /** For each site of `capture`: [ids.length, width], as the edits left it. */
  captured: Tensor[];
  /** For each layer of `patterns`: the softmax weights [heads, ids.length, session.length] of queries on keys. */
  patterns: Tensor[];
  /** For each layer of `statistics.layers`: what was measured of queries on keys, [heads, ids.length] each. */
  statistics: AttentionStatistics[];
}

/**
 * `forward` that returns rows from inside of the pass, and changes them: ablation, patching, steering, at any head, branch or
 * layer, in any format of weights and caches. Tokens that were read before stay as they are; what edits change of these tokens
 * stays in the session's caches, until they are truncated. Without edits, logits have the bits of `forward`.
 * @param ids Tokens, 1 or more.
 * @throws TypeError or RangeError naming the argument, also for a site that the model does not have, and what `forward` throws.
 * The session is then unchanged.
 * @example
 * import { loadKernels } from "headwise";
 * import { forwardWith } from "headwise/inspect";
 * import { createSession, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const session = createSession(await loadModel(kernels, "model"));
 * const head = { at: "z", layer: 0, head: 1 } as const;
 * const { captured } = forwardWith(session, [3, 1, 4], { edits: [{ ...head, set: 0 }], capture: [head] });
 * console.log(captured[0]?.data.every((value) => value === 0)); // true: the head gives nothing
 * kernels.release();
 */
export function forwardWith(session: Session, ids: TokenIds, options: ForwardWithOptions = {}): ForwardWithResult {
  return finish(forwardWithSteps(session, ids, options));
}

/** What a pass of `tokens` tokens costs: one for each of them, and in a long one, whose tokens read each other, more. */
export const passCost = (tokens: number): number => tokens * Math.max(1, tokens / 256);

/** `forwardWith` in steps, which are short if it is `sliced`: then other calls may come between them, but none on this session. */
export function* forwardWithSteps(
  session: Session,
  ids: TokenIds,
  options: ForwardWithOptions,
  sliced = false,
): WaitingSteps<ForwardWithResult> {
  const where = "forwardWith";
  const given = readFields(where, "options", options, ["rows", "top", "edits", "capture", "patterns", "statistics"]);
  const { rows = "last", top } = given;
  const call = checkModelCall(where, session, ids, rows);
  const count = call.ids.length;
  const { model } = session;
  const edits = Array.from(readList(where, "options.edits", given.edits ?? [], MOST_SITES), (edit, i) =>
    checkEdit(where, `options.edits[${i}]`, edit as Edit, model, count),
  );
  const captures = Array.from(readList(where, "options.capture", given.capture ?? [], MOST_SITES), (site, i) => {
    const name = `options.capture[${i}]`;
    return checkSite(where, name, readFields(where, name, site as Site, SITE_FIELDS), model);
  });
  const captured = captures.map(({ width }): Tensor => {
    return { data: createFloats(where, "captured", count * width), shape: [count, width] };
  });
  const layers = readLayers(where, "options.patterns", given.patterns ?? [], model);
  const patterns = layers.map((layer): Tensor => {
    const { attention } = model.weights.blocks[layer] as PackedBlock;
    const { numHeads } = expectHeads(where, "options.patterns", attention, layer).layer.config;
    const shape = [numHeads, count, call.past + count];
    return { data: createFloats(where, "patterns", numHeads * count * (call.past + count)), shape };
  });
  const { result, sink } = collectLogits(where, call, top);

  const maps = new Map(layers.map((layer, i) => [layer, (patterns[i] as Tensor).data]));
  const isSeen = edits.length + captures.length > 0;
  const pass = (measures?: PassSettings["measures"]) =>
    runModel(where, model, [call], sink, {
      ...{ sliced, measures },
      ...(isSeen && { tap: createTap(model.kernels, edits, captures, captured) }),
      ...(maps.size > 0 && { maps }),
    });
  const statistics = yield* measureLayers(where, call, given.statistics, pass);
  commitCalls([call]);
  return { ...result, captured, patterns, statistics };
}

/** What edits rows of a pass, then copies those of `captures` to `captured`. */
function createTap(
  { memory }: Kernels,
  edits: readonly ReturnType<typeof checkEdit>[],
  captures: readonly ReturnType<typeof checkSite>[],
  captured: readonly Tensor[],
): ModelTap {
  return (layer, site, { at, stride }, runs) => {
    const isHere = (each: ReturnType<typeof checkSite>) => each.at === site && each.layer === layer;
    const [editsHere, capturesHere] = [edits.filter(isHere), captures.filter(isHere)];
    if (editsHere.length + capturesHere.length === 0) return;
    for (const { begin, end, at: first } of runs)
      for (let token = begin; token < end; token++) {
        const row = (from: number, width: number) =>
          memory.f32(at + 4 * ((first + token - begin) * stride + from), width);
        for (const { from, width, tokens, change } of editsHere)
          if (tokens?.has(token) ?? true) change(row(from, width), token);
        for (const each of capturesHere) {
          const { data } = captured[captures.indexOf(each)] as Tensor;
          data.set(row(each.from, each.width), token * each.width);
        }
      }
  };
}

/**
 * The mean of the rows of a tensor [rows, width], for mean ablation.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { meanRows } from "headwise/inspect";
 * console.log(meanRows({ data: Float32Array.of(1, 2, 3, 6), shape: [2, 2] }).join(" ")); // 2 4
 */
export function meanRows(x: Tensor): Float32Array {
  const { data, shape } = expectTensor("meanRows", "x", x, [2]);
  const [rows, width] = shape as [number, number];
  if (rows === 0) throw new RangeError("meanRows: x expected 1 or more rows, got none");
  const sums = new Float64Array(width);
  for (const [i, value] of data.entries()) sums[i % width]! += value;
  return Float32Array.from(sums, (sum) => sum / rows);
}
