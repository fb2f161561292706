// Statistics of attention: what measures the rows of a call, in place of its attention kernel where that has the same bits, and
// keeps what it measures.

import {
  KEPT_END,
  KEPT_ROW,
  KEPT_ROWS,
  PAGE,
  QUAD,
  STATISTICS,
  STATISTICS_LISTS,
  STATISTICS_ROW,
  TILE_ROWS,
} from "../../../assembly/layout.ts";
import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import type { WaitingSteps } from "../../base/util/steps.ts";
import { type AttentionShape, NULL, StatisticsShape } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { aligned, Layout, pointer } from "../../wasm/memory.ts";
import type { CheckedRules } from "../attention/config.ts";
import type { MaskTarget } from "../attention/mask.ts";
import { type Measure, type Segment, workFloats } from "../attention/segment.ts";
import type { PageLayout } from "../state/pages.ts";

/** What to measure. */
export interface Wanted {
  readonly topK: number;
  readonly first: number;
  readonly last: number;
  readonly received: boolean;
}

/** Integers with their shape. */
export interface IntTensor {
  /** The elements; as many as the product of `shape`. */
  readonly data: Int32Array;
  /** Dimensions, the outermost first. */
  readonly shape: readonly number[];
}

/** What the kernel writes of each row, in its order. */
const OF_ROWS = ["lse", "mass", "firstMass", "lastMass", "entropy", "distance", "effectiveKeys"] as const;

/** Results [batch, numHeads, qLen], [batch, numHeads, qLen, topK], and [batch, numHeads, kvLen] if they are wanted. */
export type Measured = { [Name in (typeof OF_ROWS)[number] | "topWeights"]: Tensor } & {
  topKeys: IntTensor;
  received: Tensor | undefined;
};

/** The call whose rows are measured. */
export interface MeasuredCall {
  readonly target: MaskTarget;
  /** The most tokens of a segment. */
  readonly tokens: number;
  readonly rules: Pick<CheckedRules, "causal" | "window">;
  readonly layout: Pick<PageLayout, "headDim" | "valueDim" | "formats">;
}

/** Throws NO_STATISTICS with kernels that cannot measure. */
export function expectStatistics(where: string, kernels: Kernels): void {
  if (kernels.statistics) return;
  const text = "statistics need loadKernels({ statistics }), with `statistics` of headwise/inspect";
  throw new HeadwiseError("NO_STATISTICS", `${where}: ${text}`);
}

/**
 * Calls `work` with what measures the rows of each call, and returns what was measured. Memory for that is allocated meanwhile: it
 * holds the rows of one segment, and a sum for each key where `received` is wanted.
 */
export function* measureCalls(
  where: string,
  kernels: Kernels,
  calls: readonly MeasuredCall[],
  wanted: Wanted,
  work: (measures: readonly Measure[]) => WaitingSteps,
): WaitingSteps<Measured[]> {
  const { memory } = kernels;
  const results = calls.map(({ target }) => createResults(where, target, wanted));
  const most = (sizeOf: (call: MeasuredCall) => number) => Math.max(0, ...calls.map(sizeOf));
  const pagesOf = ({ rules, target }: MeasuredCall) => (wanted.received ? keptPages(spanOf(rules), target.kvLen) : 0);
  // Statistics lie behind the kernel's own scratch, 64-byte aligned.
  const workOf = ({ layout }: MeasuredCall) => aligned(4 * workFloats(layout)) / 4;
  const layout = new Layout();
  const shapeAt = layout.take(StatisticsShape.bytes);
  const rowsAt = layout.floats(most(({ target, tokens }) => target.numHeads * tokens) * rowFloats(wanted));
  const scratchAt = layout.take(most((call) => 4 * workOf(call) + statisticsBytes(wanted.topK, pagesOf(call))));
  const receivedAt = calls.map(({ target }) => layout.take(wanted.received ? RECEIVED_BYTES * receivedIn(target) : 0));
  const base = memory.allocate(where, layout.bytes);
  try {
    for (const [i, { target }] of calls.entries())
      if (wanted.received) clearReceived(kernels, base + (receivedAt[i] as number), target);
    yield* work(
      calls.map((call, i): Measure => {
        const { numHeads, kvLen } = call.target;
        return (segment, shape, begin, end) => {
          const sums =
            base + (receivedAt[i] as number) + RECEIVED_BYTES * segment.batchRow * numHeads * wholePages(kvLen);
          StatisticsShape.store(memory.view(), base + shapeAt, {
            ...{ topK: wanted.topK, first: wanted.first, last: wanted.last, work: workOf(call) },
            rows: pointer.f32(base + rowsAt),
            received: wanted.received ? pointer.f64(sums) : NULL,
            receivedStride: wholePages(kvLen),
            keptPages: pagesOf(call),
          });
          const [scratch, statistics] = [pointer.f32(base + scratchAt), pointer.statisticsShape(base + shapeAt)];
          const { out, q, pages } = segment;
          kernels.table.attention_statistics(out, q, pages, scratch, shape, statistics, begin, end);
          if (end === numHeads * (segment.end - segment.begin))
            readRows(kernels, base + rowsAt, segment, call.target, wanted, results[i] as Measured);
        };
      }),
    );
    for (const [i, { target }] of calls.entries())
      readReceived(kernels, base + (receivedAt[i] as number), target, (results[i] as Measured).received);
    return results;
  } finally {
    if (!kernels.released) memory.free(base);
  }
}

