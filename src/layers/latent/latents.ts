// Layers of latent attention (MLA): how they are made and planned, what their pages hold, and how they run as a mixer: which path, in
// which chunks, and at what cost.

import { LATENT_PAGES } from "../../../assembly/layout.ts";
import {
  expectFlag,
  expectInt,
  expectNone,
  expectOneOf,
  MOST_SEQUENCES,
  readFields,
} from "../../base/util/arguments.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import { makeHandle } from "../../base/util/lifetime.ts";
import {
  CHUNK_ROWS,
  chunksOf,
  copyRows,
  listRows,
  type RowList,
  type RowRun,
  tokenRunsOf,
} from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { expectKernels, freeing, type Kernels } from "../../wasm/kernels.ts";
import { aligned, type Layout, type MemoryPlan, pointer } from "../../wasm/memory.ts";
import type { Attention } from "../attention/attention.ts";
import { type KvState, onPages } from "../attention/kv-state.ts";
import {
  type CheckedMasks,
  checkMasks,
  type MaskOptions,
  type MaskTarget,
  readMasks,
  seesLater,
} from "../attention/mask.ts";
import { createRotary } from "../attention/rope.ts";
import { type SegmentNeeds, segmentFlops, segmentNeeds, segmentsOf, workFloats } from "../attention/segment.ts";
import { eachOf, expectFormatLoaded, expectFormats, wholePanels } from "../linear/formats.ts";

import { linearFlops, type Rows } from "../linear/products.ts";
import type { Mixer, MixerCall, PassCall, Passes, Runs } from "../mixer/mixer.ts";
import type { CacheOptions } from "../state/kv-cache.ts";
import { checkCacheFormat, createPageLayout, expectIntegerDim, type PageKind, type PageShape } from "../state/pages.ts";
import { pagesBytes } from "../state/table.ts";
import {
  type CheckedLatentConfig,
  checkLatentConfig,
  checkLatentWeights,
  LATENT_MATRICES,
  LATENT_OPTIONS,
  type LatentConfig,
  type LatentFormats,
  type LatentOptions,
  type LatentWeights,
  latentLayout,
  type PackedLatents,
  storeLatent,
} from "./config.ts";
import {
  absorbedShape,
  absorbedSizes,
  appendLatents,
  attendAbsorbed,
  attendExpanded,
  blockBytes,
  expandedHeads,
  expandedShape,
  groupOf,
  keysOf,
  type LatentPath,
  type LatentPlaces,
  type LatentsLayer,
  type LatentWork,
  latentChunkRows,
  PATHS,
  piecesOf,
  placeLatentLayer,
  placeLatentPass,
  stridesOf,
} from "./paths.ts";

/**
 * One layer of latent attention: its configuration, and its weights packed in linear memory until `release()`. It is an
 * Attention: `attend`, `attendAsync`, `attendMany`, `createCache` and `exportPages` take it.
 */
export interface LatentAttention extends Attention {
  /** The configuration with every default filled in. */
  readonly config: CheckedLatentConfig;
  /** The format of each packed matrix. */
  readonly formats: LatentFormats;
  /** Whether the path "expanded" can be taken. */
  readonly expanded: boolean;
  /** @internal */
  readonly latents: PackedLatents;
  /** @internal */
  readonly mixer: Mixer;
}

/**
 * Packs the weights of a layer of latent attention into linear memory. The given arrays are not used later.
 * @throws TypeError or RangeError naming the argument, the rule and the value. HeadwiseError `NO_LATENT` with kernels that were
 * loaded without `latent`, `NO_QUANTIZED` for formats other than "f32" with kernels that were loaded without `quantized`,
 * `OUT_OF_MEMORY` or `RELEASED`. Nothing is allocated then.
 * @example
 * import { attend, createCache, loadKernels } from "headwise";
 * import { createLatentAttention, latent } from "headwise/latent";
 * const kernels = await loadKernels({ latent });
 * const matrix = (rows: number, columns: number) => ({ data: new Float32Array(rows * columns).fill(0.1), shape: [rows, columns] });
 * const attention = createLatentAttention(
 *   kernels,
 *   { dModel: 8, numHeads: 2, kvLoraRank: 3, nopeDim: 4, ropeDim: 2, causal: true, rope: { theta: 1e4, pairing: "half" } },
 *   { wq: matrix(12, 8), wkvDown: matrix(5, 8), kvNorm: new Float32Array(3).fill(1), wkvUp: matrix(16, 3), wo: matrix(8, 8) },
 * );
 * const cache = createCache(attention, { maxSeqLen: 100 });
 * console.log(attend(attention, new Float32Array(16).fill(1), { cache }).length, cache.length); // 16 2
 * kernels.release();
 */
