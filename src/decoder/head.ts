// The last rows of a decoder: norm, head, and what is read of the logits.

import { PANEL } from "../../assembly/layout.ts";
import { wholePanels } from "../linear/formats.ts";
import type { Rows } from "../linear/linear.ts";
import type { Steps } from "../util/steps.ts";
import { pointer } from "../wasm/memory.ts";
import type { BlockRows } from "./block.ts";
import type { Model } from "./model.ts";
import { modelPointer } from "./pointers.ts";
import { normRows, projectRows, type RowWork } from "./rows.ts";
import type { PassPlan } from "./scratch.ts";

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
export interface OutputPlace {
  readonly row: number;
  readonly output: number;
}

/**
 * Computes the logits of some rows of a chunk, and gives them to `sink`. The residual is not needed afterwards. `transform` computes
 * what the head reads.
 */
export function* runHead(
  work: RowWork,
  { spec, weights }: Model,
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
    yield* projectRows(work, [head], logits, from, count);
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
      const [largest = 0, sum = 0] = memory.f32(values, 2);
      return { largest, sum };
    },
    divide: (by) => table.cap_logits_f32(x, vocabSize, vocabSize, 1 / by, 0, 0, 1),
    top(k) {
      table.top_k_f32(values, ids, x, vocabSize, vocabSize, k, 0, 1);
      return { values: memory.f32(values, k).slice(), ids: Int32Array.from(memory.u32(ids, k)) };
    },
  };
}
