// The kernels of an engine with threads: the same functions, which cut a call's range into tiles and run them on all threads.

import { LONGEST_BLOCK, MINS_SCRATCH, PANEL, TILE_ROWS } from "../../../assembly/layout.ts";
import { chunksOf } from "../../base/util/rows.ts";
import { workFloats } from "../../layers/attention/segment.ts";
import { FORMATS, int8PanelBytes, int8SumBytes, scaleBytes } from "../../layers/linear/formats.ts";

import { statisticsBytes } from "../../layers/pass/statistics.ts";
import {
  type AttentionShape,
  FIELDS,
  type KernelTable,
  LinearShape,
  NULL,
  SCRATCH_ARGUMENT,
  type ScratchKernel,
} from "../../wasm/abi.ts";
import { aligned, type LinearMemory } from "../../wasm/memory.ts";
import { type ThreadPool, TILES } from "./pool.ts";

/** Where each field of a struct lies. */
const offsetsOf = <Name extends string>(names: readonly Name[]) =>
  Object.fromEntries(names.map((name, i) => [name, 4 * i])) as Readonly<Record<Name, number>>;

const ACTIVATION = /* @__PURE__ */ offsetsOf(FIELDS.ActivationShape);
const ATTENTION = /* @__PURE__ */ offsetsOf(FIELDS.AttentionShape);
const CACHE = /* @__PURE__ */ offsetsOf(FIELDS.CacheShape);
const CHANNELS = /* @__PURE__ */ offsetsOf(FIELDS.ChannelScanShape);
const CONV = /* @__PURE__ */ offsetsOf(FIELDS.ConvShape);
const DECAY = /* @__PURE__ */ offsetsOf(FIELDS.DecayShape);
const LINEAR = /* @__PURE__ */ offsetsOf(FIELDS.LinearShape);
const SCAN = /* @__PURE__ */ offsetsOf(FIELDS.LinearAttentionShape);
const NORM = /* @__PURE__ */ offsetsOf(FIELDS.NormShape);
const ROPE = /* @__PURE__ */ offsetsOf(FIELDS.RopeShape);
const ROUTE = /* @__PURE__ */ offsetsOf(FIELDS.RouteShape);
const STATISTICS = /* @__PURE__ */ offsetsOf(FIELDS.StatisticsShape);

// How a range is cut into tiles: they shrink towards its end, so that threads of any speed end together.

/** A product of fewer rows takes as long as reading its other factor, like one of so many. */
const STREAM_ROWS = 3;

/** A range of rows, of tokens or of panels. */
type Span = readonly [from: number, to: number];

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
function rangesOf(begin: number, end: number, unit: number, offset: number, load: Load): Span[] {
  const first = Math.floor((begin + offset) / unit);
  const last = Math.ceil((end + offset) / unit);
  const least = fewest(last - first, load);
  const ranges: Span[] = [];
  for (let at = first; at < last; ) {
    const next = at + share(last - at, least, load.threads);
    ranges.push([Math.max(begin, at * unit - offset), Math.min(end, next * unit - offset)]);
    at = next;
  }
  return ranges;
}

/** How a call of a kernel with these arguments, which end in begin and end, is shared among threads. */
interface Parallel<A extends readonly number[]> {
  /** What the call takes, in operations of a matrix product. Small calls ask too, so it reads little. */
  cost(view: DataView, ...args: A): number;
  /** The calls that make it up, one a tile; shapeOf(i) is where tile i may have a shape of its own. */
  cut(args: A, view: DataView, load: Load, shapeOf: (tile: number) => number): readonly (readonly number[])[];
}

/** The same for a kernel that works in scratch: bytes that each thread needs for itself. */
interface ParallelScratch<A extends readonly number[]> extends Parallel<A> {
  scratch(view: DataView, ...args: A): number;
}

// How rows of attention are shared among threads.

/** Rows of attention are cut at whole strips of 4 and of 6. */
const ATTENTION_ROWS = 12;