export function createLatentAttention(
  kernels: Kernels,
  config: LatentConfig,
  weights: LatentWeights,
  options: LatentOptions = {},
): LatentAttention {
  const where = "createLatentAttention";
  expectKernels(where, kernels);
  const checked = checkLatentConfig(where, config);
  const read = readFields(where, "options", options, LATENT_OPTIONS);
  const expanded = expectFlag(where, "options.expanded", read.expanded);
  const given = checkLatentWeights(where, checked, weights, { ...read, expanded }, kernels.quantized);
  // Again, because reading arguments may have run code of the caller's that released them.
  expectKernels(where, kernels);
  if (!kernels.latent)
    throw new HeadwiseError(
      "NO_LATENT",
      `${where}: kernels expected ones that were loaded with { latent }, which headwise/latent exports, got kernels without it`,
    );
  for (const [name, format] of Object.entries(given.formats))
    expectFormatLoaded(where, kernels.quantized, name, format);
  const latents = storeLatent(where, kernels, checked, given);
  return latentHandle(kernels, checked, latents, expanded);
}

function latentHandle(
  kernels: Kernels,
  config: CheckedLatentConfig,
  latents: PackedLatents,
  expanded: boolean,
): LatentAttention {
  const { at, bytes, formats } = latents;
  const parts = {
    ...{ kernels, config, formats: Object.freeze(formats), bytes, expanded, latents },
    pageShape: latentPageShape(config),
    ...{ kind: "latents", mixer: LATENTS, passes: LATENT_PASSES },
    rotary: config.rope && createRotary(config.rope),
  };
  const internal = ["kind", "pageShape", "mixer", "passes", "rotary", "latents"] as const;
  return makeHandle<LatentAttention>("LatentAttention", "createLatentAttention", parts, internal, freeing(kernels, at));
}

/** The largest call to plan memory for. */
export interface LatentSizes extends MaskOptions {
  /** Sequences. Default 1. */
  readonly batch?: number;
  /** Tokens of the longest call. Default 1, a decode step. */
  readonly qLen?: number;
  /** Tokens per sequence in the cache. Without it, there is no cache: every call allocates pages and frees them. */
  readonly maxSeqLen?: number;
  /** Format of the cache: "f32", "f16" or "q8". Default "f32". */
  readonly format?: CacheOptions["format"];
  /** The path of the call. Default "absorbed". */
  readonly path?: "absorbed" | "expanded";
  /** Plan for `attendWithMaps` instead of `attend`. Default false. */
  readonly maps?: boolean;
  /** Formats of the weights, as `createLatentAttention` takes them. Default "f32". */
  readonly weights?: LatentOptions["weights"];
  /** Whether the layer can be expanded, as `createLatentAttention` takes it. Default only for the path "expanded". */
  readonly expanded?: boolean;
}

const SIZES = [
  ...(["batch", "qLen", "maxSeqLen", "format", "path", "maps", "weights", "expanded", "keep", "drop", "bias"] as const),
] as const;

/** What `planLatent` gives. */
export type LatentPlan = MemoryPlan<"cache" | "call">;

/**
 * The memory that a layer of latent attention, its cache and a call will take, computed before anything is allocated.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { planLatent } from "headwise/latent";
 * const rope = { theta: 10_000, pairing: "interleaved" } as const;
 * const lite = { dModel: 2048, numHeads: 16, kvLoraRank: 512, nopeDim: 128, ropeDim: 64, causal: true, rope };
 * console.log(planLatent(lite, { maxSeqLen: 8192 }).cache); // 18874624: 8192 x 576 floats, and 256 bytes of page table
 */
