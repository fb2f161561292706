import { PAGE, QUERY_HEAD, ROW_STATE, SCRATCH_STRIP, TILE_ROWS } from "../../../assembly/layout.ts";
import { LARGEST_INT } from "../../base/util/arguments.ts";
import { type RowRun, tokenRunsOf } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { AttentionShape, type F32Ptr, NULL, type PagesPtr } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { type Layout, pointer } from "../../wasm/memory.ts";
import { wholePanels } from "../linear/formats.ts";
import { formatScratch, type PageLayout } from "../state/pages.ts";
import type { CheckedRules } from "./config.ts";
import { type CheckedMasks, type MaskTarget, maskElements, type Placement, writeBias, writeKeep } from "./mask.ts";

/** The part of an AttentionShape that all segments of a call share: rules and strides. */
export type CallShape = Pick<
  AttentionShape,
  | "numHeads"
  | "numKvHeads"
  | "headDim"
  | "valueDim"
  | "qStride"
  | "qHeadStride"
  | "outStride"
  | "outHeadStride"
  | "left"
  | "right"
  | "scale"
  | "softcap"
  | "slopes"
  | "sinks"
  | "extraKey"
  | "extraValue"
  | "zeroKey"
>;

/** Stands for "unbounded" in kernels, which add it to a position. */
const FAR = 2 ** 30;

/** The CallShape of heads of these sizes under these rules; absent vectors have no effect. */
export function callShape(
  { numHeads, numKvHeads, headDim, valueDim }: Pick<CallShape, "numHeads" | "numKvHeads" | "headDim" | "valueDim">,
  { causal, window, scale, softcap }: Pick<CheckedRules, "causal" | "window" | "scale" | "softcap">,
  vectors: Pick<CallShape, "slopes" | "sinks"> & Partial<Pick<CallShape, "extraKey" | "extraValue" | "zeroKey">>,
  strides: Pick<CallShape, "qStride" | "qHeadStride" | "outStride" | "outHeadStride">,
): CallShape {
  return {
    ...{ numHeads, numKvHeads, headDim, valueDim, scale, softcap },
    left: Math.min(window.left, FAR),
    right: causal ? 0 : Math.min(window.right, FAR),
    ...{ extraKey: NULL, extraValue: NULL, zeroKey: 0 },
    ...vectors,
    ...strides,
  };
}

/**
 * Tokens begin..end of one batch row as queries, the first at `position`; they may attend the first `kvLen` keys of its
 * pages.
 */
export interface Segment {
  readonly batchRow: number;
  readonly begin: number;
  readonly end: number;
  readonly position: number;
  readonly kvLen: number;
  readonly q: F32Ptr;
  readonly out: F32Ptr;
  readonly pages: PagesPtr;
  readonly layout: PageLayout;
}

/** A segment whose first token is row `at` of the rows that are computed together. */
export type PlacedSegment = Omit<Segment, "q" | "out" | "pages" | "layout"> & { readonly at: number };

/** A segment whose queries see `left` keys before theirs, if that is not by the rules of the call, of pages behind the first `before`. */
export interface CutSegment extends PlacedSegment {
  readonly left?: number;
  readonly before?: number;
}

/** The most mask elements that are written in one step, if steps are bounded. */
const STEP_MASK_ELEMENTS = 2 ** 21;

/** The queries of a call, and which keys they may attend. */
interface QueryTokens {
  readonly placements: readonly Placement[];
  readonly qLen: number;
  readonly masks: CheckedMasks;
  readonly target: MaskTarget;
}

/**
 * Cuts a run of queries into segments: at batch rows; with masks, so that a step writes a bounded number of elements;
 * and where keys age `inStep`, at page boundaries.
 */
export function* segmentsOf(
  { placements, qLen, masks, target }: QueryTokens,
  run: RowRun<unknown>,
  inStep: boolean,
  stepFlops: number,
): Generator<PlacedSegment, void, void> {
  const most = stepFlops === Infinity ? qLen : Math.ceil(STEP_MASK_ELEMENTS / maskElements(masks, target, 1));
  for (const { batchRow, from, to, at } of tokenRunsOf(run, qLen)) {
    const { position, kvLen } = placements[batchRow] as Placement;
    for (let begin = 0, end = 0; begin < to - from; begin = end) {
      const first = position + from + begin;
      end = Math.min(to - from, begin + (masks.perRow ? most : qLen));
      if (inStep) end = Math.min(end, begin + PAGE - (first % PAGE));
      yield { batchRow, begin: from + begin, end: from + end, position: first, kvLen, at: at + begin };
    }
  }
}