/** The counts of an AttentionShape: what the work of a call depends on. */
type Counts = Pick<
  AttentionShape,
  "qLen" | "kvLen" | "qStart" | "left" | "right" | "numHeads" | "numKvHeads" | "headDim" | "valueDim" | "formats"
>;

/** Reads them; the other fields of a shape are not read, because small calls go through here too. */
function countsAt(view: DataView, at: number): Counts {
  const read = (field: keyof Counts) => view.getInt32(at + ATTENTION[field], true);
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

// How projections are shared among threads: a tile is some panels by some rows, with a shape of
// its own that has so many panels.

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

const COSTS: Readonly<Record<"f32" | "f16" | "q8" | "q4" | "q4-k" | "mxfp4" | "q1", Costs>> = {
  f32: { stripRows: 32, product: 1, stream: 1 },
  f16: { stripRows: 30, product: 1, stream: 0.5 },
  q8: { stripRows: 32, product: 0.5, stream: 0.3 },
  q4: { stripRows: 32, product: 0.5, stream: 0.2 },
  "q4-k": { stripRows: 32, product: 0.5, stream: 0.2 },
  mxfp4: { stripRows: 32, product: 0.5, stream: 0.2 },
  q1: { stripRows: 32, product: 0.5, stream: 0.2 },
};

/** The arguments of a projection: out, x, w, its sums or the kernel's scratch if there are any, bias, shape, begin, end. */
type KernelArguments = readonly number[];

const { panels: PANELS, k: DEPTH } = LINEAR;

function shapeAt(view: DataView, at: number): LinearShape {
  const read = (field: keyof LinearShape) => view.getInt32(at + LINEAR[field], true);
  return {
    panels: read("panels"),
    k: read("k"),
    outStride: read("outStride"),
    xStride: read("xStride"),
    bf16: read("bf16"),
    block: read("block"),
    mode: read("mode"),
    zero: read("zero"),
    type: read("type"),
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

/** Bytes of a panel: some kernels take blocks of several lengths, or types. */
function panelBytes(format: keyof typeof COSTS, { k, block, type }: LinearShape): number {
  const own = Object.values(FORMATS).find((each) => type > 0 && each.shape.type === type);
  if (own) return own.panelBytes(k);
  if (format === "q8") return int8PanelBytes(k, block);
  if (format !== "q1" || block === LONGEST_BLOCK) return FORMATS[format].panelBytes(k);
  return FORMATS[block < LONGEST_BLOCK ? "q2" : "q2-row"].panelBytes(k);
}

/** How projections are shared, by the format of their weights; those of 8 bits, and of codes, have blocks of any length. */
function projection(format: keyof typeof COSTS): Parallel<KernelArguments> {
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
      const bytes = panelBytes(format, shape);
      const sums = format === "q8" ? int8SumBytes(k, block) : 0;
      const rows = end - begin;
      const tiles =
        rows > FEW_ROWS
          ? blocksOf(panels, rows, load, stripRows)
          : rangesOf(0, panels, FEW_PANELS, 0, load).map((range) => ({ panels: range, rows: [0, rows] as const }));
      return tiles.map(({ panels: [panel, next], rows: [from, to] }, i) => {
        LinearShape.store(view, shapeOf(i), { ...shape, panels: next - panel });
        return [
          ...[out + column * panel, x, w + bytes * panel, ...others.map((other) => other + sums * panel)],
          ...[bias === NULL ? NULL : bias + column * panel, shapeOf(i), begin + from, begin + to],
        ];
      });
    },
  };
}

/** The same for kernels that work in scratch. */
function scratchProjection(format: "f16" | "q4" | "q4-k" | "mxfp4" | "q1"): ParallelScratch<KernelArguments> {
  return { ...projection(format), scratch: () => FORMATS[format].work };
}

/** How the minimums of a projection are shared: panels. */
function minimums(): ParallelScratch<KernelArguments> {
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
        LinearShape.store(view, shapeOf(i), { ...shape, panels: to - from });
        const own = [out + 4 * PANEL * from, x, mins + scaleBytes(k, block) * from, scratch];
        return [...own, shapeOf(i), begin, end];
      });
    },
  };
}

