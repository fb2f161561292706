// How layers of `createLatentAttention` run: which path, in which chunks, and at what cost.

import type { CheckedMasks, MaskTarget } from "../../attention/mask.ts";
import { seesLater } from "../../attention/positions.ts";
import { createPageLayout } from "../../cache/page-layout.ts";
import { pagesBytes } from "../../cache/pages.ts";
import type { CheckedLatentConfig } from "../../latent/config.ts";
import { linearFlops } from "../../linear/linear.ts";
import { expectOneOf } from "../../util/arguments.ts";
import { CHUNK_ROWS, chunksOf, type RowRun, runsOf, tokenRunsOf } from "../../util/rows.ts";
import type { Steps } from "../../util/steps.ts";
import { type SegmentNeeds, segmentFlops, segmentNeeds, workFloats } from "../attend-segment.ts";
import type { AttendCall } from "../call.ts";
import type { LayerPass } from "../forward.ts";
import { segmentsOf } from "../layer-steps.ts";
import { type PassCall, queryRows } from "../pass.ts";
import { absorbedShape, absorbedSizes, attendAbsorbed } from "./absorbed.ts";
import { attendExpanded, expandedBytes, expandedShape, groupOf, keysOf, piecesOf } from "./expanded.ts";
import { type LatentPath, latentChunkRows, mapKeySizes, PATHS, placeLatentPass } from "./scratch.ts";
import { appendLatents, copyIn, type LatentParts, type LatentWork } from "./steps.ts";

/** How layers of `createLatentAttention` run. */
export const LATENT_PASS: LayerPass = {
  prepare(layer, calls, maps) {
    const attention = layer as unknown as LatentParts;
    const { config, latents } = attention;
    const path = pathOf(attention, calls);
    const total = calls.reduce((sum, call) => sum + queryRows(call), 0);
    const rows = latentChunkRows(config, path, total);
    const columns = maps ? Math.max(...calls.map(({ target }) => target.kvLen)) : 0;
    const needs = calls.map(({ masks, target, cache }) => {
      const { formats } = cache?.pages.layout ?? createPageLayout(attention.pageShape);
      return latentNeeds(config, path, masks, target, rows, columns, formats);
    });
    const group = path === "expanded" ? Math.max(...calls.map((call) => groupOf(config, call, maps))) : 0;
    const read = { group, reads: group > 0 || maps };
    const { places, bytes } = placeLatentPass(config, latents.formats, rows, needs, read);
    const extra = Math.max(...calls.map((call) => extraBytes(config, path, call, maps)));
    return {
      ...{ width: config.dModel, columns, bytes, extra },
      run(passCalls, base, stepFlops, into, pagesAt) {
        const work = { attention, places, base, stepFlops, pagesAt, maps: maps ? into : undefined };
        return runPass(passCalls, work, path, total, rows);
      },
    };
  },

  flops(layer, call, stepFlops) {
    const attention = layer as unknown as LatentParts;
    const { config, latents } = attention;
    const path = pathOf(attention, [call]);
    const { qDown, q, kvDown, kAbsorbed, kExpanded, v, o } = latents;
    const total = queryRows(call);
    const expanded = path === "expanded";
    const own = [qDown, q, kvDown, o, ...(expanded ? [] : [...kAbsorbed, ...v])];
    let flops = 0;
    for (const linear of own) if (linear) flops += linearFlops(linear, total);
    const shape = expanded ? expandedShape(config, config.numHeads) : absorbedShape(config);
    const addSegments = (run: RowRun<AttendCall>) => {
      for (const segment of segmentsOf(call, run, false, stepFlops)) flops += segmentFlops(shape, segment);
    };
    for (const [begin, end] of chunksOf(total, latentChunkRows(config, path, total))) {
      const run = { of: call, begin, end, at: 0 };
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

/** Bytes that a call needs besides scratch and the pages of its latents. */
function extraBytes(config: CheckedLatentConfig, path: LatentPath, call: AttendCall, maps: boolean): number {
  if (path === "expanded") return expandedBytes(config, call, maps);
  return maps ? pagesBytes(createPageLayout(mapKeySizes(config)), 1, call.target.kvLen) : 0;
}

/** The path of calls that run together. Throws unless the layer can take them. */
function pathOf({ config, latents }: LatentParts, calls: readonly AttendCall[]): LatentPath {
  const { path: first = "absorbed" } = calls[0] as AttendCall;
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

/** Runs all rows in chunks: appends, then attends; if queries attend later keys, all is appended first. */
function* runPass(calls: readonly PassCall[], work: LatentWork, path: LatentPath, total: number, rows: number): Steps {
  const attend = path === "absorbed" ? attendAbsorbed : attendExpanded;
  // Maps have columns for all keys of a call.
  const later = seesLater(work.attention.config) || work.maps !== undefined;
  const chunk = (begin: number, end: number) => runsOf(calls, ({ call }) => queryRows(call), begin, end);
  for (const [begin, end] of chunksOf(total, rows)) {
    const runs = chunk(begin, end);
    const x = copyIn(work, runs);
    yield* appendLatents(work, runs, x);
    if (!later) yield* attend(work, runs, x);
  }
  if (!later) return;
  for (const [begin, end] of chunksOf(total, rows)) {
    const runs = chunk(begin, end);
    yield* attend(work, runs, copyIn(work, runs));
  }
}
