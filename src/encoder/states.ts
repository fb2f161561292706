// The outputs of an encoder as rows.

import type { Model } from "../decoder/model.ts";
import { normRows } from "../decoder/rows.ts";
import type { Output } from "./pass.ts";

/** Takes rows of states, `stride` floats apart, from row `begin` of a sequence on: a view. */
export type RowSink = (sequence: number, begin: number, count: number, rows: Float32Array, stride: number) => void;

/** Gives the states of all rows to `sink`, after the last norm where there is one. */
export const statesTo = (model: Model, sink: RowSink): Output => ({
  logits: 0,
  // biome-ignore lint/correctness/useYield: a step of an output may have yields.
  *take(work, _plan, { runs, rows: { residual }, count }) {
    const { spec, weights } = model.encoder ?? model;
    if (weights.finalNorm) normRows(work, weights.finalNorm, residual, residual, spec.dModel, count);
    const { at: from, stride } = residual;
    for (const { of, begin, end, at } of runs)
      sink(
        of.sequence,
        begin,
        end - begin,
        model.kernels.memory.f32(from + 4 * at * stride, (end - begin) * stride),
        stride,
      );
  },
});