// How each kernel is shared. The bits stay the same, because no kernel's results depend on how its range is cut. Tiles shrink towards the end
// of a call, so that threads of any speed end together; what is too little to share is called directly.

/** What is too little to share, in floating-point operations of a matrix product: a core does some 50 a nanosecond. */
export interface Shares {
  /** Work of a call below which it is run by the calling thread alone. */
  readonly call: number;
  /** The least work of a tile. */
  readonly tile: number;
}

/** About 40 and 10 microseconds: several times what it takes to wake a worker, and to hand a tile out. */
export const SHARES: Shares = { call: 2 ** 21, tile: 2 ** 19 };

/** What an element costs where it is not multiplied, in the operations that take as long. */
const ROTATED = 16;
const NORMED = 8;
const COPIED = 24;
const SOFTMAXED = 40;
const QUANTIZED = 16;
/** A row of an index, of any format and for any number of queries: passes of blocks of rows are always worth sharing. */
const SCORED = 512;
/** A product of the unfused kernels, which are plain loops, takes as long as so many. */
const UNFUSED = 4;

type Arguments<K extends keyof KernelTable> = Parameters<KernelTable[K]>;

/** The calls of ranges that make up a call. */
const callsOf = (args: readonly number[], ranges: readonly Span[]) =>
  ranges.map(([from, to]) => [...args.slice(0, -2), from, to]);

/** A kernel whose range may be cut anywhere, or at multiples of `unit` counted from -offset. */
function ranges<A extends readonly number[]>(
  cost: (view: DataView, ...args: A) => number,
  unit = 1,
  offset: (args: A) => number = () => 0,
): Parallel<A> {
  return {
    cost,
    cut(args, _, load) {
      const [begin, end] = args.slice(-2) as [number, number];
      return callsOf(args, rangesOf(begin, end, unit, offset(args), load));
    },
  };
}

const attention: ParallelScratch<Arguments<"attention_f32">> = {
  cost: (view, _out, _q, _pages, _scratch, shape, begin, end) => attentionWork(countsAt(view, shape), end - begin),
  cut: (args, view, load) => callsOf(args, attentionTiles(countsAt(view, args[4]), args[5], args[6], load)),
  scratch(view, _out, _q, _pages, _scratch, shape) {
    return 4 * workFloats(countsAt(view, shape));
  },
};

/** attention_statistics: the sums of a key are one thread's where they are wanted, so that their terms keep their order. */
const statistics: ParallelScratch<Arguments<"attention_statistics">> = {
  cost: (view, _out, _q, _pages, _scratch, shape, _statistics, begin, end) =>
    attentionWork(countsAt(view, shape), end - begin),
  cut(args, view, load) {
    const [shape, received] = [countsAt(view, args[4]), readInt(view, args[5] + STATISTICS.received)];
    const rows = (shape.qLen * shape.numHeads) / shape.numKvHeads;
    return callsOf(
      args,
      received ? rangesOf(args[6], args[7], rows, 0, load) : attentionTiles(shape, args[6], args[7], load),
    );
  },
  scratch(view, _out, _q, _pages, _scratch, _shape, at) {
    const read = (field: (typeof FIELDS.StatisticsShape)[number]) => readInt(view, at + STATISTICS[field]);
    return 4 * read("work") + statisticsBytes(read("topK"), read("received") ? read("keptPages") : 0);
  },
};

/** Threads get whole multiples of so many rows, so that few of their strips are short. */
const LATENT_ROWS = 4;

/**
 * attention_latents: rows that fit in one tile, as those of a decode step, are divided evenly among the threads. They take
 * so long to compute that each thread may read all latents.
 */
const latents: typeof attention = {
  ...attention,
  cut(args, view, load, shapeOf) {
    const [begin, end] = args.slice(-2) as [number, number];
    if (end - begin > TILE_ROWS) return attention.cut(args, view, load, shapeOf);
    const each = LATENT_ROWS * Math.ceil((end - begin) / (LATENT_ROWS * load.threads));
    return callsOf(
      args,
      Array.from(chunksOf(end - begin, each), ([from, to]) => [begin + from, begin + to] as const),
    );
  },
};

