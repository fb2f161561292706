/**
 * What happens inside of a decoder: rows at any site of a pass, interventions and patching there, what heads do, scores and logits by
 * what wrote them, statistics of attention, and links that repeat it all. The stages of a layer, one by one, and figures of heads
 * and shapes.
 * @packageDocumentation
 */

import statisticsRelaxed from "../../build/statistics-relaxed.wasm";
import statisticsSimd from "../../build/statistics-simd.wasm";
import type { StatisticsKernels } from "../wasm/select-build.ts";

export type { ForwardOptions, ForwardResult, TokenIds } from "../decoder/forward.ts";
export type { LayerSite } from "../decoder/rows.ts";
export type { Session } from "../decoder/session.ts";
export type { IntTensor } from "../forward/measure.ts";
export type { HeadSite } from "../forward/tap.ts";
export { type CapturedRun, captureRun } from "../inspect/captured-run.ts";
export { copyingScores } from "../inspect/circuits.ts";
export { type DecomposedResid, decomposeResid, type ResidPlace } from "../inspect/decompose.ts";
export { type DetectedHead, type DetectHeadsOptions, detectHeads, type KindScore } from "../inspect/detect-heads.ts";
export { HEAD_KINDS, type HeadDetector, type LabelledText, type ReferencePair } from "../inspect/detection-texts.ts";
export {
  baselineScore,
  detectionPattern,
  type HeadKind,
  type HeadMeasure,
  type HeadScoreOptions,
  headScores,
} from "../inspect/detectors.ts";
export { type DrawHeadsOptions, drawHeads } from "../inspect/draw-heads.ts";
export { type DrawOptions, drawProjections, drawShapes, drawSplit } from "../inspect/draw-shapes.ts";
export type { Edit } from "../inspect/edits.ts";
export { explainScore, type ScoreExplanation, type ScorePlace } from "../inspect/explain-score.ts";
export type { StageName } from "../inspect/formulas.ts";
export { type ForwardWithOptions, type ForwardWithResult, forwardWith, meanRows } from "../inspect/forward-with.ts";
export type { Inspection, InspectionName, Inspections, OnSession } from "../inspect/inspections.ts";
export type { LayerStatisticsOptions } from "../inspect/layer-statistics.ts";
export { type LogitAttrs, type LogitPlace, logitAttrs } from "../inspect/logit-attrs.ts";
export { type LogitLensOptions, type LogitLensResult, logitLens } from "../inspect/logit-lens.ts";
export { modelDigest } from "../inspect/model-digest.ts";
export type { Component } from "../inspect/parts.ts";
export { type Patch, type PatchRequest, type PatchResult, patchSites, type SitesRequest } from "../inspect/patching.ts";
export { type PathsRequest, patchPaths } from "../inspect/paths.ts";
export { decodeRecord, encodeRecord } from "../inspect/permalink.ts";
export {
  type AnyRecord,
  type Inspected,
  type InspectionRecord,
  inspect,
  type RecordedKernels,
  type Replayed,
  type ReplayOptions,
  replay,
} from "../inspect/records.ts";
export { type LayerSizes, type ShapeSizes, type ShapeStep, shapeTrace } from "../inspect/shape-trace.ts";
export { type Site, sitesOf } from "../inspect/sites.ts";
export {
  type AttentionStatistics,
  attendWithStatistics,
  type StatisticsOptions,
  scaledDotProductAttentionWithStatistics,
} from "../inspect/statistics.ts";
export type { FigureFormat } from "../inspect/svg.ts";
export { type AttentionStage, type ModelLayer, type TraceOptions, traceAttention } from "../inspect/trace.ts";
export type { Tensor } from "../tensor/tensor.ts";
export type { StatisticsKernels, StatisticsModules } from "../wasm/select-build.ts";

/**
 * Kernels for statistics of attention, for both builds.
 * @example
 * import { loadKernels } from "headwise";
 * import { statistics } from "headwise/inspect";
 * const kernels = await loadKernels({ statistics });
 * console.log(kernels.statistics); // true
 * kernels.release();
 */
export const statistics: StatisticsKernels = {
  simd: { statistics: statisticsSimd },
  relaxed: { statistics: statisticsRelaxed },
};