export function planLatent(config: LatentConfig, sizes: LatentSizes = {}): LatentPlan {
  const where = "planLatent";
  const checked = checkLatentConfig(where, config);
  const given = readFields(where, "sizes", sizes, SIZES);
  const { batch = 1, qLen = 1, path = "absorbed" } = given;
  expectInt(where, "batch", batch, 1, MOST_SEQUENCES);
  expectInt(where, "qLen", qLen);
  expectOneOf(where, "path", path, PATHS);
  const maps = expectFlag(where, "maps", given.maps);
  const expanded = given.expanded === undefined ? path === "expanded" : expectFlag(where, "expanded", given.expanded);
  if (path === "expanded" && !expanded)
    throw new RangeError(`${where}: path expected "absorbed" with expanded: false, got "expanded"`);
  const cached = given.maxSeqLen === undefined ? undefined : expectInt(where, "maxSeqLen", given.maxSeqLen, qLen);
  if (!cached) expectNone(where, "format", given.format, "without maxSeqLen");
  const kvLen = cached ?? qLen;
  const shape = latentPageShape(checked);
  const pages = createPageLayout(shape, checkCacheFormat(where, "format", given.format, shape));
  const target = { batch, numHeads: checked.numHeads, qLen, kvLen };
  const masks = checkMasks(where, readMasks(where, given), target);
  const chosen = expectFormats(where, "weights", given.weights, LATENT_MATRICES);
  const formats = eachOf(LATENT_MATRICES, (name) => chosen[name] ?? "f32");

  const rows = latentChunkRows(checked, path, batch * qLen);
  const needs = latentNeeds(checked, path, masks, target, rows, maps ? kvLen : 0, pages.formats);
  const group = path === "expanded" ? expandedHeads(checked, kvLen, maps || masks.perHead) : 0;
  const { bytes: scratch } = placeLatentPass(checked, formats, rows, [needs], { group, reads: group > 0 || maps });
  const call = blockBytes(checked, group, maps, kvLen);
  const weights = aligned(latentLayout(checked, formats, expanded).bytes);
  const cache = pagesBytes(pages, batch, kvLen);
  return { weights, cache, scratch, call, total: weights + cache + scratch + call };
}

// The mixer.

/** Pages of latents: latents as the keys of one head, and as its values the keys that are rotated. */
export const LATENT_KIND: PageKind = {
  flag: LATENT_PAGES,
  kernels: {
    append: "append_latents",
    gather: "gather_latents",
    attention: "attention_latents",
    // On keys that were gathered.
    scores: "scores_f32",
  },
  keyComponents: wholePanels,
  checkStages(where, path) {
    throw new RangeError(`${where}: ${path} expected one format for latent attention, got stages`);
  },
  checkFormats(where, path, { keys, values }, { headDim, valueDim }) {
    expectIntegerDim(where, path, "kvLoraRank or ropeDim", Math.max(headDim, valueDim), keys);
    if (keys !== values || keys === "q4")
      throw new RangeError(
        `${where}: ${path} expected "f32", "f16" or "q8" for latent attention, got keys "${keys}" and values "${values}"`,
      );
  },
};

/** What the pages of the cache of a layer hold. */
export function latentPageShape({ kvLoraRank, ropeDim }: CheckedLatentConfig): PageShape {
  return { numKvHeads: 1, headDim: kvLoraRank, valueDim: ropeDim, kind: LATENT_KIND };
}

/** Layers of latent attention in models. */
const LATENTS: Mixer<LatentsLayer, KvState> = {
  callsOnlyKernels: () => false,
  rope: () => undefined,
  linears({ latents: { qDown, q, kvDown, kAbsorbed, v, o } }) {
    return [...(qDown ? [qDown] : []), q, kvDown, ...kAbsorbed, ...v, o];
  },
  chunkRows: ({ config }, rows) => latentChunkRows(config, "absorbed", rows),
  plan(attention, layout, rows, formats, { kvLen, maps }) {
    const { config, latents } = attention;
    const columns = maps ? kvLen : 0;
    const places = placeLatentRows(config, latents.formats, layout, rows, formats, { reads: kvLen > 0, columns });
    const block = layout.take(blockBytes(config, 0, kvLen > 0, kvLen));
    return function* (base, stepFlops, states, { x, out, tap, maps, measure, warm }) {
      const runs = onPages(states);
      const work = { attention, places, base, stepFlops, block: base + block, maps, tap, measure, warm };
      yield* appendLatents(work, runs, x);
      yield* attendAbsorbed(work, runs, { x, out });
    };
  },
};