// Panels of keys are written whole where all their keys are of one tile.
const append = ranges<Arguments<"append_f32">>(
  (view, _pages, _k, _v, shape, _past, begin, end) => {
    const read = (field: (typeof FIELDS.CacheShape)[number]) => view.getInt32(shape + CACHE[field], true);
    return COPIED * (end - begin) * read("numKvHeads") * (read("headDim") + read("valueDim"));
  },
  PANEL,
  ([, , , , past]) => past % PANEL,
);

const scores = ranges<Arguments<"scores_f32">>((view, _out, _q, _pages, shape, _head, _stage, begin, end) => {
  const { kvLen, headDim } = countsAt(view, shape);
  return 2 * UNFUSED * (end - begin) * kvLen * headDim;
});

const rope = ranges<Arguments<"rope_f32">>((view, _x, _cos, _sin, shape, begin, end) => {
  const read = (field: (typeof FIELDS.RopeShape)[number]) => view.getInt32(shape + ROPE[field], true);
  return ROTATED * (end - begin) * read("numHeads") * read("ropeDim");
});

/** The integer at `at`, a field of a struct. */
const readInt = (view: DataView, at: number) => view.getInt32(at, true);

/** A token's experts: the exponentials of their scores. */
const route: ParallelScratch<Arguments<"route_f32">> = {
  ...ranges<Arguments<"route_f32">>(
    (view, _ids, _weights, _logits, _scratch, _correction, shape, begin, end) =>
      SOFTMAXED * (end - begin) * readInt(view, shape + ROUTE.experts),
  ),
  scratch: (view, _ids, _weights, _logits, _scratch, _correction, shape) =>
    4 * (readInt(view, shape + ROUTE.experts) + 3 * readInt(view, shape + ROUTE.groups)),
};

/** Kernels that run on the calling thread: they run once a matrix, or only copy, or nothing of the host calls them. */
type Alone =
  | "embed_rows"
  | "gather_f32"
  | "gather_latents"
  | "gather_pages"
  | "gather_rows_f32"
  | "limit_f32"
  | "merge_heads_f32"
  | "pack_columns_f16"
  | "pack_blocks"
  | "pack_codebook"
  | "pack_lookup"
  | "pack_mins"
  | "pack_columns_f32"
  | "pack_q4"
  | "pack_q4_k"
  | "pack_q8"
  | "pack_rows_f16"
  | "pack_rows_f32"
  | "repack_columns_f16"
  | "repack_q4"
  | "repack_q8"
  | "repack_rows_f16"
  | "repeat_dots"
  | "scatter_rows_f32"
  | "split_heads_f32"
  | "weighted_sum_f32"
  | "widen_f16";

