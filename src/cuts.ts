// The kernels of an engine with threads: the same functions, which cut a call's range into tiles and run them on all
// threads. The bits stay, because no kernel lets a cut be seen. Tiles shrink towards the end of a call, so that threads
// of any speed end together; what is too little to share is called directly.

import { PANEL, TILE_ROWS } from "../assembly/layout.ts";
import { ATTENTION_SHAPE_AT, type AttentionShape, CACHE_SHAPE_AT, type KernelTable, NULL } from "./abi.ts";
import { TILES } from "./control.ts";
import { aligned, type LinearMemory } from "./memory.ts";
import { workFloats } from "./segment.ts";
import type { Team } from "./team.ts";

/** What is too little to share, in floating-point operations of a matrix product: a core does some 50 a nanosecond. */
export interface Shares {
  /** Work of a call below which it is run by the calling thread alone. */
  readonly call: number;
  /** The least work of a tile. */
  readonly tile: number;
}

/** About 40 and 10 microseconds: several times what it takes to wake a worker, and to hand a tile out. */
export const SHARES: Shares = { call: 2 ** 21, tile: 2 ** 19 };

/** A projection of fewer rows takes as long as reading its weights, like one of so many. */
const STREAM_ROWS = 3;
/** Panels of a tile of many rows: a weight block of the kernel, or less where so few rows leave little to share. */
const BLOCK_PANELS = 16;
const SHORT_PANELS = 4;
/** Rows are cut at whole strips of 5 and of 6. */
const STRIP_ROWS = 30;
/** Up to so many rows weights are read once, and tiles are panels alone, at whole register tiles of 2, 3 and 4. */
const FEW_ROWS = 12;
const FEW_PANELS = 12;

/** Rows of attention are cut at whole strips of 4 and of 6. */
const ATTENTION_ROWS = 12;

/** What an element costs where it is not multiplied, in the operations that take as long. */
const ROTATED = 16;
const NORMED = 8;
const COPIED = 24;
const SOFTMAXED = 40;
/** A product of the unfused kernels, which are plain loops, takes as long as so many. */
const UNFUSED = 4;

/** A range of rows, of tokens or of panels. */
type Range = readonly [from: number, to: number];

/** A call's work, the least work of its tiles, and the threads to share it. */
interface Load {
  readonly work: number;
  readonly least: number;
  readonly threads: number;
}

/** The least units of a tile, of `units` in all; half of the tiles there is room for are left to other cuts. */
function fewest(units: number, { work, least }: Load): number {
  return Math.max(1, Math.ceil((units * least) / work), Math.ceil((2 * units) / TILES));
}

/** The units of the next tile when `left` are left: half of a thread's share. */
function share(left: number, least: number, threads: number): number {
  return Math.min(left, Math.max(least, Math.ceil(left / (2 * threads))));
}

/** Ranges that make up begin..end, cut at multiples of `unit` that are counted from -offset. */
function rangesOf(begin: number, end: number, unit: number, offset: number, load: Load): Range[] {
  const first = Math.floor((begin + offset) / unit);
  const last = Math.ceil((end + offset) / unit);
  const least = fewest(last - first, load);
  const ranges: Range[] = [];
  for (let at = first; at < last; ) {
    const next = at + share(last - at, least, load.threads);
    ranges.push([Math.max(begin, at * unit - offset), Math.min(end, next * unit - offset)]);
    at = next;
  }
  return ranges;
}

/** The tiles of a projection of many rows: some whole weight blocks, or some of the rows of one. */
function blocksOf(panels: number, rows: number, load: Load): { panels: Range; rows: Range }[] {
  const strips = Math.ceil(rows / STRIP_ROWS);
  const width = strips > 1 ? BLOCK_PANELS : SHORT_PANELS;
  const cells = strips * Math.ceil(panels / width);
  const least = fewest(cells, load);
  const tiles: { panels: Range; rows: Range }[] = [];
  for (let cell = 0; cell < cells; ) {
    const block = Math.floor(cell / strips);
    const strip = cell % strips;
    const size = share(cells - cell, least, load.threads);
    const blocks = strip === 0 ? Math.floor(size / strips) : 0;
    const stripEnd = blocks > 0 ? strips : Math.min(strips, strip + size);
    tiles.push({
      panels: [block * width, Math.min(panels, (block + Math.max(1, blocks)) * width)],
      rows: [strip * STRIP_ROWS, Math.min(rows, stripEnd * STRIP_ROWS)],
    });
    cell += blocks > 0 ? blocks * strips : stripEnd - strip;
  }
  return tiles;
}