/** How `attend` runs layers of latent attention. */
export const LATENT_PASSES: Passes<LatentsLayer> = {
  check(where, { keys, values, append }) {
    for (const [name, rows] of Object.entries({ keys, values })) expectNone(where, name, rows, "with latent attention");
    if (append === false) throw new RangeError(`${where}: append expected true with latent attention, got false`);
  },

  prepare(attention, calls, { maps = false, stage, measure, trace }) {
    const { config, latents } = attention;
    const path = pathOf(attention, calls);
    if (measure && path === "expanded")
      throw new RangeError(`${calls[0]?.where}: path expected "absorbed" with statistics, got "expanded"`);
    const seen = maps || measure !== undefined;
    const rows = latentChunkRows(config, path, listRows(calls, rowsOf).total);
    const columns = maps ? Math.max(...calls.map(({ target }) => target.kvLen)) : 0;
    const needs = calls.map(({ masks, target, cache }) => {
      const { formats } = cache?.pages.layout ?? createPageLayout(attention.pageShape);
      return latentNeeds(config, path, masks, target, rows, columns, formats);
    });
    const groups = calls.map((call) => (path === "expanded" ? groupOf(config, call, maps) : 0));
    const group = Math.max(...groups);
    const read = { group, reads: group > 0 || seen };
    const { places, bytes } = placeLatentPass(config, latents.formats, rows, needs, read);
    const blocks = calls.map(({ target }, i) => blockBytes(config, groups[i] as number, seen, target.kvLen));
    return {
      ...{ width: config.dModel, columns, bytes, block: Math.max(...blocks) },
      run(passCalls, base, stepFlops, into, block) {
        const read = { maps: maps ? into : undefined, stage, measure, tap: trace, trace };
        const work = { attention, places: places.layer, base, stepFlops, block, ...read };
        const all = listRows(passCalls, ({ call }) => rowsOf(call));
        return runPass(all, { work, ...places }, path, rows);
      },
    };
  },

  flops(attention, call, stepFlops) {
    const { config, latents } = attention;
    const path = pathOf(attention, [call]);
    const { qDown, q, kvDown, kAbsorbed, kExpanded, v, o } = latents;
    const all = listRows([call], rowsOf);
    const { total } = all;
    const expanded = path === "expanded";
    const own = [qDown, q, kvDown, o, ...(expanded ? [] : [...kAbsorbed, ...v])];
    let flops = 0;
    for (const linear of own) if (linear) flops += linearFlops(linear, total);
    const shape = expanded ? expandedShape(config, config.numHeads) : absorbedShape(config);
    const addSegments = (run: RowRun<MixerCall>) => {
      for (const segment of segmentsOf(call, run, false, stepFlops)) flops += segmentFlops(shape, segment);
    };
    for (const [begin, end] of chunksOf(total, latentChunkRows(config, path, total)))
      for (const run of all.runs(begin, end)) {
        if (!expanded) addSegments(run);
        else
          for (const tokens of tokenRunsOf(run, call.qLen)) {
            const keys = keysOf(config, call, tokens);
            for (const linear of [...kExpanded, ...v]) flops += linearFlops(linear, keys);
            if (keys > 0) for (const piece of piecesOf(call, call, tokens)) addSegments(piece);
          }
      }
    return flops;
  },
};

/**
 * Places what a layer works in for chunks of up to `rows` rows without masks, on pages of these formats: absorbed. Where `reads`,
 * keys are read back, and the weights of a row on `columns` of them.
 */
