// The kernels of an engine with threads: the same functions, which cut a call's range into tiles and run them on all
// threads. The bits stay the same, because no kernel's results depend on how its range is cut. Tiles shrink towards the end
// of a call, so that threads of any speed end together; what is too little to share is called directly.

import { PANEL, TILE_ROWS } from "../../assembly/layout.ts";
import { workFloats } from "../forward/attend-segment.ts";
import { statisticsBytes } from "../forward/statistics-scratch.ts";
import { chunksOf } from "../util/rows.ts";
import {
  ACTIVATION_SHAPE_AT,
  CACHE_SHAPE_AT,
  type KernelTable,
  NORM_SHAPE_AT,
  ROPE_SHAPE_AT,
  ROUTE_SHAPE_AT,
  SCRATCH_ARGUMENT,
  type ScratchKernel,
  STATISTICS_SHAPE_AT,
} from "../wasm/abi.ts";
import { aligned, type LinearMemory } from "../wasm/memory.ts";
import { attentionTiles, attentionWork, countsAt } from "./parallel-attention.ts";
import { minimums, projection, scratchProjection } from "./parallel-linear.ts";
import { type Parallel, type ParallelScratch, rangesOf, type Span } from "./partition.ts";
import type { ThreadPool } from "./pool.ts";

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
    const [shape, received] = [countsAt(view, args[4]), readInt(view, args[5] + STATISTICS_SHAPE_AT.received)];
    const rows = (shape.qLen * shape.numHeads) / shape.numKvHeads;
    return callsOf(
      args,
      received ? rangesOf(args[6], args[7], rows, 0, load) : attentionTiles(shape, args[6], args[7], load),
    );
  },
  scratch(view, _out, _q, _pages, _scratch, _shape, at) {
    const read = (field: keyof typeof STATISTICS_SHAPE_AT) => readInt(view, at + STATISTICS_SHAPE_AT[field]);
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
    const read = (field: keyof typeof CACHE_SHAPE_AT) => view.getInt32(shape + CACHE_SHAPE_AT[field], true);
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
  const read = (field: keyof typeof ROPE_SHAPE_AT) => view.getInt32(shape + ROPE_SHAPE_AT[field], true);
  return ROTATED * (end - begin) * read("numHeads") * read("ropeDim");
});

/** The integer at `at`, a field of a struct. */
const readInt = (view: DataView, at: number) => view.getInt32(at, true);

/** A token's experts: the exponentials of their scores. */
const route: ParallelScratch<Arguments<"route_f32">> = {
  ...ranges<Arguments<"route_f32">>(
    (view, _ids, _weights, _logits, _scratch, _correction, shape, begin, end) =>
      SOFTMAXED * (end - begin) * readInt(view, shape + ROUTE_SHAPE_AT.experts),
  ),
  scratch: (view, _ids, _weights, _logits, _scratch, _correction, shape) =>
    4 * (readInt(view, shape + ROUTE_SHAPE_AT.experts) + 3 * readInt(view, shape + ROUTE_SHAPE_AT.groups)),
};

/**
 * How each kernel is shared; null for those that run on the calling thread: they run once a matrix, or only copy, or nothing
 * of the host calls them.
 */
const PARALLEL = {
  activate_f32: ranges(
    (view, _out, _gate, _up, shape, begin, end) =>
      SOFTMAXED * (end - begin) * readInt(view, shape + ACTIVATION_SHAPE_AT.n),
  ),
  add_scaled_f32: ranges((_view, _out, _x, _y, n, _scale, begin, end) => NORMED * (end - begin) * n),
  append_f32: append,
  append_latents: append,
  append_pages: append,
  attention_f32: attention,
  attention_latents: latents,
  attention_pages: attention,
  attention_statistics: statistics,
  cap_logits_f32: ranges((_view, _x, n, _stride, _scale, _softcap, begin, end) => SOFTMAXED * (end - begin) * n),
  embed_rows: null,
  gather_f32: null,
  gather_latents: null,
  gather_pages: null,
  gather_rows_f32: null,
  layer_norm_f32: ranges(
    (view, _out, _x, _gain, _bias, shape, begin, end) =>
      2 * NORMED * (end - begin) * readInt(view, shape + NORM_SHAPE_AT.n),
  ),
  linear_f16: scratchProjection("f16"),
  linear_f32: projection("f32"),
  linear_q4: scratchProjection("q4"),
  linear_q8: projection("q8"),
  masked_softmax_f32: ranges(
    (view, _out, _scores, shape, _head, begin, end) => SOFTMAXED * (end - begin) * countsAt(view, shape).kvLen,
  ),
  merge_heads_f32: null,
  pack_columns_f16: null,
  pack_blocks: null,
  pack_mins: null,
  pack_columns_f32: null,
  pack_q4: null,
  pack_q8: null,
  pack_rows_f16: null,
  pack_rows_f32: null,
  quantize_rows: ranges((_view, _out, _x, k, _xStride, _mode, begin, end) => QUANTIZED * (end - begin) * k),
  repack_columns_f16: null,
  repack_q4: null,
  repack_q8: null,
  repack_rows_f16: null,
  repeat_dots: null,
  rms_norm_f32: ranges((_view, _out, _x, _gain, n, _stride, _eps, begin, end) => NORMED * (end - begin) * n),
  rope_f32: rope,
  route_f32: route,
  scatter_rows_f32: null,
  scores_f32: scores,
  scores_pages: scores,
  softmax_sums_f32: ranges((_view, _out, _x, n, _stride, begin, end) => SOFTMAXED * (end - begin) * n),
  split_heads_f32: null,
  subtract_mins: minimums(),
  top_k_f32: ranges((_view, _values, _ids, _x, n, _stride, _k, begin, end) => NORMED * (end - begin) * n),
  weighted_sum_f32: null,
  widen_f16: null,
} satisfies {
  readonly [K in keyof KernelTable]:
    | (K extends ScratchKernel ? ParallelScratch<Arguments<K>> : Parallel<Arguments<K>>)
    | null;
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
  for (const [name, parallel] of Object.entries(PARALLEL) as [keyof KernelTable, AnyParallel | null][]) {
    const alone = table[name];
    if (parallel && alone) table[name] = shared(name, alone, parallel);
  }
  return table as unknown as KernelTable;
}
