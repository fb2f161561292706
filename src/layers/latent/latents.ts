// Layers of latent attention as a mixer: what their pages hold, which path runs, in which chunks, and at what cost.

import { LATENT_PAGES } from "../../../assembly/layout.ts";
import { expectOneOf } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
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
import { type Layout, pointer } from "../../wasm/memory.ts";
import { segmentsOf } from "../attention/heads.ts";
import { onPages } from "../attention/kv-state.ts";
import type { CheckedMasks, MaskTarget } from "../attention/mask.ts";
import { seesLater } from "../attention/positions.ts";
import { type SegmentNeeds, segmentFlops, segmentNeeds, workFloats } from "../attention/segment.ts";
import { wholePanels } from "../linear/formats/format.ts";
import { linearFlops, type Rows } from "../linear/products.ts";
import type { Mixer, MixerCall, PassCall, Passes, Runs } from "../mixer/mixer.ts";
import { expectIntegerDim } from "../state/formats.ts";
import { createPageLayout, type PageKind, type PageShape } from "../state/pages.ts";
import type { KvState } from "../state/state.ts";
import type { CheckedLatentConfig } from "./config.ts";
import {
  absorbedShape,
  absorbedSizes,
  appendLatents,
  attendAbsorbed,
  attendExpanded,
  blockBytes,
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
import type { LatentFormats } from "./weights.ts";

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
export const LATENTS: Mixer<LatentsLayer, KvState> = {
  callsOnlyKernels: false,
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
    return function* (base, stepFlops, states, { x, out, tap, maps, measure }) {
      const runs = onPages(states);
      const work = { attention, places, base, stepFlops, block: base + block, maps, tap, measure };
      yield* appendLatents(work, runs, x);
      yield* attendAbsorbed(work, runs, { x, out });
    };
  },
};

/** How `attend` runs layers of latent attention. */
export const LATENT_PASSES: Passes<LatentsLayer> = {
  check(where, { keys, values, append }) {
    for (const [name, rows] of Object.entries({ keys, values }))
      if (rows !== undefined)
        throw new RangeError(`${where}: ${name} expected none with latent attention, got ${describe(rows)}`);
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
export function latentNeeds(
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
