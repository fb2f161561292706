/**
 * What a model costs before it is loaded, a model for a budget, and how fast models and other works are on a machine.
 * @packageDocumentation
 */

export { HeadwiseError, type HeadwiseErrorCode } from "../base/util/errors.ts";
export type { ModelSource } from "../files/model-files.ts";
export type { ModelStore } from "../files/store.ts";
export type { WeightFormat } from "../layers/linear/formats.ts";
export type { CacheFormat } from "../layers/state/pages.ts";
export type { Model } from "../models/blocks/model.ts";
export type { ModelFormats, ModelPlan, ModelPlanSizes } from "../models/load/plan-model.ts";
export type { Projection, ProjectionKind, Shape } from "../tools/configure/choose.ts";
export type { Choice, ConfigureOptions, Target } from "../tools/configure/configure.ts";
export { type Configuration, configure, OPTION_VALUES } from "../tools/configure/configure.ts";
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
export {
  type ModelSpeed,
  measureModel,
  type TimedWork,
  timeWorks,
} from "../tools/configure/measure-model.ts";
export type { FormatSpeed, OtherCosts, Roofline, Speed } from "../tools/configure/roofline.ts";
export type { Rate } from "../tools/diagnostics/timing.ts";
export type { Kernels } from "../wasm/kernels.ts";
