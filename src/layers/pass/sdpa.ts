import { PAGE, TILE_ROWS } from "../../../assembly/layout.ts";
import {
  blockStrides,
  eachRun,
  type HeadLayout,
  type HeadSizes,
  headShape,
  headSizes,
} from "../../base/tensor/head-layout.ts";
import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import { chunksOf } from "../../base/util/rows.ts";
import { finish } from "../../base/util/steps.ts";
import { type F32Ptr, NULL } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import type { CheckedRules } from "../attention/config.ts";
import type { CheckedMasks, MaskTarget } from "../attention/mask.ts";
import { type Placement, seesLater } from "../attention/positions.ts";
import {
  attendSegment,
  type CallShape,
  callShape,
  type Measure,
  placeSegment,
  readScores,
  type ScoreStage,
  type SegmentPlaces,
  segmentNeeds,
  workFloats,
} from "../attention/segment.ts";
import type { KvCache } from "../state/kv-cache.ts";
import { createPageLayout, type PageLayout } from "../state/pages.ts";
import { agePages, allocatePages, appendRows, type Pages, pageTable, placeRows, storeRows } from "../state/table.ts";

/** Tokens of a chunk: two tiles of the kernel. */
export const CHUNK_TOKENS: number = 2 * TILE_ROWS;

/** A checked call on queries, keys and values, with past keys and values in tensors or in a cache, or without. */
export interface HeadsCall {
  readonly where: string;
  readonly layout: HeadLayout;
  readonly rules: CheckedRules;
  readonly sizes: { readonly queries: HeadSizes; readonly keys: HeadSizes; readonly values: HeadSizes };
  readonly past: { readonly key: Tensor; readonly value: Tensor } | undefined;
  readonly cache: KvCache | undefined;
  readonly present: boolean;
  readonly sinkLogits: Float32Array | undefined;
  readonly stage: ScoreStage | undefined;
  readonly lse: boolean;
  readonly placements: readonly Placement[];
  readonly target: MaskTarget;
  readonly masks: CheckedMasks;
}

/** The results that the call requested. */
interface HeadsResult {
  readonly output: Tensor;
  readonly scores: Tensor | undefined;
  readonly lse: Tensor | undefined;
}

/** Copies keys and values into the cache, or into temporary pages that are freed, and attends. */
export function forwardHeads(
  kernels: Kernels,
  call: HeadsCall,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  measure?: Measure,
): HeadsResult {
  const { where, sizes, target, layout, cache } = call;
  const { queries, keys, values } = sizes;
  const { rank, batch, heads, len } = queries;
  const shape = { numKvHeads: keys.heads, headDim: keys.dim, valueDim: values.dim };
  const pageLayout = cache?.pages.layout ?? createPageLayout(shape);
  const outSizes = { ...queries, dim: values.dim };
  const tensor = (name: string, shape: number[]): Tensor => {
    const length = shape.reduce((a, b) => a * b, 1);
    return { data: createFloats(where, name, length), shape: shape.slice(4 - rank) };
  };
  const results = {
    output: tensor("output", headShape({ ...outSizes, rank: 4 }, layout)),
    scores: call.stage === undefined ? undefined : tensor("scores", [batch, heads, len, target.kvLen]),
    lse: call.lse ? tensor("lse", [batch, heads, len]) : undefined,
  };
  if (q.data.length === 0 && !cache) return results;
  // Scratch is taken last: once grown it stays so, and nothing may fail after it.
  const pages = cache?.pages ?? allocatePages(where, kernels, pageLayout, batch, target.kvLen);
  try {
    const places = placeCall(call, pageLayout);
    const pass: HeadsPass = {
      kernels,
      call,
      pages,
      base: kernels.memory.scratch(where, places.bytes),
      places,
      measure,
    };
    cache?.begin();
    for (let b = 0; b < batch; b++) runRow(pass, q, k, v, b, outSizes, results);
  } finally {
    if (!cache) kernels.memory.free(pages.at);
  }
  cache?.commit(keys.len);
  return results;
}

/** Appends the keys and values of one batch row and attends to them. */
function runRow(
  pass: HeadsPass,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  batchRow: number,
  outSizes: HeadSizes,
  results: HeadsResult,
): void {
  const { kernels, call, pages } = pass;
  const { past, cache, layout, rules } = call;
  const { queries, keys } = call.sizes;
  const held = cache?.length ?? (past ? headSizes(past.key, layout).len : 0);
  const age = (end: number) => agePages(call.where, kernels, pages, batchRow, Math.floor((end - 1) / PAGE));
  if (pages.ages && queries.len === keys.len && !seesLater(rules)) {
    // Pages age with the queries: each piece lies in one page.
    for (let begin = 0, end = 0; begin < keys.len; begin = end) {
      end = Math.min(keys.len, begin + Math.min(CHUNK_TOKENS, PAGE - ((held + begin) % PAGE)));
      append(pass, k, v, batchRow, held, begin, end);
      age(held + end);
      attendTokens(pass, q, batchRow, begin, end, outSizes, results);
    }
    return;
  }
  if (past)
    for (const [begin, end] of chunksOf(held, CHUNK_TOKENS))
      append(pass, past.key, past.value, batchRow, 0, begin, end);
  for (const [begin, end] of chunksOf(keys.len, CHUNK_TOKENS)) {
    append(pass, k, v, batchRow, held, begin, end);
    age(held + end);
  }
  for (const [begin, end] of chunksOf(queries.len, CHUNK_TOKENS))
    attendTokens(pass, q, batchRow, begin, end, outSizes, results);
}

interface CallPlaces {
  readonly bytes: number;
  readonly q: number;
  readonly k: number;
  readonly v: number;
  readonly out: number;
  readonly slopes: number;
  readonly sinks: number;
  readonly keyRows: number;
  readonly segment: SegmentPlaces;
}