/** The counts of an AttentionShape: what the work of a call depends on. */
type Counts = Pick<
  AttentionShape,
  "qLen" | "kvLen" | "qStart" | "left" | "right" | "numHeads" | "numKvHeads" | "headDim" | "valueDim"
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
function attentionTiles(shape: Counts, begin: number, end: number, load: Load): Range[] {
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
  const ranges: Range[] = [];
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
  const run = (name: keyof KernelTable, args: readonly number[], ranges: readonly Range[], own = 0) =>
    team.run(
      name,
      own,
      ranges.map(([from, to]) => [...args, from, to]),
    );
  return {
    ...direct,
    linear_f32(out, x, w, bias, panels, k, outStride, xStride, begin, end) {
      const rows = end - begin;
      const work = 2 * PANEL * panels * k * Math.max(rows, STREAM_ROWS);
      if (!pays(work)) return direct.linear_f32(out, x, w, bias, panels, k, outStride, xStride, begin, end);
      const tiles =
        rows > FEW_ROWS
          ? blocksOf(panels, rows, loadOf(work))
          : rangesOf(0, panels, FEW_PANELS, 0, loadOf(work)).map((range) => ({ panels: range, rows: [0, rows] }));
      const columns = 4 * PANEL;
      team.run(
        "linear_f32",
        0,
        tiles.map(({ panels: [panel, panelEnd], rows: [from, to] }) => {
          const start = bias === NULL ? NULL : bias + columns * panel;
          const sizes = [panelEnd - panel, k, outStride, xStride];
          return [out + columns * panel, x, w + columns * k * panel, start, ...sizes, begin + from!, begin + to!];
        }),
      );
    },
    attention_f32(out, q, pages, scratch, at, begin, end) {
      const shape = shapeAt(at);
      const work = attentionWork(shape, end - begin);
      if (!pays(work)) return direct.attention_f32(out, q, pages, scratch, at, begin, end);
      const bytes = aligned(4 * workFloats(shape.headDim, shape.valueDim));
      const own = team.own(bytes);
      if (own === undefined) return direct.attention_f32(out, q, pages, scratch, at, begin, end);
      run("attention_f32", [out, q, pages, own, at], attentionTiles(shape, begin, end, loadOf(work)), bytes);
    },
    append_f32(pages, k, v, at, past, begin, end) {
      const view = memory.view();
      const read = (field: keyof typeof CACHE_SHAPE_AT) => view.getInt32(at + CACHE_SHAPE_AT[field], true);
      const work = COPIED * (end - begin) * read("numKvHeads") * (read("headDim") + read("valueDim"));
      if (!pays(work)) return direct.append_f32(pages, k, v, at, past, begin, end);
      // Panels of keys are written whole where all their keys are of one tile.
      run("append_f32", [pages, k, v, at, past], rangesOf(begin, end, PANEL, past % PANEL, loadOf(work)));
    },
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
    scores_f32(out, q, pages, at, head, stage, begin, end) {
      const { kvLen, headDim } = shapeAt(at);
      const work = 2 * UNFUSED * (end - begin) * kvLen * headDim;
      if (!pays(work)) return direct.scores_f32(out, q, pages, at, head, stage, begin, end);
      run("scores_f32", [out, q, pages, at, head, stage], rangesOf(begin, end, 1, 0, loadOf(work)));
    },
    masked_softmax_f32(out, scores, at, head, begin, end) {
      const work = SOFTMAXED * (end - begin) * shapeAt(at).kvLen;
      if (!pays(work)) return direct.masked_softmax_f32(out, scores, at, head, begin, end);
      run("masked_softmax_f32", [out, scores, at, head], rangesOf(begin, end, 1, 0, loadOf(work)));
    },
  };
}
