/**
 * What happens inside of a decoder: rows at any site of a pass, interventions and patching there, what heads do, scores and logits by
 * what wrote them, statistics of attention, and links that repeat it all. The stages of a layer, one by one, and figures of heads
 * and shapes.
 * @packageDocumentation
 */

import statisticsRelaxed from "../../build/statistics-relaxed.wasm";
import statisticsSimd from "../../build/statistics-simd.wasm";
import type { StatisticsKernels } from "../wasm/modules.ts";

export type { Tensor } from "../base/tensor/tensor.ts";
export type { CheckedConfig } from "../layers/attention/config.ts";
export type { HeadSite } from "../layers/mixer/mixer.ts";
export type { IntTensor } from "../layers/pass/statistics.ts";
export type { LayerSite } from "../models/blocks/rows.ts";
export type { ForwardOptions, ForwardResult } from "../models/decoder/forward.ts";
export type { Session, TokenIds } from "../models/decoder/session.ts";
export { digestFloats } from "../tools/diagnostics/self-test.ts";
export { type Colour, rampColour } from "../tools/inspect/colours.ts";
export {
  type DecomposedResid,
  decomposeResid,
  explainScore,
  type ResidPlace,
  type ScoreExplanation,
  type ScorePlace,
} from "../tools/inspect/decompose.ts";
export {
  type DetectedHead,
  type DetectHeadsOptions,
  detectHeads,
  HEAD_KINDS,
  type HeadDetector,
  type KindScore,
  type LabelledText,
  longestText,
  type RankedHead,
  type ReferencePair,
  rankHeads,
} from "../tools/inspect/detect-heads.ts";
export {
  baselineScore,
  copyingScores,
  detectionPattern,
  type HeadKind,
  type HeadMeasure,
  type HeadScoreOptions,
  headScores,
} from "../tools/inspect/detectors.ts";
export { modelDigest } from "../tools/inspect/digest.ts";
export {
  type DrawHeadsOptions,
  type DrawOptions,
  drawHeads,
  drawProjections,
  drawShapes,
  drawSplit,
  type FigureFormat,
  type LayerSizes,
  type ShapeSizes,
  type ShapeStep,
  shapeTrace,
} from "../tools/inspect/figures.ts";
export {
  type CapturedRun,
  captureRun,
  type ForwardWithOptions,
  type ForwardWithResult,
  forwardWith,
  meanRows,
} from "../tools/inspect/forward-with.ts";
export {
  type LogitAttrs,
  type LogitLensOptions,
  type LogitLensResult,
  type LogitPlace,
  logitAttrs,
  logitLens,
  type NextToken,
  nextTokens,
} from "../tools/inspect/logits.ts";
export type { Component } from "../tools/inspect/parts.ts";
export {
  type Patch,
  type PatchRequest,
  type PatchResult,
  type PathsRequest,
  patchPaths,
  patchSites,
  type SitesRequest,
} from "../tools/inspect/patching.ts";
export {
  type AnyRecord,
  decodeRecord,
  encodeRecord,
  type Inspected,
  type Inspection,
  type InspectionName,
  type InspectionRecord,
  type Inspections,
  inspect,
  type OnSession,
  type RecordedKernels,
  type Replayed,
  type ReplayOptions,
  replay,
} from "../tools/inspect/records.ts";
export { type Edit, layerConfig, layerMixers, type Site, sitesOf } from "../tools/inspect/sites.ts";
export type { StageName } from "../tools/inspect/stages.ts";
export { type AttentionStage, type ModelLayer, type TraceOptions, traceAttention } from "../tools/inspect/stages.ts";
export {
  type AttentionStatistics,
  attendWithStatistics,
  type LayerStatisticsOptions,
  type StatisticsOptions,
  scaledDotProductAttentionWithStatistics,
} from "../tools/inspect/statistics.ts";
export type { StatisticsKernels, StatisticsModules } from "../wasm/modules.ts";

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
