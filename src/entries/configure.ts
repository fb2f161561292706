/**
 * What a model costs before it is loaded, and a model for a budget.
 * @packageDocumentation
 */

export { HeadwiseError, type HeadwiseErrorCode } from "../base/util/errors.ts";
export type { ModelSource } from "../files/model-files.ts";
export type { ModelStore } from "../files/store.ts";
export type { WeightFormat } from "../layers/linear/formats/format.ts";
export type { CacheFormat } from "../layers/state/pages.ts";
export type { ModelFormats, ModelPlan, ModelPlanSizes } from "../models/load/plan-model.ts";
export type { Projection, ProjectionKind, Shape } from "../tools/configure/choose.ts";
export type { Choice, ConfigureOptions, Target } from "../tools/configure/configure.ts";
export { type Configuration, configure } from "../tools/configure/configure.ts";
export type { LayerMemory } from "../tools/configure/describe-model.ts";
export {
  type DescribeFilesOptions,
  type DescribeOptions,
  describeFiles,
  describeModel,
  type ModelCost,
} from "../tools/configure/describe-model.ts";
export type { RooflineOptions } from "../tools/configure/measure.ts";
export { type LayerCost, type LayerMeasurement, measureLayer, measureRoofline } from "../tools/configure/measure.ts";
export type { FormatSpeed, OtherCosts, Roofline, Speed } from "../tools/configure/roofline.ts";
export type { Kernels } from "../wasm/kernels.ts";
