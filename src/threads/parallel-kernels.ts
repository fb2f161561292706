// The kernels of an engine with threads: the same functions, which cut a call's range into tiles and run them on all
// threads. The bits stay, because no kernel lets a cut be seen. Tiles shrink towards the end of a call, so that threads
// of any speed end together; what is too little to share is called directly.

import { PANEL, TILE_ROWS } from "../../assembly/layout.ts";
import { workFloats } from "../forward/attend-segment.ts";
import { ATTENTION_SHAPE_AT, type AttentionShape, CACHE_SHAPE_AT, type KernelTable } from "../wasm/abi.ts";
import { aligned, type LinearMemory } from "../wasm/memory.ts";
import { shareLinears } from "./parallel-linear.ts";
import { fewest, type Load, rangesOf, type Span, STREAM_ROWS, share } from "./partition.ts";
import type { Team } from "./pool.ts";
import { TILES } from "./work-queue.ts";

/** What is too little to share, in floating-point operations of a matrix product: a core does some 50 a nanosecond. */
export interface Shares {
  /** Work of a call below which it is run by the calling thread alone. */
  readonly call: number;
  /** The least work of a tile. */
  readonly tile: number;
}

/** About 40 and 10 microseconds: several times what it takes to wake a worker, and to hand a tile out. */
export const SHARES: Shares = { call: 2 ** 21, tile: 2 ** 19 };

/** Rows of attention are cut at whole strips of 4 and of 6. */
const ATTENTION_ROWS = 12;

/** What an element costs where it is not multiplied, in the operations that take as long. */
const ROTATED = 16;
const NORMED = 8;
const COPIED = 24;
const SOFTMAXED = 40;
/** A product of the unfused kernels, which are plain loops, takes as long as so many. */
const UNFUSED = 4;

/** The counts of an AttentionShape: what the work of a call depends on. */
type Counts = Pick<
  AttentionShape,
  "qLen" | "kvLen" | "qStart" | "left" | "right" | "numHeads" | "numKvHeads" | "headDim" | "valueDim" | "formats"
>;

/** Reads them; the other fields of a shape are not read, because small calls go through here too. */
function countsAt(view: DataView, at: number): Counts {
  const read = (field: keyof Counts) => view.getInt32(at + ATTENTION_SHAPE_AT[field], true);
  return {
    qLen: read("qLen"),
    kvLen: read("kvLen"),
    qStart: read("qStart"),
    left: read("left"),
    right: read("right"),
    numHeads: read("numHeads"),
    numKvHeads: read("numKvHeads"),
    headDim: read("headDim"),
    valueDim: read("valueDim"),
    formats: read("formats"),
  };
}

/** Keys that the query at token t may attend, at most. */
function keysOf({ kvLen, qStart, left, right }: Counts, t: number): number {
  return Math.max(0, Math.min(kvLen, qStart + t + right + 1) - Math.max(0, qStart + t - left));
}

/** The work of `rows` rows of attention, of tokens all over the call. */
function attentionWork(shape: Counts, rows: number): number {
  const group = shape.numHeads / shape.numKvHeads;
  const keys = (keysOf(shape, 0) + keysOf(shape, shape.qLen - 1)) / 2;
  const streamed = Math.max(1, STREAM_ROWS / (shape.qLen * group));
  return 2 * rows * streamed * keys * (shape.headDim + shape.valueDim);
}

/**
 * The rows begin..end of attention_f32 in tiles: the last rows first, which see the most keys where it is causal, of one
 * kv head after the other, so that as many heads as possible are at work; whole heads where they have few rows.
 */
function attentionTiles(shape: Counts, begin: number, end: number, load: Load): Span[] {
  const { qLen, numHeads, numKvHeads } = shape;
  const rows = (qLen * numHeads) / numKvHeads;
  if (rows <= ATTENTION_ROWS || numKvHeads > TILES / 4) return rangesOf(begin, end, rows, 0, load);
  const least = fewest((end - begin) / ATTENTION_ROWS, load);
  const most = Math.max(least, TILE_ROWS / ATTENTION_ROWS);
  const heads: { from: number; to: number }[] = [];
  for (let head = 0; head < numKvHeads; head++) {
    const [from, to] = [Math.max(begin, head * rows), Math.min(end, (head + 1) * rows)];
    if (from < to) heads.push({ from, to });
  }
  const ranges: Span[] = [];
  let left = end - begin;
  while (left > 0)
    for (const head of heads) {
      const units = Math.min(most, share(Math.ceil(left / ATTENTION_ROWS), least, load.threads));
      const size = Math.min(head.to - head.from, units * ATTENTION_ROWS);
      if (size === 0) continue;
      ranges.push([head.to - size, head.to]);
      head.to -= size;
      left -= size;
    }
  return ranges;
}

