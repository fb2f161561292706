// What is before the first layer and behind the last one: rows of tokens, and logits.

import { PANEL, ROUNDED } from "../../../assembly/layout.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import { copyRows, type RowRun } from "../../base/util/rows.ts";
import type { Steps, WaitingSteps } from "../../base/util/steps.ts";
import { wholePanels } from "../../layers/linear/formats.ts";
import type { Rows } from "../../layers/linear/products.ts";
import { pointer } from "../../wasm/memory.ts";
import { widthOfRows } from "../spec/spec.ts";
import type { BlockRows, PassPlan } from "./block.ts";
import { type LoadedModel, modelPointer, type ReadRow } from "./model.ts";
import { addRows, embedRows, normRows, projectRows, ROOT_HALF, type RowWork } from "./rows.ts";

// The rows that tokens begin with: those of the table, and what is added to them.

/** Tokens, of which the first has `past` others before it, and their types, by default 0. */
export interface EmbeddedTokens {
  readonly ids: Int32Array;
  readonly past: number;
  readonly types?: Int32Array | undefined;
  /** Rows [ids.length, dModel] instead of those of the table. */
  readonly rows?: Float32Array | undefined;
}

/** residual = the rows of a chunk's tokens; `readInputs` has given `inputRow`. */
export function* embedTokens(
  work: RowWork,
  { spec, weights }: Pick<LoadedModel, "spec" | "weights">,
  plan: Pick<PassPlan, "ids" | "positions" | "layerInputs">,
  { residual, branch, normed }: BlockRows,
  runs: readonly RowRun<EmbeddedTokens>[],
  count: number,
  inputRow: ReadRow | undefined,
): Steps {
  const { embed, embedNorm, positions, types, projectIn } = weights;
  const [ids, numbers] = [work.base + plan.ids, work.base + plan.positions];
  const write = (at: number, from: (of: EmbeddedTokens, token: number) => number) => {
    const to = work.kernels.memory.u32(at, count);
    for (const { of, begin, end, at } of runs)
      for (let token = begin; token < end; token++) to[at + token - begin] = from(of, token);
  };
  write(ids, (of, token) => of.ids[token] as number);
  const narrow = { at: branch.at, stride: embed.dim };
  const { projectLast, positions: { offset = 0, padding } = {} } = spec.embed;
  const rowOf = ({ ids, past }: EmbeddedTokens, token: number) => {
    if (padding === undefined) return past + token + offset;
    if (ids[token] === padding) return offset - 1;
    let row = offset;
    for (let i = 0; i < token; i++) row += Number(ids[i] !== padding);
    return row;
  };
  const [first, last] = projectLast ? [undefined, projectIn] : [projectIn, undefined];
  // What positions and types are added to.
  const rows = last ? narrow : residual;
  const added = last ? { at: normed.at, stride: embed.dim } : branch;
  if (runs[0]?.of.rows) {
    const { dModel } = spec;
    const to = work.kernels.memory.f32(residual.at, count * residual.stride);
    for (const { of, begin, end, at } of runs)
      copyRows(
        to,
        at * residual.stride,
        residual.stride,
        (of.rows as Float32Array).subarray(begin * dModel, end * dModel),
        dModel,
        dModel,
      );
  } else if (first) {
    embedRows(work, embed, ids, narrow, spec.embed.scale, count);
    yield* projectRows(work, [first], residual, narrow, count);
  } else embedRows(work, embed, ids, rows, spec.embed.scale, count);
  for (const [table, numberOf] of [
    [positions, rowOf],
    [types, (of: EmbeddedTokens, token: number) => of.types?.[token] ?? 0],
  ] as const) {
    if (!table) continue;
    write(numbers, numberOf);
    embedRows(work, table, numbers, added, 1, count);
    addRows(work, rows, rows, added, 1, count);
  }
  if (embedNorm) normRows(work, embedNorm, rows, rows, widthOfRows(spec), count);
  if (last) yield* projectRows(work, [last], residual, narrow, count);
  const { perLayer } = weights;
  if (perLayer) yield* writeLayerInputs(work, spec, perLayer, plan.layerInputs, residual, runs, count, inputRow);
}

/** The row of a token in the table of inputs of layers: tokens behind its end have that of the first. */
const inputRowOf = ({ embed }: LoadedModel["spec"], id: number): number => (id < (embed.perLayer?.rows ?? 0) ? id : 0);

/**
 * What reads the rows of a chunk's tokens from the table of inputs of layers, if there is one. It waits only for rows that are in a
 * file, by `wait`; a call that cannot wait is refused.
 */
export function* readInputs(
  where: string,
  { spec, weights }: LoadedModel,
  runs: readonly RowRun<EmbeddedTokens>[],
  wait: ((work: Promise<void>) => Promise<void>) | undefined,
): WaitingSteps<ReadRow | undefined> {
  const stored = weights.perLayer?.stored;
  if (!stored) return undefined;
  const rows = runs.flatMap(({ of, begin, end }) =>
    Array.from(of.ids.subarray(begin, end), (id) => inputRowOf(spec, id)),
  );
  let read = stored.held(rows);
  if (read) return read;
  if (!wait) {
    const rule = 'one of a model that was loaded with { perLayer: "resident" }, or an asynchronous call';
    throw new HeadwiseError(
      "NOT_RESIDENT",
      `${where}: session expected ${rule}, got one whose inputs of layers are in a file`,
    );
  }
  const reading = stored.fetch(where, rows).then((found) => {
    read = found;
  });
  yield wait(reading);
  return read;
}