const spanOf = ({ causal, window }: MeasuredCall["rules"]) => ({ left: window.left, right: causal ? 0 : window.right });
/** Bytes of the sums of a key. */
const RECEIVED_BYTES = 12;
const rowFloats = ({ topK }: Wanted) => STATISTICS + 2 * topK;
const wholePages = (kvLen: number) => PAGE * Math.ceil(kvLen / PAGE);
const receivedIn = ({ batch, numHeads, kvLen }: MaskTarget) => batch * numHeads * wholePages(kvLen);

function createResults(
  where: string,
  { batch, numHeads, qLen, kvLen }: MaskTarget,
  { topK, received }: Wanted,
): Measured {
  const tensor = (name: string, ...shape: number[]): Tensor => {
    return {
      data: createFloats(
        where,
        name,
        shape.reduce((a, b) => a * b),
      ),
      shape,
    };
  };
  const top = tensor("topKeys", batch, numHeads, qLen, topK);
  return {
    ...(Object.fromEntries(OF_ROWS.map((name) => [name, tensor(name, batch, numHeads, qLen)])) as Pick<
      Measured,
      (typeof OF_ROWS)[number]
    >),
    topWeights: tensor("topWeights", batch, numHeads, qLen, topK),
    // Rows without tokens, as those of padding, name no key.
    topKeys: { data: new Int32Array(top.data.buffer).fill(-1), shape: top.shape },
    received: received ? tensor("received", batch, numHeads, kvLen) : undefined,
  };
}

/** Copies what the kernel wrote of a segment's rows [numHeads][tokens][rowFloats]. */
function readRows(
  { memory }: Kernels,
  at: number,
  { batchRow, begin, end }: Segment,
  { numHeads, qLen }: MaskTarget,
  wanted: Wanted,
  results: Measured,
): void {
  const { topK } = wanted;
  const tokens = end - begin;
  const size = rowFloats(wanted);
  const rows = memory.f32(at, numHeads * tokens * size);
  const keys = new Int32Array(rows.buffer, rows.byteOffset, rows.length);
  for (let head = 0; head < numHeads; head++) {
    const from = head * tokens * size;
    const to = (batchRow * numHeads + head) * qLen + begin;
    for (const [i, name] of OF_ROWS.entries()) copyColumns(results[name].data, to, 1, rows, from + i, size, tokens);
    copyColumns(results.topWeights.data, to, topK, rows, from + STATISTICS, size, tokens);
    copyColumns(results.topKeys.data, to, topK, keys, from + STATISTICS + topK, size, tokens);
  }
}

/** Copies `columns` neighbours of each of so many rows of `size` to rows of their own, from row `row` on. */
function copyColumns<T extends Float32Array | Int32Array>(
  to: T,
  row: number,
  columns: number,
  rows: T,
  from: number,
  size: number,
  count: number,
): void {
  for (let i = 0, at = row * columns; i < count; i++, from += size)
    for (let column = 0; column < columns; column++) to[at++] = rows[from + column]!;
}

/** The sums of a batch row: [numHeads][wholePages(kvLen)] in float64, which one token has no part in, then in float32. */
function sumsOf({ memory }: Kernels, at: number, { numHeads, qLen, kvLen }: MaskTarget, batchRow: number) {
  const count = numHeads * wholePages(kvLen);
  const from = at + RECEIVED_BYTES * batchRow * count;
  return {
    sums: qLen > 1 ? new Float64Array(memory.view().buffer, from, count) : undefined,
    parts: memory.f32(from + 8 * count, count),
  };
}

function clearReceived(kernels: Kernels, at: number, target: MaskTarget): void {
  for (let batchRow = 0; batchRow < target.batch; batchRow++) {
    const { sums, parts } = sumsOf(kernels, at, target, batchRow);
    sums?.fill(0);
    parts.fill(0);
  }
}

function readReceived(kernels: Kernels, at: number, target: MaskTarget, received: Tensor | undefined): void {
  const { batch, numHeads, kvLen } = target;
  for (let batchRow = 0, to = 0; received && batchRow < batch; batchRow++) {
    const { sums, parts } = sumsOf(kernels, at, target, batchRow);
    for (let head = 0; head < numHeads; head++, to += kvLen) {
      const from = head * wholePages(kvLen);
      if (!sums) received.data.set(parts.subarray(from, from + kvLen), to);
      else for (let key = 0; key < kvLen; key++) received.data[to + key] = sums[from + key]! + parts[from + key]!;
    }
  }
}

/** Bytes of scratch of attention_statistics behind that of attention_pages; keptPages is 0 if `received` is not wanted. */
export function statisticsBytes(topK: number, keptPages: number): number {
  const rows = TILE_ROWS * (STATISTICS_ROW + 8 * QUAD * Math.ceil(topK / QUAD));
  return STATISTICS_LISTS + rows + (keptPages && 8 * TILE_ROWS + keptPages * KEPT_ROWS * KEPT_ROW + KEPT_END);
}

/** The most pages that the rows of a tile attend. */
export function keptPages({ left, right }: Pick<AttentionShape, "left" | "right">, kvLen: number): number {
  return Math.min(Math.ceil(kvLen / PAGE), 1 + Math.ceil((left + KEPT_ROWS + right) / PAGE));
}
