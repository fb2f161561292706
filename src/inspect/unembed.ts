import { blockRows } from "../decoder/block.ts";
import { type OutputSink, runHead } from "../decoder/head.ts";
import type { Model } from "../decoder/model.ts";
import { planPass } from "../decoder/scratch.ts";
import { chunksOf, copyRows } from "../util/rows.ts";
import { finish, type Steps } from "../util/steps.ts";

/** Rows that go through the head at once: what large vocabularies take some hundred milliseconds for. */
const MOST_ROWS = 64;

/** Takes rows [dModel] through the final norm and the head. */
export function unembed(where: string, model: Model, rows: readonly Float32Array[], sink: OutputSink): void {
  finish(unembedSteps(where, model, rows, sink));
}

/** `unembed` in steps, each of which yields how many rows it took. */
export function* unembedSteps(where: string, model: Model, rows: readonly Float32Array[], sink: OutputSink): Steps {
  const { kernels, spec, places, weights, dModel } = model;
  const { memory } = kernels;
  const most = Math.min(rows.length, MOST_ROWS);
  const plan = planPass(spec, places, { rows: most, outputs: most }, () => undefined);
  for (const [begin, end] of chunksOf(rows.length, most)) {
    const base = memory.scratch(where, plan.bytes);
    const work = { kernels, base, shape: plan.shape, linear: plan.linear, mode: weights.mode, stepFlops: Infinity };
    const own = blockRows(plan, base);
    const to = memory.f32(own.residual.at, most * plan.stride);
    for (let i = begin; i < end; i++)
      copyRows(to, (i - begin) * plan.stride, plan.stride, rows[i] as Float32Array, dModel, dModel);
    const outputs = Array.from({ length: end - begin }, (_, row) => ({ row, output: begin + row }));
    finish(runHead(work, model, plan, own, outputs, sink));
    yield end - begin;
  }
}
