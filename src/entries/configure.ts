/**
 * What a model costs before it is loaded, and a model for a budget.
 * @packageDocumentation
 */

export type { CacheFormat } from "../cache/page-layout.ts";
export type { Projection, ProjectionKind } from "../configure/choose-attention.ts";
export { type Configuration, configure } from "../configure/configure.ts";
export type { ConfigureOptions } from "../configure/configure-options.ts";
export {
  type DescribeFilesOptions,
  type DescribeOptions,
  describeFiles,
  describeModel,
  type ModelCost,
} from "../configure/describe-model.ts";
export type { Choice } from "../configure/explain.ts";
export type { LayerMemory } from "../configure/layer-memory.ts";
export { type LayerCost, type LayerMeasurement, measureLayer } from "../configure/measure-layer.ts";
export { measureRoofline } from "../configure/measure-roofline.ts";
export type { Shape } from "../configure/plan-shape.ts";
export type { FormatSpeed, OtherCosts, Roofline, Speed } from "../configure/roofline.ts";
export type { RooflineOptions } from "../configure/roofline-loads.ts";
export type { Target } from "../configure/targets.ts";
export type { ModelFormats } from "../decoder/model-formats.ts";
export type { ModelPlan, ModelPlanSizes } from "../decoder/plan-model.ts";
export type { ModelSource } from "../files/model-files.ts";
export type { ModelStore } from "../files/model-store.ts";
export type { WeightFormat } from "../linear/formats.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../util/errors.ts";
export type { Kernels } from "../wasm/kernels.ts";