/** Writes the inputs of all layers for the rows of a chunk: see PerLayerSpec. */
function* writeLayerInputs(
  work: RowWork,
  spec: LoadedModel["spec"],
  { projection, norm }: NonNullable<LoadedModel["weights"]["perLayer"]>,
  place: number,
  residual: Rows,
  runs: readonly RowRun<EmbeddedTokens>[],
  count: number,
  inputRow: ReadRow | undefined,
): Steps {
  const { base, kernels } = work;
  const { blocks, embed } = spec;
  const { dim, scale } = embed.perLayer as NonNullable<typeof embed.perLayer>;
  const inputs = { at: pointer.f32(base + place), stride: PANEL * projection.panels };
  yield* projectRows(work, [projection], inputs, residual, count);
  for (const { of, begin, end, at } of runs)
    for (let token = begin; token < end; token++) {
      const to = pointer.f32(inputs.at + 4 * (at + token - begin) * inputs.stride);
      kernels.table.rms_norm_f32(to, to, norm.gain, dim, dim, norm.eps, 0, blocks.length);
      if (!inputRow) continue;
      const own = inputRow(inputRowOf(spec, of.ids[token] as number));
      const floats = kernels.memory.f32(to, own.length);
      for (let i = 0; i < own.length; i++) floats[i] = ROOT_HALF * ((floats[i] as number) + scale * (own[i] as number));
    }
}

// The last rows of a decoder: norm, head, and what is read of the logits.

/** The logits of one output in linear memory, until the next one is given. */
export interface OutputRow {
  /** Which output, counted over all calls. */
  readonly output: number;
  readonly vocabSize: number;
  /** All logits [vocabSize]: a view, which may be changed. */
  logits(): Float32Array;
  /** The largest logit, and the sum of the exponentials of all less the largest. */
  sums(): { readonly largest: number; readonly sum: number };
  /** Divides all logits. */
  divide(by: number): void;
  /** The `k` largest and their ids, descending; of equal ones the lower id first. */
  top(k: number): { readonly values: Float32Array; readonly ids: Int32Array };
}

/** Takes outputs one after the other. */
export type OutputSink = (row: OutputRow) => void;

/** A row of a chunk that becomes logits, and which output it is. */
interface OutputPlace {
  readonly row: number;
  readonly output: number;
}

/**
 * Computes the logits of some rows of a chunk, and gives them to `sink`. The residual is not needed afterwards. `transform` computes
 * what the head reads.
 */
export function* runHead(
  work: RowWork,
  { spec, weights }: LoadedModel,
  plan: Omit<PassPlan, "attention">,
  { residual, normed }: BlockRows,
  outputs: readonly OutputPlace[],
  sink: OutputSink,
  transform?: (to: Rows, from: Rows, rows: number) => Steps,
): Steps {
  const { kernels, base } = work;
  const { memory, table } = kernels;
  const { finalNorm, projectOut, head } = weights;
  const { stride } = residual;
  const vocabulary = PANEL * head.panels;
  const logits: Rows = { at: pointer.f32(base + plan.logits), stride: vocabulary };
  for (let first = 0; first < outputs.length; first += plan.headRows) {
    const part = outputs.slice(first, first + plan.headRows);
    const count = part.length;
    for (const [i, { row }] of part.entries())
      memory.f32(normed.at + 4 * i * stride, stride).set(memory.f32(residual.at + 4 * row * stride, stride));
    if (finalNorm) normRows(work, finalNorm, normed, normed, spec.dModel, count);
    let from = normed;
    const narrow = { at: pointer.f32(base + plan.narrow), stride: wholePanels(spec.embed.dim) };
    if (projectOut) yield* projectRows(work, [projectOut], narrow, normed, count);
    if (transform) yield* transform(narrow, normed, count);
    if (projectOut || transform) from = narrow;
    yield* projectRows({ ...work, mode: work.mode & ~ROUNDED }, [head], logits, from, count);
    const { scale, softcap } = spec.head;
    if (scale !== 1 || softcap !== 0)
      table.cap_logits_f32(logits.at, spec.vocabSize, vocabulary, scale, softcap, 0, count);
    for (const [i, { output }] of part.entries())
      sink(outputRow(work, plan, logits.at + 4 * i * vocabulary, spec.vocabSize, output));
  }
}

function outputRow(
  { kernels, base }: RowWork,
  { topValues, topIds }: Pick<PassPlan, "topValues" | "topIds">,
  at: number,
  vocabSize: number,
  output: number,
): OutputRow {
  const { memory, table } = kernels;
  const x = pointer.f32(at);
  const [values, ids] = [pointer.f32(base + topValues), modelPointer.i32(base + topIds)];
  return {
    output,
    vocabSize,
    logits: () => memory.f32(at, vocabSize),
    sums() {
      table.softmax_sums_f32(values, x, vocabSize, vocabSize, 0, 1);
      const found = memory.f32(values, 2);
      return { largest: found[0] as number, sum: found[1] as number };
    },
    divide: (by) => table.cap_logits_f32(x, vocabSize, vocabSize, 1 / by, 0, 0, 1),
    top(k) {
      table.top_k_f32(values, ids, x, vocabSize, vocabSize, k, 0, 1);
      return { values: memory.f32(values, k).slice(), ids: Int32Array.from(memory.u32(ids, k)) };
    },
  };
}
