// How projections are shared among threads (see parallel-kernels.ts): a tile is some panels by some rows, with a shape of
// its own that has so many panels.

import { MINS_SCRATCH, PANEL } from "../../assembly/layout.ts";
import { kernelScratchBytes, minBytesOf, panelBytes, q8FormatOf, sumBytes } from "../linear/formats.ts";
import { LINEAR_SHAPE_AT, type LinearShape, NULL, storeLinearShape } from "../wasm/abi.ts";
import {
  fewest,
  type Load,
  type Parallel,
  type ParallelScratch,
  rangesOf,
  type Span,
  STREAM_ROWS,
  share,
} from "./partition.ts";

/** Panels of a tile of many rows: a weight block of the kernel, or less where so few rows leave little to share. */
const BLOCK_PANELS = 16;
const SHORT_PANELS = 4;
/** Up to so many rows weights are read once, and tiles are panels alone, at whole register tiles of 2, 3 and 4. */
const FEW_ROWS = 12;
const FEW_PANELS = 12;

/** What sharing depends on: rows that the kernel takes in whole strips, and what takes how long where float32 takes 1. */
interface Costs {
  readonly stripRows: number;
  readonly product: number;
  readonly stream: number;
}

const COSTS: Readonly<Record<"f32" | "f16" | "q8" | "q4", Costs>> = {
  f32: { stripRows: 32, product: 1, stream: 1 },
  f16: { stripRows: 30, product: 1, stream: 0.5 },
  q8: { stripRows: 32, product: 0.5, stream: 0.3 },
  q4: { stripRows: 32, product: 0.5, stream: 0.2 },
};

/** The arguments of a projection: out, x, w, its sums or the kernel's scratch if there are any, bias, shape, begin, end. */
type Arguments = readonly number[];

const { panels: PANELS, k: DEPTH } = LINEAR_SHAPE_AT;

function shapeAt(view: DataView, at: number): LinearShape {
  const read = (field: keyof LinearShape) => view.getInt32(at + LINEAR_SHAPE_AT[field], true);
  return {
    panels: read("panels"),
    k: read("k"),
    outStride: read("outStride"),
    xStride: read("xStride"),
    bf16: read("bf16"),
    block: read("block"),
    mode: read("mode"),
    zero: read("zero"),
  };
}

/** The tiles of a projection of many rows: some whole weight blocks, or some of the rows of one. */
function blocksOf(panels: number, rows: number, load: Load, stripRows: number): { panels: Span; rows: Span }[] {
  const strips = Math.ceil(rows / stripRows);
  const width = strips > 1 ? BLOCK_PANELS : SHORT_PANELS;
  const cells = strips * Math.ceil(panels / width);
  const least = fewest(cells, load);
  const tiles: { panels: Span; rows: Span }[] = [];
  for (let cell = 0; cell < cells; ) {
    const block = Math.floor(cell / strips);
    const strip = cell % strips;
    const size = share(cells - cell, least, load.threads);
    const blocks = strip === 0 ? Math.floor(size / strips) : 0;
    const stripEnd = blocks > 0 ? strips : Math.min(strips, strip + size);
    tiles.push({
      panels: [block * width, Math.min(panels, (block + Math.max(1, blocks)) * width)],
      rows: [strip * stripRows, Math.min(rows, stripEnd * stripRows)],
    });
    cell += blocks > 0 ? blocks * strips : stripEnd - strip;
  }
  return tiles;
}

/** How projections are shared, by the format of their weights; those of 8 bits have blocks of any length. */
export function projection(format: keyof typeof COSTS): Parallel<Arguments> {
  const { stripRows, product, stream } = COSTS[format];
  const column = 4 * PANEL;
  return {
    cost(view, ...args) {
      const last = args.length - 1;
      const [at, rows] = [args[last - 2]!, args[last]! - args[last - 1]!];
      const weights = PANEL * view.getInt32(at + PANELS, true) * view.getInt32(at + DEPTH, true);
      return 2 * weights * Math.max(product * rows, stream * STREAM_ROWS);
    },
    cut(args, view, load, shapeOf) {
      const [bias, at, begin, end] = args.slice(-4) as [number, number, number, number];
      const [out, x, w, ...others] = args.slice(0, -4) as [number, number, number, ...number[]];
      const shape = shapeAt(view, at);
      const { panels, k, block } = shape;
      const stored = format === "q8" ? q8FormatOf(block) : format;
      const bytes = panelBytes(stored, k);
      const sums = sumBytes(stored, k);
      const rows = end - begin;
      const tiles =
        rows > FEW_ROWS
          ? blocksOf(panels, rows, load, stripRows)
          : rangesOf(0, panels, FEW_PANELS, 0, load).map((range) => ({ panels: range, rows: [0, rows] as const }));
      return tiles.map(({ panels: [panel, next], rows: [from, to] }, i) => {
        storeLinearShape(view, shapeOf(i), { ...shape, panels: next - panel });
        return [
          ...[out + column * panel, x, w + bytes * panel, ...others.map((other) => other + sums * panel)],
          ...[bias === NULL ? NULL : bias + column * panel, shapeOf(i), begin + from, begin + to],
        ];
      });
    },
  };
}

/** The same for kernels that work in scratch. */
export function scratchProjection(format: "f16" | "q4"): ParallelScratch<Arguments> {
  return { ...projection(format), scratch: () => kernelScratchBytes(format) };
}

/** How the minimums of a projection are shared: panels. */
export function minimums(): ParallelScratch<Arguments> {
  return {
    scratch: () => MINS_SCRATCH,
    cost(view, ...args) {
      const [at, begin, end] = args.slice(-3) as [number, number, number];
      const { panels, k, block } = shapeAt(view, at);
      return 2 * PANEL * panels * (k / block) * Math.max(STREAM_ROWS, end - begin);
    },
    cut(args, view, load, shapeOf) {
      const [out, x, mins, scratch, at, begin, end] = args as [number, number, number, number, number, number, number];
      const shape = shapeAt(view, at);
      const { panels, k, block } = shape;
      return rangesOf(0, panels, FEW_PANELS, 0, load).map(([from, to], i) => {
        storeLinearShape(view, shapeOf(i), { ...shape, panels: to - from });
        const own = [out + 4 * PANEL * from, x, mins + minBytesOf(k, block) * from, scratch];
        return [...own, shapeOf(i), begin, end];
      });
    },
  };
}
