// Scores that depend on how far a key is from the query: by a table (T5, MPNet), or by content.
//
// Disentangled attention (DeBERTa): a score is q·k + q·K[d] + k·Q[d], times the scale, where K[d] and Q[d] are a row of a table, by
// the distance of the query from the key, through the projections of keys and of queries. Both products are scores, too: of queries
// with keys from the table, and of queries from the table with keys. Their sum is a bias of the attention kernel, head by head.

import { PAGE } from "../../../assembly/layout.ts";
import { chunksOf, rowsIn } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { AttentionShape, type F32Ptr, NULL } from "../../wasm/abi.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { wholePanels } from "../linear/formats.ts";
import type { Rows } from "../linear/products.ts";
import type { Runs } from "../mixer/mixer.ts";
import { createPageLayout } from "../state/pages.ts";
import { appendRows, type Pages, pagesAt, pagesBytes, pageTable, storeRows } from "../state/table.ts";
import type { CheckedConfig } from "./config.ts";
import {
  type attendQueries,
  type HeadsLayer,
  type LayerWork,
  normAndRotate,
  projectOutputs,
  projectRows,
  segmentIn,
  stridesOf,
} from "./heads.ts";
import { segmentFlops, segmentsOf, storeShape } from "./segment.ts";
import { projectionSizes } from "./weights.ts";

/** The rows of a table that texts of up to `longest` tokens need. */
interface Distances {
  readonly longest: number;
  /** The rows [count, dModel], of which the first is row `first` of the table. */
  readonly rows: Rows;
  readonly first: number;
  readonly count: number;
  /** The row of the table for a query so many positions behind its key; it does not fall as these grow. */
  rowOf(distance: number): number;
  /** Whether queries are multiplied with the table's keys, and keys with its queries. */
  readonly ofQueries: boolean;
  readonly ofKeys: boolean;
  /** The most rows of a chunk. */
  readonly chunk: number;
}

/** Offsets of what `attendByContent` works in. */
function placeDistances(
  layout: Layout,
  config: CheckedConfig,
  { longest, count, chunk }: Pick<Distances, "longest" | "count" | "chunk">,
) {
  const rows = Math.min(longest, chunk);
  return {
    projected: layout.floats(count * stridesOf(config).qkv),
    pages: layout.take(pagesBytes(createPageLayout(config), 1, count)),
    shape: layout.take(AttentionShape.bytes),
    queryScores: layout.floats(rows * count),
    keyScores: layout.floats(count * longest),
    // The kernel may read 7 floats behind the last one.
    bias: layout.floats(rows * longest + 8),
  };
}

/** Bytes of what `attendByContent` works in. */
export function distanceBytes(config: CheckedConfig, of: Pick<Distances, "longest" | "count" | "chunk">): number {
  const layout = new Layout();
  placeDistances(layout, config, of);
  return layout.bytes;
}

