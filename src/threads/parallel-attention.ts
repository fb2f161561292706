// How rows of attention are shared among threads (see parallel-kernels.ts).

import { TILE_ROWS } from "../../assembly/layout.ts";
import { ATTENTION_SHAPE_AT, type AttentionShape } from "../wasm/abi.ts";
import { fewest, type Load, rangesOf, type Span, STREAM_ROWS, share } from "./partition.ts";
import { TILES } from "./work-queue.ts";

/** Rows of attention are cut at whole strips of 4 and of 6. */
const ATTENTION_ROWS = 12;

/** The counts of an AttentionShape: what the work of a call depends on. */
export type Counts = Pick<
  AttentionShape,
  "qLen" | "kvLen" | "qStart" | "left" | "right" | "numHeads" | "numKvHeads" | "headDim" | "valueDim" | "formats"
>;

/** Reads them; the other fields of a shape are not read, because small calls go through here too. */
export function countsAt(view: DataView, at: number): Counts {
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
export function keysOf({ kvLen, qStart, left, right }: Counts, t: number): number {
  return Math.max(0, Math.min(kvLen, qStart + t + right + 1) - Math.max(0, qStart + t - left));
}

/** The work of `rows` rows of attention, of tokens all over the call. */
export function attentionWork(shape: Counts, rows: number): number {
  const group = shape.numHeads / shape.numKvHeads;
  const keys = (keysOf(shape, 0) + keysOf(shape, shape.qLen - 1)) / 2;
  const streamed = Math.max(1, STREAM_ROWS / (shape.qLen * group));
  return 2 * rows * streamed * keys * (shape.headDim + shape.valueDim);
}

/**
 * The rows begin..end of attention_f32 in tiles: the last rows first, which see the most keys where it is causal, of one
 * kv head after the other, so that as many heads as possible are at work; whole heads where they have few rows.
 */
export function attentionTiles(shape: Counts, begin: number, end: number, load: Load): Span[] {
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
