// The path "absorbed": queries are multiplied with W_uk of their head, so they are scored against latents themselves, one
// key for all heads whose greater part is the value too. Outputs are sums of latents, which W_uv of their head turns into values.

import { appendRows, storeRows } from "../../cache/append-gather.ts";
import { createPageLayout } from "../../cache/page-layout.ts";
import { pagesAt, pageTable } from "../../cache/pages.ts";
import type { CheckedLatentConfig } from "../../latent/config.ts";
import type { Rows } from "../../linear/linear.ts";
import { CHUNK_ROWS, chunksOf, rowsIn } from "../../util/rows.ts";
import type { Steps } from "../../util/steps.ts";
import { NULL } from "../../wasm/abi.ts";
import { pointer } from "../../wasm/memory.ts";
import { attendSegment, type CallShape, callShape, readScores, type Segment } from "../attend-segment.ts";
import { type LayerCall, type Runs, segmentsOf } from "../layer-steps.ts";
import { floatKeySizes, stridesOf } from "./scratch.ts";
import { type LatentWork, multiply, projectOutputs, projectQueries, readLatents } from "./steps.ts";

/** The sizes that attention_latents sees. */
export function absorbedSizes(config: CheckedLatentConfig): { headDim: number; valueDim: number } {
  return { headDim: stridesOf(config).dim, valueDim: config.kvLoraRank };
}

export function absorbedShape(config: CheckedLatentConfig): CallShape {
  const { numHeads } = config;
  const { rank, dim } = stridesOf(config);
  return callShape(
    { numHeads, numKvHeads: 1, ...absorbedSizes(config) },
    config,
    { slopes: NULL, sinks: NULL },
    { qStride: numHeads * dim, qHeadStride: dim, outStride: numHeads * rank, outHeadStride: rank },
  );
}

/** Projects the queries of a chunk, attends to the latents, and writes the projected outputs to `out`. */
export function* attendAbsorbed(work: LatentWork, runs: Runs, { x, out }: { x: Rows; out: Rows }): Steps {
  const { attention, places, base, stepFlops, maps, stage = 3, measure, trace } = work;
  const { kernels, config, latents } = attention;
  const { headDim, valueDim } = config;
  const strides = stridesOf(config);
  const shape = absorbedShape(config);
  const rows = rowsIn(runs);
  yield* projectQueries(work, runs, x);
  for (const [head, linear] of latents.kAbsorbed.entries()) {
    const q = { at: pointer.f32(base + places.q + 4 * head * headDim), stride: strides.q };
    const to = base + places.queries + 4 * head * strides.dim;
    yield* multiply(work, linear, { at: pointer.f32(to), stride: shape.qStride }, q, rows);
  }
  copyRotated(work, rows);
  trace?.("absorbed", { at: pointer.f32(base + places.queries), stride: shape.qStride });
  for (const run of runs) {
    const { tokens, pages } = run.of;
    const { masks, target } = tokens;
    for (const { at, ...placed } of segmentsOf(tokens, run, false, stepFlops)) {
      const segment = {
        ...placed,
        q: pointer.f32(base + places.queries + 4 * at * shape.qStride),
        out: pointer.f32(base + places.sums + 4 * at * shape.outStride),
        pages: pageTable(pages, placed.batchRow),
        layout: pages.layout,
      };
      const settings = [kernels, base, places.segment] as const;
      if (maps || measure) {
        const seen = { ...segment, ...floatKeys(work, run.of, segment, maps ? target.kvLen : endOf(shape, segment)) };
        const own = { ...shape, valueDim: floatKeySizes(config).valueDim };
        if (maps) readScores(...settings, own, masks, target, seen, stage, maps);
        // What this writes to `out` is overwritten by the sums.
        if (measure) yield* attendSegment(...settings, own, masks, target, seen, stepFlops, measure);
      }
      yield* attendSegment(...settings, shape, masks, target, segment, stepFlops);
    }
  }
  trace?.("sums", { at: pointer.f32(base + places.sums), stride: shape.outStride });
  for (const [head, linear] of latents.v.entries()) {
    const sums = { at: pointer.f32(base + places.sums + 4 * head * strides.rank), stride: shape.outStride };
    const to = base + places.heads + 4 * head * valueDim;
    yield* multiply(work, linear, { at: pointer.f32(to), stride: strides.heads }, sums, rows);
  }
  yield* projectOutputs(work, rows, out);
}

/** Copies the rotated part of each query behind the part for latents, with zeros where latents have padding. */
function copyRotated({ attention, places, base }: LatentWork, rows: number): void {
  const { kernels, config } = attention;
  const { numHeads, headDim, nopeDim, ropeDim, kvLoraRank } = config;
  const { rank, dim, q: stride } = stridesOf(config);
  const q = kernels.memory.f32(base + places.q, rows * stride);
  const queries = kernels.memory.f32(base + places.queries, rows * numHeads * dim);
  for (let r = 0; r < rows; r++)
    for (let head = 0; head < numHeads; head++) {
      const from = r * stride + head * headDim + nopeDim;
      const to = (r * numHeads + head) * dim + rank;
      queries.set(q.subarray(from, from + ropeDim), to);
      // Products with what rounds the rank up are 0, but NaN where the query is not finite.
      queries.fill(0, to - rank + kvLoraRank, to);
      queries.fill(0, to + ropeDim, to - rank + dim);
    }
}

/** The end of the keys that a segment may attend. */
function endOf({ right }: CallShape, { position, begin, end, kvLen }: Omit<Segment, "pages" | "layout">): number {
  return Math.min(kvLen, position + end - begin + right);
}

/** The first `count` keys of a segment in pages of float32, from which its weights are read and measured. */
function floatKeys(
  work: LatentWork,
  { tokens, pages }: LayerCall,
  { batchRow }: Segment,
  count: number,
): Pick<Segment, "pages" | "layout"> {
  const { attention, places, base } = work;
  const { kernels, config } = attention;
  const sizes = floatKeySizes(config);
  const layout = createPageLayout(sizes);
  const keys = pagesAt(kernels, work.block, layout, 1, tokens.target.kvLen);
  for (const [begin, end] of chunksOf(count, CHUNK_ROWS)) {
    const { at, stride } = readLatents(work, pages, batchRow, begin, end - begin);
    const strides = { kStride: stride, kHeadStride: 0, vStride: stride, vHeadStride: 0 };
    const rows = storeRows(kernels, base + places.keyRows, sizes, strides);
    appendRows(kernels, keys, 0, rows, { k: at, v: at }, begin, end - begin);
  }
  return { pages: pageTable(keys, 0), layout };
}
