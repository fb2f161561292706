import { blockRows } from "../decoder/block.ts";
import { type OutputSink, runHead } from "../decoder/head.ts";
import type { Model } from "../decoder/model.ts";
import { planPass } from "../decoder/scratch.ts";
import { CHUNK_ROWS, chunksOf, copyRows } from "../util/rows.ts";
import { finish } from "../util/steps.ts";

/** Takes rows [n, dModel] through the final norm and the head. */
export function unembed(where: string, model: Model, rows: Float32Array, sink: OutputSink): void {
  const { kernels, spec, places, weights, dModel } = model;
  const count = rows.length / dModel;
  const most = Math.min(count, CHUNK_ROWS);
  const plan = planPass(spec, places, { rows: most, outputs: most }, () => undefined);
  for (const [begin, end] of chunksOf(count, most)) {
    const base = kernels.memory.scratch(where, plan.bytes);
    const work = { kernels, base, shape: plan.shape, linear: plan.linear, mode: weights.mode, stepFlops: Infinity };
    const own = blockRows(plan, base);
    const to = kernels.memory.f32(own.residual.at, most * plan.stride);
    copyRows(to, 0, plan.stride, rows.subarray(begin * dModel, end * dModel), dModel, dModel);
    const outputs = Array.from({ length: end - begin }, (_, row) => ({ row, output: begin + row }));
    finish(runHead(work, model, plan, own, outputs, sink));
  }
}