/**
 * Cuts a segment whose queries attend keys of their own `chunk` of tokens alone. A chunk that begins with a page is attended like a sequence of its own, `before` pages behind the first one. In others, and
 * where keys are read by their positions (`isRead`), each query has a `left` of its own.
 */
export function* inChunks(whole: PlacedSegment, chunk: number, isRead: boolean): Generator<CutSegment, void, void> {
  const { begin, end, position, kvLen, at } = whole;
  if (position + end - begin <= chunk) {
    yield whole;
    return;
  }
  for (let from = begin, to = begin; from < end; from = to) {
    const own = position + from - begin;
    const first = own - (own % chunk);
    const isPaged = first % PAGE === 0 && (first === 0 || !isRead);
    to = isPaged ? Math.min(end, from + first + chunk - own) : from + 1;
    const placed = { ...whole, begin: from, end: to, at: at + from - begin };
    yield isPaged
      ? { ...placed, position: own - first, kvLen: kvLen - first, before: first / PAGE }
      : { ...placed, position: own, left: own - first };
  }
}

/** Offsets of a segment's parts in the scratch of the call. */
export interface SegmentPlaces {
  readonly shape: number;
  readonly work: number;
  readonly keep: number;
  readonly bias: number;
  readonly lse: number;
  readonly scores: number;
}

/** Columns of the unfused path's score matrix: the keys, then the extra key, then the zero key. */
export function scoreColumns(kvLen: number, extraKey: boolean, zeroKey: boolean): number {
  return kvLen + Number(extraKey) + Number(zeroKey);
}

/** The largest needs of segments besides their head sizes: tokens, and elements of masks, scores and kernel scratch. */
export interface SegmentNeeds {
  readonly tokens: number;
  readonly work: number;
  readonly keep: number;
  readonly bias: number;
  readonly scores: number;
}

/**
 * The needs of segments of up to `tokens` query tokens, for which attention_f32 needs `work` floats of scratch;
 * `scoreColumns` is 0 if no scores are read.
 */
export function segmentNeeds(
  masks: CheckedMasks,
  target: MaskTarget,
  tokens: number,
  scoreColumns: number,
  work: number,
): SegmentNeeds {
  const mask = maskElements(masks, target, tokens);
  return {
    tokens,
    work,
    keep: masks.keep.length || scoreColumns ? mask : 0,
    bias: masks.bias ? mask : 0,
    scores: tokens * scoreColumns,
  };
}

/** Floats of scratch that the attention kernel needs for pages of these formats, at any length. */
export function workFloats(pages: Pick<PageLayout, "headDim" | "valueDim" | "formats">): number {
  const { headDim, valueDim } = pages;
  const { query, page } = formatScratch(pages);
  const formatBytes = TILE_ROWS * (query > 0 ? QUERY_HEAD + query : 0) + page;
  return TILE_ROWS * (headDim + wholePanels(valueDim) + ROW_STATE) + SCRATCH_STRIP + formatBytes / 4;
}

/** Places scratch that suffices for each of these needs; segments use it one after the other. */
export function placeSegment(
  layout: Layout,
  { numHeads }: Pick<CallShape, "numHeads">,
  needs: readonly SegmentNeeds[],
): SegmentPlaces {
  const most = (need: keyof SegmentNeeds) => needs.reduce((largest, one) => Math.max(largest, one[need]), 0);
  return {
    shape: layout.take(AttentionShape.bytes),
    work: layout.floats(most("work")),
    keep: layout.take(most("keep")),
    bias: layout.floats(most("bias")),
    lse: layout.floats(numHeads * most("tokens")),
    scores: layout.floats(most("scores")),
  };
}

/** What the segments of a call share: its scratch at `base`, its rules and its masks. */
interface SegmentWork {
  readonly kernels: Kernels;
  readonly base: number;
  readonly places: SegmentPlaces;
  readonly call: CallShape;
  readonly masks: CheckedMasks;
  readonly target: MaskTarget;
}

/**
 * Runs rows begin..end of a segment of `shape` in place of its attention kernel, with the same bits: see measure.ts. Rows come in
 * ascending order.
 */
export type Measure = (
  segment: Segment,
  shape: ReturnType<typeof pointer.attentionShape>,
  begin: number,
  end: number,
) => void;

/** Steps consist of whole strips of the kernel's tiles. */
const STEP_ROWS = 6;

/**
 * The fused path: writes a segment's outputs, and its log-sum-exp rows [numHeads][tokens] at `places.lse`, in steps of
 * about `stepFlops`.
 */
