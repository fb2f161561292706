/**
 * What happens inside of a decoder: rows at any site of a pass, interventions there, and scores and logits by what wrote them. The
 * stages of a layer, one by one, and figures of heads and shapes.
 * @packageDocumentation
 */

export type { ForwardOptions, ForwardResult, TokenIds } from "../decoder/forward.ts";
export type { Session } from "../decoder/session.ts";
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
  type Inspection,
  type InspectionName,
  type InspectionRecord,
  type Inspections,
  inspect,
  type OnSession,
  type RecordedKernels,
  type Replayed,
  replay,
} from "../inspect/records.ts";
export { type LayerSizes, type ShapeSizes, type ShapeStep, shapeTrace } from "../inspect/shape-trace.ts";
export { type Site, sitesOf } from "../inspect/sites.ts";
export type { FigureFormat } from "../inspect/svg.ts";
export { type AttentionStage, type TraceOptions, traceAttention } from "../inspect/trace.ts";
export type { Tensor } from "../tensor/tensor.ts";