/** Attends with the chunk's projected queries by distances, in place of `attendQueries`. `at` is an address of `distanceBytes`. */
export function attendByContent(distances: Distances, at: number): (work: LayerWork, runs: Runs, out: Rows) => Steps {
  const { rows, first, count, rowOf, ofQueries, ofKeys, chunk } = distances;
  // The layer whose keys and queries of the table are at `at`, and the pages of these keys: chunks of a text share them.
  let ready: { readonly attention: HeadsLayer; readonly pages: Pages } | undefined;
  return function* (work, runs, out) {
    const { attention, places, base, stepFlops, shape: call } = work;
    const { kernels, config } = attention;
    const { memory, table } = kernels;
    const own = placeDistances(new Layout(), config, distances);
    const layout = createPageLayout(config);
    const stride = places.stride.qkv;
    const projected = at + own.projected;
    const keys = projected + 4 * wholePanels(projectionSizes(config).q.n);
    if (ready?.attention !== attention) ready = { attention, pages: yield* prepare() };
    const { pages } = ready;
    const scores = table[layout.kernels.scores];
    const shapeOf = (qLen: number, kvLen: number) => {
      const none = { keep: NULL, keepHeadStride: 0, keepRowStride: 0, bias: NULL, biasHeadStride: 0, biasRowStride: 0 };
      const sizes = { qLen, kvLen, qStart: 0, lse: pointer.f32(base + places.segment.lse), formats: layout.formats };
      AttentionShape.store(memory.view(), at + own.shape, { ...call, ...none, ...sizes });
      return pointer.attentionShape(at + own.shape);
    };
    const [queryScores, keyScores, biasAt] = [own.queryScores, own.keyScores, own.bias].map((place) =>
      pointer.f32(at + place),
    ) as [F32Ptr, F32Ptr, F32Ptr];

    normAndRotate(work, "q", rowsIn(runs));
    for (const run of runs) {
      const { tokens: all, pages: held } = run.of;
      const { masks, target } = all;
      for (const placed of segmentsOf(all, run, false, stepFlops)) {
        const segment = segmentIn(work, held, placed);
        const { begin, end, position, kvLen, q } = segment;
        const tokens = end - begin;
        // Behind the row of the first query and the last key.
        const farthest = position - kvLen + 1;
        const rowsBy = Int32Array.from({ length: tokens + kvLen - 1 }, (_, i) => rowOf(farthest + i) - first);
        const [low, high] = [rowsBy[0] as number, (rowsBy.at(-1) as number) + 1];
        const from = pointer.f32(projected + 4 * low * stride);
        const before = Math.floor(low / PAGE);
        const [origin, columns] = [before * PAGE, high - before * PAGE];
        for (let head = 0; head < config.numHeads; head++) {
          if (ofQueries)
            scores(queryScores, q, pageTable(pages, 0, before), shapeOf(tokens, columns), head, 0, 0, tokens);
          if (ofKeys) scores(keyScores, from, segment.pages, shapeOf(high - low, kvLen), head, 0, 0, high - low);
          const [byQuery, byKey] = [
            memory.f32(queryScores, tokens * columns),
            memory.f32(keyScores, (high - low) * kvLen),
          ];
          const bias = memory.f32(biasAt, tokens * kvLen);
          for (let t = 0; t < tokens; t++)
            for (let j = 0; j < kvLen; j++) {
              const row = rowsBy[t - j + kvLen - 1] as number;
              const added = ofQueries ? (byQuery[t * columns + row - origin] as number) : 0;
              bias[t * kvLen + j] = added + (ofKeys ? (byKey[(row - low) * kvLen + j] as number) : 0);
            }
          const segmentWork = { kernels, base, places: places.segment, call, masks, target };
          const stored = storeShape(segmentWork, segment, kvLen, false, {
            at: biasAt,
            headStride: 0,
            rowStride: kvLen,
          });
          const scratch = pointer.f32(base + places.segment.work);
          const attend = table[segment.layout.kernels.attention];
          attend(segment.out, q, segment.pages, scratch, stored, head * tokens, (head + 1) * tokens);
          yield (3 * segmentFlops(call, segment)) / config.numHeads;
        }
      }
    }
    yield* projectOutputs(work, out, rowsIn(runs));

    /** Projects the rows of the table, and appends its keys to pages. */
    function* prepare(): Steps<Pages> {
      const { q, k } = attention.layer.products;
      for (const [begin, end] of chunksOf(count, chunk)) {
        const placeOf = (address: number) => address - base + 4 * begin * stride;
        const to = { ...work, places: { ...places, q: placeOf(projected), k: placeOf(keys) } };
        const x = { ...rows, at: pointer.f32(rows.at + 4 * begin * rows.stride) };
        yield* projectRows(to, [...q, ...k], x, end - begin);
      }
      const pages = pagesAt(kernels, at + own.pages, layout, 1, count);
      const { headDim: kHeadStride, valueDim: vHeadStride } = config;
      const strides = { kStride: stride, kHeadStride, vStride: stride, vHeadStride };
      const stored = storeRows(kernels, base + places.keyRows, config, strides);
      // Nobody reads their values.
      appendRows(kernels, pages, 0, stored, { k: pointer.f32(keys), v: pointer.f32(keys) }, 0, count);
      return pages;
    }
  };
}

/**
 * What heads add to the scores of keys by their distance from the query, [heads, stride]: entry `zero` of a row is that of the
 * query's own position, the next one that of the next key. Kernels may read 7 floats behind the last distance.
 */
export interface RelativeTable {
  /** The address. */
  readonly at: number;
  readonly zero: number;
  readonly stride: number;
}

/** Attends with a bias by distance. The table is one row for each head, and each query reads it from another place. */
export const attendByDistance = ({ at: table, zero, stride }: RelativeTable): typeof attendQueries =>
  function* (work, runs, out) {
    const { attention, places, base, stepFlops, shape } = work;
    const { kernels, config } = attention;
    const rows = rowsIn(runs);
    normAndRotate(work, "q", rows);
    for (const run of runs) {
      const { tokens, pages } = run.of;
      const { masks, target } = tokens;
      const own = { kernels, base, places: places.segment, call: shape, masks, target };
      for (const placed of segmentsOf(tokens, run, false, stepFlops)) {
        const segment = segmentIn(work, pages, placed);
        const bias = { at: pointer.f32(table + 4 * (zero - segment.position)), headStride: stride, rowStride: -1 };
        const stored = storeShape(own, segment, segment.kvLen, false, bias);
        const { q, out: heads, pages: keys } = segment;
        const scratch = pointer.f32(base + places.segment.work);
        const attend = kernels.table[segment.layout.kernels.attention];
        attend(heads, q, keys, scratch, stored, 0, config.numHeads * (segment.end - segment.begin));
        yield segmentFlops(shape, segment);
      }
    }
    yield* projectOutputs(work, out, rows);
  };
