/**
 * What happens inside of a decoder: rows at any site of a pass, interventions there, and scores and logits by what wrote them.
 * @packageDocumentation
 */

export type { ForwardOptions, ForwardResult, TokenIds } from "../decoder/forward.ts";
export type { Session } from "../decoder/session.ts";
export { type CapturedRun, captureRun } from "../inspect/captured-run.ts";
export { type DecomposedResid, decomposeResid, type ResidPlace } from "../inspect/decompose.ts";
export { detectionPattern, type HeadKind, type HeadScoreOptions, headScores } from "../inspect/detectors.ts";
export type { Edit } from "../inspect/edits.ts";
export { explainScore, type ScoreExplanation, type ScorePlace } from "../inspect/explain-score.ts";
export { type ForwardWithOptions, type ForwardWithResult, forwardWith, meanRows } from "../inspect/forward-with.ts";
export { type LogitAttrs, type LogitPlace, logitAttrs } from "../inspect/logit-attrs.ts";
export { type LogitLensOptions, type LogitLensResult, logitLens } from "../inspect/logit-lens.ts";
export type { Component } from "../inspect/parts.ts";
export type { Site } from "../inspect/sites.ts";
export type { Tensor } from "../tensor/tensor.ts";
