import { PANEL, ROW_STATE, SCRATCH_STRIP, TILE_ROWS } from "../assembly/layout.ts";
import {
  ATTENTION_SHAPE_BYTES,
  type AttentionShape,
  type F32Ptr,
  NULL,
  type PagesPtr,
  storeAttentionShape,
} from "./abi.ts";
import type { Kernels } from "./kernels.ts";
import { type CheckedMasks, type MaskTarget, maskElements, writeBias, writeKeep } from "./mask.ts";
import { type Layout, pointer } from "./memory.ts";

/** Query tokens that are worked on at a time: enough for the tiles to be full, few enough that scratch stays small. */
export const SEGMENT_TOKENS = 256;

/** Rows that a call of `rows` rows works on at a time. */
export function segmentRows(rows: number): number {
  return Math.min(rows, SEGMENT_TOKENS);
}

/** Cuts rows into those that are worked on at a time. */
export function eachChunk(rows: number, work: (begin: number, end: number) => void): void {
  for (let begin = 0; begin < rows; begin += SEGMENT_TOKENS) work(begin, Math.min(rows, begin + SEGMENT_TOKENS));
}

/** Cuts rows begin..end of [batch, len] at the batch rows: work(batchRow, from, to) with tokens from..to of it. */
export function eachBatchRow(
  len: number,
  begin: number,
  end: number,
  work: (batchRow: number, from: number, to: number) => void,
): void {
  for (let row = begin; row < end; ) {
    const batchRow = Math.floor(row / len);
    const from = row - batchRow * len;
    const to = Math.min(len, from + end - row);
    work(batchRow, from, to);
    row += to - from;
  }
}

/** What all segments of a call share: the rules and strides of an AttentionShape. */
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

/** Unbounded, for a kernel that adds it to a position. */
const FAR = 2 ** 30;

/** The sides of the window as the kernels take them; causal closes the right one. */
export function windowSides(causal: boolean, window: { left: number; right: number }): { left: number; right: number } {
  return { left: Math.min(window.left, FAR), right: causal ? 0 : Math.min(window.right, FAR) };
}

/** Tokens begin..end of one batch row as queries, the first at `position`, over the first `kvLen` keys of its pages. */
export interface Segment {
  readonly batchRow: number;
  readonly begin: number;
  readonly end: number;
  readonly position: number;
  readonly kvLen: number;
  readonly q: F32Ptr;
  readonly out: F32Ptr;
  readonly pages: PagesPtr;
}

/** Where a segment's parts lie in the call's scratch. */
export interface SegmentPlaces {
  readonly shape: number;
  readonly work: number;
  readonly keep: number;
  readonly bias: number;
  readonly lse: number;
  readonly scores: number;
}

/** Columns of the unfused road: the keys, then the extra key, then the zero key. */
export function columnsOf(kvLen: number, extraKey: boolean, zeroKey: boolean): number {
  return kvLen + Number(extraKey) + Number(zeroKey);
}

/** Takes scratch for segments of up to `tokens` query tokens; `scoreColumns` is 0 where no scores are read. */
export function placeSegment(
  layout: Layout,
  { numHeads, headDim, valueDim }: Pick<CallShape, "numHeads" | "headDim" | "valueDim">,
  masks: CheckedMasks,
  target: MaskTarget,
  tokens: number,
  scoreColumns: number,
): SegmentPlaces {
  const mask = maskElements(masks, target, tokens);
  const columns = PANEL * Math.ceil(valueDim / PANEL);
  return {
    shape: layout.take(ATTENTION_SHAPE_BYTES),
    work: layout.floats(TILE_ROWS * (headDim + columns + ROW_STATE) + SCRATCH_STRIP),
    keep: layout.take(masks.keep.length || scoreColumns ? mask : 0),
    bias: layout.floats(masks.bias ? mask : 0),
    lse: layout.floats(numHeads * tokens),
    scores: layout.floats(tokens * scoreColumns),
  };
}

/** The fused road: writes the segment's outputs, and its log-sum-exp rows [numHeads][tokens] at `places.lse`. */
export function attendSegment(
  kernels: Kernels,
  base: number,
  places: SegmentPlaces,
  call: CallShape,
  masks: CheckedMasks,
  target: MaskTarget,
  segment: Segment,
): void {
  const tokens = segment.end - segment.begin;
  const keep = masks.keep.length > 0;
  const shape = storeShape(kernels, base, places, call, masks, target, segment, segment.kvLen, keep);
  const work = pointer.f32(base + places.work);
  kernels.table.attention_f32(segment.out, segment.q, segment.pages, work, shape, 0, call.numHeads * tokens);
}

/** The stages of the score matrix that can be read: 0 raw, 1 softcapped, 2 masked, 3 weights. */
export type ScoreStage = 0 | 1 | 2 | 3;

/**
 * The unfused road: the score matrix of a segment at a stage, row by row into `into` [batch, numHeads, qLen, columns].
 * Keys that a row lacks (segment.kvLen < target.kvLen) are masked ones here.
 */
export function readScores(
  kernels: Kernels,
  base: number,
  places: SegmentPlaces,
  call: CallShape,
  masks: CheckedMasks,
  target: MaskTarget,
  segment: Segment,
  stage: ScoreStage,
  into: Float32Array,
): void {
  const tokens = segment.end - segment.begin;
  const columns = columnsOf(target.kvLen, call.extraKey !== NULL, call.zeroKey === 1);
  const keep = masks.keep.length > 0 || segment.kvLen < target.kvLen;
  const shape = storeShape(kernels, base, places, call, masks, target, segment, target.kvLen, keep);
  const scores = pointer.f32(base + places.scores);
  for (let head = 0; head < call.numHeads; head++) {
    kernels.table.scores_f32(scores, segment.q, segment.pages, shape, head, Math.min(stage, 2), 0, tokens);
    if (stage === 3) kernels.table.masked_softmax_f32(scores, scores, shape, head, 0, tokens);
    const row = (segment.batchRow * call.numHeads + head) * target.qLen + segment.begin;
    into.set(kernels.memory.f32(scores, tokens * columns), row * columns);
  }
}

function storeShape(
  { memory }: Kernels,
  base: number,
  places: SegmentPlaces,
  call: CallShape,
  masks: CheckedMasks,
  target: MaskTarget,
  { batchRow, begin, end, position, kvLen: length }: Segment,
  kvLen: number,
  keep: boolean,
): ReturnType<typeof pointer.attentionShape> {
  const tokens = end - begin;
  const elements = maskElements(masks, target, tokens);
  if (keep) writeKeep(memory.u8(base + places.keep, elements), masks, target, batchRow, begin, end, length);
  if (masks.bias) writeBias(memory.f32(base + places.bias, elements), masks, target, batchRow, begin, end);
  const rowStride = masks.perRow ? target.kvLen : 0;
  const headStride = masks.perHead ? (masks.perRow ? tokens : 1) * target.kvLen : 0;
  storeAttentionShape(memory.view(), base + places.shape, {
    ...call,
    qLen: tokens,
    kvLen,
    qStart: position,
    keep: keep ? pointer.u8(base + places.keep) : NULL,
    keepHeadStride: headStride,
    keepRowStride: rowStride,
    bias: masks.bias ? pointer.f32(base + places.bias) : NULL,
    biasHeadStride: headStride,
    biasRowStride: rowStride,
    lse: pointer.f32(base + places.lse),
  });
  return pointer.attentionShape(base + places.shape);
}
