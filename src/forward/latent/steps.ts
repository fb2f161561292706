// The steps of a pass of latent attention that both paths have.

import type { Attention } from "../../attention/attention.ts";
import { appendRows, gatherRows, storeRows } from "../../cache/append-gather.ts";
import type { Pages } from "../../cache/pages.ts";
import type { CheckedLatentConfig } from "../../latent/config.ts";
import type { LatentLayer } from "../../latent/packed-latent.ts";
import { type PackedLinear, prepareInput, project, type Rows } from "../../linear/linear.ts";
import { rowsIn, tokenRunsOf } from "../../util/rows.ts";
import type { Steps } from "../../util/steps.ts";
import { pointer } from "../../wasm/memory.ts";
import type { Measure, ScoreStage } from "../attend-segment.ts";
import type { Runs } from "../layer-steps.ts";
import { fillTables, rotateHeads } from "../rotary-steps.ts";
import type { LatentSite, Tap } from "../tap.ts";
import { type LatentPlaces, stridesOf } from "./scratch.ts";

/** What a pass needs of a layer of latent attention. */
export interface LatentParts extends Pick<Attention, "kernels" | "pageShape" | "rotary"> {
  readonly config: CheckedLatentConfig;
  readonly latents: LatentLayer;
}

/** A layer, and the scratch that it works in. */
export interface LatentWork {
  readonly attention: LatentParts;
  readonly places: LatentPlaces;
  /** The address of the scratch. */
  readonly base: number;
  /** The address of the block: see `blockBytes`. */
  readonly block: number;
  readonly stepFlops: number;
  /** [batch, numHeads, qLen, kvLen] for the scores of a single call at `stage`, by default the softmax weights. */
  readonly maps: Float32Array | undefined;
  readonly stage?: ScoreStage | undefined;
  readonly tap?: Tap | undefined;
  readonly trace?: Tap<LatentSite> | undefined;
  readonly measure?: Measure | undefined;
}

/** Projects rows `from`, to `to`. */
export function* multiply(work: LatentWork, linear: PackedLinear, to: Rows, from: Rows, rows: number): Steps {
  const { attention, places, base, stepFlops } = work;
  const { kernels, latents } = attention;
  const input = prepareInput(kernels, [linear], from, rows, latents.mode, places.linear, base);
  yield* project(kernels, linear, to, input, rows, stepFlops);
}

/** Computes the latents and rotated keys of a chunk, and appends them. */
export function* appendLatents(work: LatentWork, runs: Runs, x: Rows): Steps {
  const { attention, places, base } = work;
  const { kernels, config, latents } = attention;
  const { kvLoraRank, ropeDim, normEps } = config;
  const { kv: stride } = stridesOf(config);
  const rows = rowsIn(runs);
  const kv = { at: pointer.f32(base + places.kv), stride };
  yield* multiply(work, latents.kvDown, kv, x, rows);
  work.tap?.("k", kv);
  if (latents.kvNorm) kernels.table.rms_norm_f32(kv.at, kv.at, latents.kvNorm, kvLoraRank, stride, normEps, 0, rows);
  fillTables(work, runs, ({ tokens }) => tokens.positions);
  rotateHeads(work, kv.at + 4 * kvLoraRank, 1, ropeDim, stride, rows);
  work.trace?.("latents", kv);
  const strides = { kStride: stride, kHeadStride: 0, vStride: stride, vHeadStride: 0 };
  const shape = storeRows(kernels, base + places.keyRows, attention.pageShape, strides);
  for (const run of runs) {
    const { tokens, pages } = run.of;
    for (const { batchRow, from, to, at } of tokenRunsOf(run, tokens.qLen)) {
      const k = pointer.f32(kv.at + 4 * at * stride);
      const v = pointer.f32(k + 4 * kvLoraRank);
      appendRows(kernels, pages, batchRow, shape, { k, v }, tokens.past + from, to - from);
    }
  }
}

/** Projects and rotates the queries of a chunk. */
export function* projectQueries(work: LatentWork, runs: Runs, x: Rows): Steps {
  const { attention, places, base } = work;
  const { kernels, config, latents } = attention;
  const { numHeads, headDim, nopeDim, qLoraRank, normEps } = config;
  const strides = stridesOf(config);
  const rows = rowsIn(runs);
  let from = x;
  if (latents.qDown) {
    from = { at: pointer.f32(base + places.qDown), stride: strides.qDown };
    yield* multiply(work, latents.qDown, from, x, rows);
    if (latents.qNorm)
      kernels.table.rms_norm_f32(from.at, from.at, latents.qNorm, qLoraRank, strides.qDown, normEps, 0, rows);
  }
  const q = { at: pointer.f32(base + places.q), stride: strides.q };
  yield* multiply(work, latents.q, q, from, rows);
  work.tap?.("q", q);
  fillTables(work, runs, ({ tokens }) => tokens.positions);
  rotateHeads(work, base + places.q + 4 * nopeDim, numHeads, headDim, strides.q, rows);
  work.trace?.("rotated", q);
}

/**
 * Reads `count` tokens of a sequence back: latents, and behind each its rotated key, [count, dim] with zeros where both have
 * padding. Returns the address.
 */
export function readLatents(work: LatentWork, pages: Pages, batchRow: number, position: number, count: number): Rows {
  const { attention, places, base } = work;
  const { kernels, config, pageShape } = attention;
  const { dim, rank } = stridesOf(config);
  const at = base + places.read;
  if (rank !== config.kvLoraRank || dim - rank !== config.ropeDim) kernels.memory.f32(at, count * dim).fill(0);
  const strides = { kStride: dim, kHeadStride: 0, vStride: dim, vHeadStride: 0 };
  const shape = storeRows(kernels, base + places.keyRows, pageShape, strides);
  const rows = { k: pointer.f32(at), v: pointer.f32(at + 4 * rank) };
  gatherRows(kernels, pages, batchRow, shape, rows, position, count);
  return { at: rows.k, stride: dim };
}

/** Projects the outputs of the heads of a chunk's rows to `out`, in whole panels. */
export function* projectOutputs(work: LatentWork, rows: number, out: Rows): Steps {
  const { attention, places, base } = work;
  const heads = { at: pointer.f32(base + places.heads), stride: stridesOf(attention.config).heads };
  work.tap?.("z", heads);
  yield* multiply(work, attention.latents.o, out, heads, rows);
}