/** The kernels `direct`, on all threads of the team where that pays. */
export function shareKernels(
  direct: KernelTable,
  memory: LinearMemory,
  team: Team,
  shares: Shares = SHARES,
): KernelTable {
  const pays = (work: number) => work >= shares.call && work > 0 && team.size > 1;
  const loadOf = (work: number): Load => ({ work, least: shares.tile, threads: team.size });
  const shapeAt = (at: number) => countsAt(memory.view(), at);
  /** A call whose range is cut and whose other arguments stay. */
  const run = (name: keyof KernelTable, args: readonly number[], ranges: readonly Span[], own = 0) =>
    team.run(
      name,
      own,
      ranges.map(([from, to]) => [...args, from, to]),
    );
  const attentionOf = (name: "attention_f32" | "attention_pages"): KernelTable[typeof name] => {
    const alone = direct[name];
    return (out, q, pages, scratch, at, begin, end) => {
      const shape = shapeAt(at);
      const work = attentionWork(shape, end - begin);
      if (!pays(work)) return alone(out, q, pages, scratch, at, begin, end);
      const bytes = aligned(4 * workFloats(shape));
      const own = team.own(bytes);
      if (own === undefined) return alone(out, q, pages, scratch, at, begin, end);
      run(name, [out, q, pages, own, at], attentionTiles(shape, begin, end, loadOf(work)), bytes);
    };
  };
  const appendOf = (name: "append_f32" | "append_pages"): KernelTable[typeof name] => {
    const alone = direct[name];
    return (pages, k, v, at, past, begin, end) => {
      const view = memory.view();
      const read = (field: keyof typeof CACHE_SHAPE_AT) => view.getInt32(at + CACHE_SHAPE_AT[field], true);
      const work = COPIED * (end - begin) * read("numKvHeads") * (read("headDim") + read("valueDim"));
      if (!pays(work)) return alone(pages, k, v, at, past, begin, end);
      // Panels of keys are written whole where all their keys are of one tile.
      run(name, [pages, k, v, at, past], rangesOf(begin, end, PANEL, past % PANEL, loadOf(work)));
    };
  };
  const scoresOf = (name: "scores_f32" | "scores_pages"): KernelTable[typeof name] => {
    const alone = direct[name];
    return (out, q, pages, at, head, stage, begin, end) => {
      const { kvLen, headDim } = shapeAt(at);
      const work = 2 * UNFUSED * (end - begin) * kvLen * headDim;
      if (!pays(work)) return alone(out, q, pages, at, head, stage, begin, end);
      run(name, [out, q, pages, at, head, stage], rangesOf(begin, end, 1, 0, loadOf(work)));
    };
  };
  return {
    ...direct,
    ...shareLinears(direct, team, pays, loadOf),
    attention_f32: attentionOf("attention_f32"),
    attention_pages: attentionOf("attention_pages"),
    append_f32: appendOf("append_f32"),
    append_pages: appendOf("append_pages"),
    rope_f32(x, cos, sin, numHeads, headDim, ropeDim, interleaved, stride, begin, end) {
      const work = ROTATED * (end - begin) * numHeads * ropeDim;
      if (!pays(work)) return direct.rope_f32(x, cos, sin, numHeads, headDim, ropeDim, interleaved, stride, begin, end);
      const args = [x, cos, sin, numHeads, headDim, ropeDim, interleaved, stride];
      run("rope_f32", args, rangesOf(begin, end, 1, 0, loadOf(work)));
    },
    rms_norm_f32(out, x, gain, n, stride, eps, begin, end) {
      const work = NORMED * (end - begin) * n;
      if (!pays(work)) return direct.rms_norm_f32(out, x, gain, n, stride, eps, begin, end);
      run("rms_norm_f32", [out, x, gain, n, stride, eps], rangesOf(begin, end, 1, 0, loadOf(work)));
    },
    scores_f32: scoresOf("scores_f32"),
    scores_pages: scoresOf("scores_pages"),
    masked_softmax_f32(out, scores, at, head, begin, end) {
      const work = SOFTMAXED * (end - begin) * shapeAt(at).kvLen;
      if (!pays(work)) return direct.masked_softmax_f32(out, scores, at, head, begin, end);
      run("masked_softmax_f32", [out, scores, at, head], rangesOf(begin, end, 1, 0, loadOf(work)));
    },
  };
}