export function placeLatentRows(
  config: CheckedLatentConfig,
  formats: LatentFormats,
  layout: Layout,
  rows: number,
  pageFormats: number,
  { reads, columns }: { readonly reads: boolean; readonly columns: number } = { reads: false, columns: 0 },
): LatentPlaces {
  const work = workFloats({ ...absorbedSizes(config), formats: pageFormats });
  const needs = { tokens: rows, work, keep: 0, bias: 0, scores: rows * columns };
  return placeLatentLayer(layout, config, formats, rows, [needs], { group: 0, reads });
}

/** The needs of the segments of a call in chunks of up to `rows` rows, whose cache has these formats. */
function latentNeeds(
  config: CheckedLatentConfig,
  path: LatentPath,
  masks: CheckedMasks,
  target: MaskTarget,
  rows: number,
  columns: number,
  formats: number,
): SegmentNeeds {
  const work = workFloats(path === "expanded" ? createPageLayout(config) : { ...absorbedSizes(config), formats });
  const tokens = Math.min(rows, target.qLen);
  const needs = segmentNeeds(masks, target, masks.perRow ? Math.min(tokens, CHUNK_ROWS) : tokens, columns, work);
  // Outputs are not cut where masks are.
  return { ...needs, tokens, scores: tokens * columns };
}

/** The rows of a call that are queries and keys. */
const rowsOf = ({ rows }: MixerCall) => rows;

/** The path of calls that run together. Throws unless the layer can take them. */
function pathOf({ config, latents }: LatentsLayer, calls: readonly MixerCall[]): LatentPath {
  const { path: first = "absorbed" } = calls[0] as MixerCall;
  for (const call of calls) {
    const { where, path = "absorbed" } = call;
    expectOneOf(where, "path", path, PATHS);
    if (path === "expanded" && latents.kExpanded.length !== config.numHeads)
      throw new RangeError(
        `${where}: path expected "absorbed" for a layer that was made without { expanded: true }, got "expanded"`,
      );
    if (path !== first) throw new RangeError(`${where}: path expected that of call 0 ("${first}"), got "${path}"`);
  }
  return first;
}

/** A pass: its layer, and the offsets of its inputs and outputs. */
interface LatentPass {
  readonly work: LatentWork;
  readonly x: number;
  readonly y: number;
}

/** Runs all rows in chunks: appends, then attends; if queries attend later keys, all is appended first. */
function* runPass(all: RowList<PassCall>, pass: LatentPass, path: LatentPath, rows: number): Steps {
  const { work } = pass;
  // Maps have columns for all keys of a call.
  const later = seesLater(work.attention.config) || work.maps !== undefined;
  for (const [begin, end] of chunksOf(all.total, rows)) {
    const runs = all.runs(begin, end);
    const x = copyIn(pass, runs);
    yield* appendLatents(work, runs, x);
    if (!later) yield* attendChunk(pass, path, runs, x);
  }
  if (!later) return;
  for (const [begin, end] of chunksOf(all.total, rows)) {
    const runs = all.runs(begin, end);
    yield* attendChunk(pass, path, runs, copyIn(pass, runs));
  }
}

/** Copies the rows of x to the chunk. */
function copyIn({ work: { attention, base }, x: place }: LatentPass, runs: Runs<PassCall>): Rows {
  const { dModel } = attention.config;
  const x = base + place;
  for (const { of, begin, end, at } of runs)
    attention.kernels.memory
      .f32(x + 4 * at * dModel, (end - begin) * dModel)
      .set(of.call.x.subarray(begin * dModel, end * dModel));
  return { at: pointer.f32(x), stride: dModel };
}

/** Attends with the rows of a chunk, and copies the outputs to the ys. */
function* attendChunk({ work, y }: LatentPass, path: LatentPath, runs: Runs<PassCall>, x: Rows): Steps {
  const { kernels, config } = work.attention;
  const { dModel } = config;
  const out = { at: pointer.f32(work.base + y), stride: stridesOf(config).y };
  if (path === "absorbed") yield* attendAbsorbed(work, runs, { x, out });
  else yield* attendExpanded(work, runs, { x, out });
  for (const { of, begin, end, at } of runs) {
    const rows = kernels.memory.f32(out.at + 4 * at * out.stride, (end - begin) * out.stride);
    copyRows(of.y, begin * dModel, dModel, rows, out.stride, dModel);
  }
}
