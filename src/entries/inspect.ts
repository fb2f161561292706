/**
 * What happens inside of a decoder: rows at any site of a pass, and interventions there. The stages of a layer, one by one, and
 * figures of heads and shapes.
 * @packageDocumentation
 */

export type { ForwardOptions, ForwardResult, TokenIds } from "../decoder/forward.ts";
export type { Session } from "../decoder/session.ts";
export { detectionPattern, type HeadKind, type HeadScoreOptions, headScores } from "../inspect/detectors.ts";
export { type DrawHeadsOptions, drawHeads } from "../inspect/draw-heads.ts";
export { type DrawOptions, drawProjections, drawShapes, drawSplit } from "../inspect/draw-shapes.ts";
export type { Edit } from "../inspect/edits.ts";
export type { StageName } from "../inspect/formulas.ts";
export { type ForwardWithOptions, type ForwardWithResult, forwardWith, meanRows } from "../inspect/forward-with.ts";
export { type LayerSizes, type ShapeSizes, type ShapeStep, shapeTrace } from "../inspect/shape-trace.ts";
export type { Site } from "../inspect/sites.ts";
export type { FigureFormat } from "../inspect/svg.ts";
export { type AttentionStage, type TraceOptions, traceAttention } from "../inspect/trace.ts";
export type { Tensor } from "../tensor/tensor.ts";