function placeCall({ sizes, masks, target, stage, past, layout }: HeadsCall, pageLayout: PageLayout): CallPlaces {
  const { queries, keys, values } = sizes;
  const queryTokens = Math.min(queries.len, CHUNK_TOKENS);
  const longest = Math.max(keys.len, past ? headSizes(past.key, layout).len : 0);
  const keyTokens = Math.min(longest, CHUNK_TOKENS);
  const dims = { numHeads: queries.heads };
  const parts = new Layout();
  // The keys of a piece are in their pages before its queries are copied: both use the same memory.
  const [k, v] = [keyTokens * keys.heads * keys.dim, keyTokens * values.heads * values.dim];
  const [q, out] = [queryTokens * queries.heads * queries.dim, queryTokens * queries.heads * values.dim];
  const [first, second] = [parts.floats(Math.max(q, k)), parts.floats(Math.max(out, v))];
  const places = {
    ...{ q: first, k: first, out: second, v: second },
    slopes: parts.floats(queries.heads),
    sinks: parts.floats(queries.heads),
    keyRows: placeRows(parts),
    segment: placeSegment(parts, dims, [
      segmentNeeds(masks, target, queryTokens, stage === undefined ? 0 : target.kvLen, workFloats(pageLayout)),
    ]),
  };
  return { ...places, bytes: parts.bytes };
}

interface HeadsPass {
  readonly kernels: Kernels;
  readonly call: HeadsCall;
  readonly pages: Pages;
  readonly base: number;
  readonly places: CallPlaces;
  readonly measure: Measure | undefined;
}

/** Copies tokens begin..end of k and v into the pages of a batch row; token 0 is at absolute position `past`. */
function append(
  { kernels, call, pages, base, places }: HeadsPass,
  k: Tensor,
  v: Tensor,
  batchRow: number,
  past: number,
  begin: number,
  end: number,
): void {
  const { layout } = call;
  const keys = headSizes(k, layout);
  const values = headSizes(v, layout);
  const rows = { k: pointer.f32(base + places.k), v: pointer.f32(base + places.v) };
  const tokens = end - begin;
  copyIn(kernels, rows.k, k, keys, layout, batchRow, begin, end);
  copyIn(kernels, rows.v, v, values, layout, batchRow, begin, end);
  const [kStrides, vStrides] = [blockStrides(keys, layout, tokens), blockStrides(values, layout, tokens)];
  const shape = storeRows(kernels, base + places.keyRows, pages.layout, {
    kStride: kStrides.stride,
    kHeadStride: kStrides.headStride,
    vStride: vStrides.stride,
    vHeadStride: vStrides.headStride,
  });
  appendRows(kernels, pages, batchRow, shape, rows, past + begin, tokens);
}

/** Attends with query tokens begin..end of one batch row. */
function attendTokens(
  pass: HeadsPass,
  q: Tensor,
  batchRow: number,
  begin: number,
  end: number,
  outSizes: HeadSizes,
  { output, scores, lse }: HeadsResult,
): void {
  const { kernels, call, pages, base, places, measure } = pass;
  const { memory } = kernels;
  const { layout, masks, target, stage } = call;
  const { queries } = call.sizes;
  const tokens = end - begin;
  const { position, kvLen } = call.placements[batchRow] as Placement;
  const shape = headsShape(pass, tokens);
  const segment = {
    batchRow,
    begin,
    end,
    position: position + begin,
    kvLen,
    q: pointer.f32(base + places.q),
    out: pointer.f32(base + places.out),
    pages: pageTable(pages, batchRow),
    layout: pages.layout,
  };
  copyIn(kernels, segment.q, q, queries, layout, batchRow, begin, end);
  finish(attendSegment(kernels, base, places.segment, shape, masks, target, segment, Infinity, measure));
  eachRun(outSizes, layout, batchRow, begin, end, (to, from, floats) =>
    output.data.set(memory.f32(segment.out + from * 4, floats), to),
  );
  for (let h = 0; lse && h < queries.heads; h++) {
    const row = (batchRow * queries.heads + h) * queries.len + begin;
    lse.data.set(memory.f32(base + places.segment.lse + h * tokens * 4, tokens), row);
  }
  if (scores && stage !== undefined)
    readScores(kernels, base, places.segment, shape, masks, target, segment, stage, scores.data);
}

function headsShape({ kernels, call, pages, base, places }: HeadsPass, tokens: number): CallShape {
  const { rules, layout, sinkLogits } = call;
  const { queries, values } = call.sizes;
  const q = blockStrides(queries, layout, tokens);
  const out = blockStrides({ ...queries, dim: values.dim }, layout, tokens);
  const vector = (at: number, data: Float32Array | undefined) => {
    if (!data) return NULL;
    kernels.memory.f32(base + at, data.length).set(data);
    return pointer.f32(base + at);
  };
  return callShape(
    { numHeads: queries.heads, ...pages.layout },
    rules,
    { slopes: vector(places.slopes, rules.slopes), sinks: vector(places.sinks, sinkLogits) },
    { qStride: q.stride, qHeadStride: q.headStride, outStride: out.stride, outHeadStride: out.headStride },
  );
}

function copyIn(
  { memory }: Kernels,
  to: F32Ptr,
  tensor: Tensor,
  sizes: HeadSizes,
  layout: HeadLayout,
  batchRow: number,
  begin: number,
  end: number,
): void {
  eachRun(sizes, layout, batchRow, begin, end, (from, block, floats) =>
    memory.f32(to + block * 4, floats).set(tensor.data.subarray(from, from + floats)),
  );
}