/** How each of the others is shared. */
const PARALLEL = {
  activate_f32: ranges(
    (view, _out, _gate, _up, shape, begin, end) => SOFTMAXED * (end - begin) * readInt(view, shape + ACTIVATION.n),
  ),
  add_scaled_f32: ranges((_view, _out, _x, _y, n, _scale, begin, end) => NORMED * (end - begin) * n),
  append_f32: append,
  append_latents: append,
  append_pages: append,
  attention_f32: attention,
  attention_latents: latents,
  attention_pages: attention,
  attention_statistics: statistics,
  causal_conv_f32: ranges(
    (view, _out, _x, _state, _weights, _bias, shape, begin, end) =>
      2 * (end - begin) * readInt(view, shape + CONV.rows) * (readInt(view, shape + CONV.taps) + 4),
    PANEL,
  ),
  cap_logits_f32: ranges((_view, _x, n, _stride, _scale, _softcap, begin, end) => SOFTMAXED * (end - begin) * n),
  channel_scan_f32: ranges((view, _out, _state, _x, _step, shape, begin, end) => {
    const read = (field: keyof typeof CHANNELS) => readInt(view, shape + CHANNELS[field]);
    return SOFTMAXED * (end - begin) * read("rows") * (read("stateDim") + 2);
  }, PANEL),
  decay_f32: ranges(
    (view, _decay, _step, _x, _bias, _rate, shape, begin, end) =>
      2 * SOFTMAXED * (end - begin) * readInt(view, shape + DECAY.n),
  ),
  layer_norm_f32: ranges(
    (view, _out, _x, _gain, _bias, shape, begin, end) => 2 * NORMED * (end - begin) * readInt(view, shape + NORM.n),
  ),
  linear_attention_f32: ranges((view, _out, _state, _q, _k, _v, shape, begin, end) => {
    const read = (field: keyof typeof SCAN) => readInt(view, shape + SCAN[field]);
    return (end - begin) * read("rows") * read("keyDim") * read("valueDim") * (read("delta") ? 8 : 5);
  }),
  linear_codebook: scratchProjection("mxfp4"),
  linear_f16: scratchProjection("f16"),
  linear_f32: projection("f32"),
  linear_lookup: scratchProjection("q1"),
  linear_q4: scratchProjection("q4"),
  linear_q4_k: scratchProjection("q4-k"),
  linear_q8: projection("q8"),
  masked_softmax_f32: ranges(
    (view, _out, _scores, shape, _head, begin, end) => SOFTMAXED * (end - begin) * countsAt(view, shape).kvLen,
  ),
  quantize_rows: ranges((_view, _out, _x, k, _xStride, _block, _mode, begin, end) => QUANTIZED * (end - begin) * k),
  rms_norm_f32: ranges((_view, _out, _x, _gain, n, _stride, _eps, begin, end) => NORMED * (end - begin) * n),
  rope_f32: rope,
  round_rows_f32: ranges((_view, _x, n, _stride, begin, end) => NORMED * (end - begin) * n),
  route_f32: route,
  score_rows: ranges((_view, _scores, _queries, _rows, _factors, _shape, begin, end) => SCORED * (end - begin)),
  scores_f32: scores,
  scores_pages: scores,
  softmax_sums_f32: ranges((_view, _out, _x, n, _stride, begin, end) => SOFTMAXED * (end - begin) * n),
  subtract_mins: minimums(),
  top_k_f32: ranges((_view, _values, _ids, _x, n, _stride, _k, begin, end) => NORMED * (end - begin) * n),
  xielu_f32: ranges((_view, _x, n, _stride, _positive, _negative, _beta, begin, end) => SOFTMAXED * (end - begin) * n),
} satisfies {
  readonly [K in Exclude<keyof KernelTable, Alone>]: K extends ScratchKernel
    ? ParallelScratch<Arguments<K>>
    : Parallel<Arguments<K>>;
};

type AnyKernel = (...args: number[]) => void;
type AnyParallel = Parallel<readonly number[]> & Partial<ParallelScratch<readonly number[]>>;

/** The kernels `direct`, on all threads of the pool where that pays. */
export function shareKernels(
  direct: KernelTable,
  memory: LinearMemory,
  pool: ThreadPool,
  shares: Shares = SHARES,
): KernelTable {
  const shapeOf = (tile: number) => pool.shapeOf(tile);
  const shared = (name: keyof KernelTable, alone: AnyKernel, { cost, cut, scratch }: AnyParallel): AnyKernel => {
    return (...args) => {
      const work = pool.size > 1 ? cost(memory.view(), ...args) : 0;
      if (work < shares.call || work <= 0) return alone(...args);
      let own = 0;
      if (scratch) {
        own = aligned(scratch(memory.view(), ...args));
        const at = pool.own(own);
        if (at === undefined) return alone(...args);
        args[SCRATCH_ARGUMENT] = at;
      }
      const load = { work, least: shares.tile, threads: pool.size };
      pool.run(name, own, cut(args, memory.view(), load, shapeOf));
    };
  };
  const table: Partial<Record<keyof KernelTable, AnyKernel>> = { ...(direct as Record<keyof KernelTable, AnyKernel>) };
  for (const [name, parallel] of Object.entries(PARALLEL) as [keyof KernelTable, AnyParallel][]) {
    const alone = table[name];
    if (alone) table[name] = shared(name, alone, parallel);
  }
  return table as unknown as KernelTable;
}
