/**
 * What a model costs before it is loaded, and a model for a budget.
 * @packageDocumentation
 */

export {
  type DescribeFilesOptions,
  type DescribeOptions,
  describeFiles,
  describeModel,
  type ModelCost,
} from "../configure/describe-model.ts";
export type { LayerMemory } from "../configure/layer-memory.ts";