export function* attendSegment(of: SegmentWork, segment: Segment, stepFlops: number, measure?: Measure): Steps {
  const { kernels, base, places, call, masks } = of;
  const shape = storeShape(of, segment, segment.kvLen, masks.keep.length > 0);
  const attention = kernels.table[segment.layout.kernels.attention];
  const work = pointer.f32(base + places.work);
  const rows = call.numHeads * (segment.end - segment.begin);
  const rowFlops = segmentFlops(call, segment) / rows;
  const stepRows = STEP_ROWS * Math.max(1, Math.floor(stepFlops / (rowFlops * STEP_ROWS)));
  for (let begin = 0; begin < rows; begin += stepRows) {
    const end = Math.min(rows, begin + stepRows);
    if (measure) measure(segment, shape, begin, end);
    else attention(segment.out, segment.q, segment.pages, work, shape, begin, end);
    yield (end - begin) * rowFlops;
  }
}

/** Floating-point operations of a segment if each query attended every key that any of them may attend. */
export function segmentFlops(
  call: CallShape,
  { begin, end, position, kvLen }: Pick<Segment, "begin" | "end" | "position" | "kvLen">,
): number {
  const last = position + end - begin - 1;
  const keys = Math.min(kvLen, last + call.right + 1) - Math.max(0, position - call.left);
  return 2 * call.numHeads * (end - begin) * Math.max(1, keys) * (call.headDim + call.valueDim);
}

/** The stages of the score matrix that can be read: 0 raw, 1 softcapped, 2 masked, 3 weights. */
export type ScoreStage = 0 | 1 | 2 | 3;

/**
 * The unfused path: writes the scores of a segment at a stage to its rows of `into` [batch, numHeads, qLen, columns].
 * Keys that a row lacks (segment.kvLen < target.kvLen) are masked.
 */
export function readScores(work: SegmentWork, segment: Segment, stage: ScoreStage, into: Float32Array): void {
  const { kernels, base, places, call, masks, target } = work;
  const tokens = segment.end - segment.begin;
  const columns = scoreColumns(target.kvLen, call.extraKey !== NULL, call.zeroKey === 1);
  const keep = masks.keep.length > 0 || segment.kvLen < target.kvLen;
  const shape = storeShape(work, segment, target.kvLen, keep);
  const scores = pointer.f32(base + places.scores);
  const { table } = kernels;
  for (let head = 0; head < call.numHeads; head++) {
    table[segment.layout.kernels.scores](scores, segment.q, segment.pages, shape, head, Math.min(stage, 2), 0, tokens);
    if (stage === 3) table.masked_softmax_f32(scores, scores, shape, head, 0, tokens);
    const row = (segment.batchRow * call.numHeads + head) * target.qLen + segment.begin;
    into.set(kernels.memory.f32(scores, tokens * columns), row * columns);
  }
}

/** A bias in memory, in place of that of the masks. */
interface ShapeBias {
  readonly at: F32Ptr;
  readonly headStride: number;
  readonly rowStride: number;
}

/** Writes the shape of a segment, and its masks, to `places`. */
export function storeShape(
  { kernels: { memory }, base, places, call, masks, target }: SegmentWork,
  { batchRow, begin, end, position, kvLen: length, layout }: Segment,
  kvLen: number,
  keep: boolean,
  bias?: ShapeBias,
): ReturnType<typeof pointer.attentionShape> {
  const tokens = end - begin;
  const elements = maskElements(masks, target, tokens);
  if (keep) writeKeep(memory.u8(base + places.keep, elements), masks, target, batchRow, begin, end, length);
  if (masks.bias) writeBias(memory.f32(base + places.bias, elements), masks, target, batchRow, begin, end);
  const rowStride = masks.perRow ? target.kvLen : 0;
  const headStride = masks.perHead ? (masks.perRow ? tokens : 1) * target.kvLen : 0;
  AttentionShape.store(memory.view(), base + places.shape, {
    ...call,
    qLen: tokens,
    kvLen,
    qStart: position,
    // Positions of 2^30 and more would overflow with FAR.
    right: Math.min(call.right, LARGEST_INT - position - tokens),
    keep: keep ? pointer.u8(base + places.keep) : NULL,
    keepHeadStride: headStride,
    keepRowStride: rowStride,
    bias: bias?.at ?? (masks.bias ? pointer.f32(base + places.bias) : NULL),
    biasHeadStride: bias?.headStride ?? headStride,
    biasRowStride: bias?.rowStride ?? rowStride,
    lse: pointer.f32(base + places.lse),
    formats: layout.formats,
  });
  return pointer.attentionShape(base + places.shape);
}
