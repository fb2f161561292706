// The path "expanded": the keys and values of some heads are computed from all latents into pages of their own, and
// attention_f32 runs on them. Expanding a latent costs as much as some hundred queries save.

import { appendRows, storeRows } from "../../cache/append-gather.ts";
import { createPageLayout } from "../../cache/page-layout.ts";
import { makePages, type Pages, pageTable } from "../../cache/pages.ts";
import type { CheckedLatentConfig } from "../../latent/config.ts";
import type { Rows } from "../../linear/linear.ts";
import { CHUNK_ROWS, chunksOf } from "../../util/rows.ts";
import type { Steps } from "../../util/steps.ts";
import { NULL } from "../../wasm/abi.ts";
import { pointer } from "../../wasm/memory.ts";
import { attendSegment, type CallShape, callShape, readScores } from "../attend-segment.ts";
import { segmentsOf } from "../layer-steps.ts";
import type { PassCall } from "../pass.ts";
import { expandedHeads, expandedStrides, stridesOf } from "./scratch.ts";
import { type LatentRuns, type LatentWork, multiply, projectOutputs, projectQueries, readLatents } from "./steps.ts";

/** The call shape of `heads` heads. */
export function expandedShape(config: CheckedLatentConfig, heads: number): CallShape {
  const { headDim, valueDim } = config;
  const { q, heads: out } = stridesOf(config);
  return callShape(
    { numHeads: heads, numKvHeads: heads, headDim, valueDim },
    config,
    { slopes: NULL, sinks: NULL },
    { qStride: q, qHeadStride: headDim, outStride: out, outHeadStride: valueDim },
  );
}

/**
 * How many heads a call expands at a time: all if a mask or a map tells them apart. With a cache, as many as fit when it is
 * full, so that the first call takes no more scratch than the last.
 */
export function groupOf(
  config: CheckedLatentConfig,
  { cache, target, masks }: PassCall["call"],
  maps: boolean,
): number {
  return expandedHeads(config, cache?.maxSeqLen ?? target.kvLen, maps || masks.perHead);
}

/** Projects the queries of a chunk, attends to expanded keys, and writes the projected outputs to the ys. */
export function* attendExpanded(work: LatentWork, runs: LatentRuns, x: Rows): Steps {
  const { attention, places, base, block, stepFlops, maps } = work;
  const { kernels, config } = attention;
  const { numHeads, headDim, valueDim } = config;
  const strides = stridesOf(config);
  yield* projectQueries(work, runs, x);
  for (const run of runs) {
    const { call, pages } = run.of;
    const group = groupOf(config, call, maps !== undefined);
    // Segments are whole sequences, each of which is expanded once.
    for (const { at, ...placed } of segmentsOf(call, run, false, Infinity)) {
      const { position, begin, end, kvLen } = placed;
      const keys = config.causal ? Math.min(kvLen, position + end - begin) : kvLen;
      if (keys <= 0) {
        kernels.memory.f32(base + places.heads + 4 * at * strides.heads, (end - begin) * strides.heads).fill(0);
        continue;
      }
      for (const [head, behind] of chunksOf(numHeads, group)) {
        const sizes = { numKvHeads: behind - head, headDim, valueDim };
        const layout = createPageLayout(sizes);
        const expanded = makePages(kernels, block, layout, 1, maps ? call.target.kvLen : keys);
        yield* expand(work, pages, placed.batchRow, expanded, head, maps ? call.target.kvLen : keys);
        const segment = {
          ...placed,
          kvLen: Math.min(kvLen, maps ? kvLen : keys),
          q: pointer.f32(base + places.q + 4 * (at * strides.q + head * headDim)),
          out: pointer.f32(base + places.heads + 4 * (at * strides.heads + head * valueDim)),
          pages: pageTable(expanded, 0),
          layout,
        };
        const shape = expandedShape(config, behind - head);
        yield* attendSegment(kernels, base, places.segment, shape, call.masks, call.target, segment, stepFlops);
        if (maps) readScores(kernels, base, places.segment, shape, call.masks, call.target, segment, 3, maps);
      }
    }
  }
  yield* projectOutputs(work, runs);
}

/** Computes keys and values of heads `head`.. from the first `count` latents of a sequence, into `to`. */
function* expand(work: LatentWork, from: Pages, batchRow: number, to: Pages, head: number, count: number): Steps {
  const { attention, places, base } = work;
  const { kernels, config, latents } = attention;
  const { headDim, valueDim, nopeDim, ropeDim } = config;
  const { numKvHeads: heads } = to.layout;
  const { rank } = stridesOf(config);
  const strides = expandedStrides(config, heads);
  for (const [begin, end] of chunksOf(count, CHUNK_ROWS)) {
    const rows = end - begin;
    const read = readLatents(work, from, batchRow, begin, rows);
    const [keysAt, valuesAt] = [base + places.keys, base + places.values];
    for (let h = 0; h < heads; h++) {
      const k = { at: pointer.f32(keysAt + 4 * h * headDim), stride: strides.keys };
      const v = { at: pointer.f32(valuesAt + 4 * h * valueDim), stride: strides.values };
      yield* multiply(work, latents.kExpanded[head + h] as (typeof latents.kExpanded)[number], k, read, rows);
      yield* multiply(work, latents.v[head + h] as (typeof latents.v)[number], v, read, rows);
    }
    const tokens = kernels.memory.f32(read.at, rows * read.stride);
    const keys = kernels.memory.f32(keysAt, rows * strides.keys);
    for (let t = 0; t < rows; t++) {
      const rotated = tokens.subarray(t * read.stride + rank, t * read.stride + rank + ropeDim);
      for (let h = 0; h < heads; h++) keys.set(rotated, t * strides.keys + h * headDim + nopeDim);
    }
    const shape = storeRows(kernels, base + places.keyRows, to.layout, {
      ...{ kStride: strides.keys, kHeadStride: headDim, vStride: strides.values, vHeadStride: valueDim },
    });
    appendRows(kernels, to, 0, shape, { k: pointer.f32(keysAt), v: pointer.f32(valuesAt) }, begin, rows);
  }
}
