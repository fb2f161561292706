import {
  checkModelCall,
  collectLogits,
  type ForwardOptions,
  type ForwardResult,
  type TokenIds,
} from "../decoder/forward.ts";
import type { PackedBlock } from "../decoder/packed.ts";
import { commitCalls, type ModelTap, type PassSettings, runModel } from "../decoder/pass.ts";
import type { Session } from "../decoder/session.ts";
import { stepFlopsOf } from "../forward/slices.ts";
import { createFloats, expectTensor, type Tensor } from "../tensor/tensor.ts";
import { readFields, readList } from "../util/arguments.ts";
import { finish, type Steps } from "../util/steps.ts";
import { checkEdit, type Edit } from "./edits.ts";
import { type LayerStatisticsOptions, measureLayers } from "./layer-statistics.ts";
import { checkSite, MOST_SITES, readLayers, SITE_FIELDS, type Site } from "./sites.ts";
import type { AttentionStatistics } from "./statistics.ts";

/** Options of `forwardWith`. */
export interface ForwardWithOptions extends ForwardOptions {
  /** What to change, in this order where several are at one site. Default nothing. */
  readonly edits?: readonly Edit[] | undefined;
  /** What to return of the pass. Default nothing. */
  readonly capture?: readonly Site[] | undefined;
  /** Layers whose attention patterns to return, each once. They take [heads, tokens, keys] floats each. Default none. */
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
): Steps<ForwardWithResult> {
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
    const { numHeads } = (model.weights.blocks[layer] as PackedBlock).attention.config;
    const shape = [numHeads, count, call.past + count];
    return { data: createFloats(where, "patterns", numHeads * count * (call.past + count)), shape };
  });
  const { result, sink } = collectLogits(where, call, top);

  const { memory } = model.kernels;
  const tap: ModelTap = (layer, site, { at, stride }, runs) => {
    const isHere = (each: Site) => each.at === site && each.layer === layer;
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
  const maps = new Map(layers.map((layer, i) => [layer, (patterns[i] as Tensor).data]));
  const isSeen = edits.length + captures.length > 0;
  const slices = sliced ? { stepFlops: stepFlopsOf(model.kernels), ownScratch: true } : {};
  const pass = (measures?: PassSettings["measures"]) =>
    runModel(where, model, [call], sink, {
      ...{ ...slices, measures },
      ...(isSeen && { tap }),
      ...(maps.size > 0 && { maps }),
    });
  if (given.statistics === undefined) yield* pass();
  const statistics = measureLayers(where, call, given.statistics, (measures) => finish(pass(measures)));
  commitCalls([call]);
  return { ...result, captured, patterns, statistics };
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
