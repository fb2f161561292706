/**
 * What happens inside of a decoder: rows at any site of a pass, and interventions there.
 * @packageDocumentation
 */

import statisticsRelaxed from "../../build/statistics-relaxed.wasm";
import statisticsSimd from "../../build/statistics-simd.wasm";
import type { StatisticsKernels } from "../wasm/select-build.ts";

export type { ForwardOptions, ForwardResult, TokenIds } from "../decoder/forward.ts";
export type { Session } from "../decoder/session.ts";
export type { IntTensor } from "../forward/measure.ts";
export { detectionPattern, type HeadKind, type HeadScoreOptions, headScores } from "../inspect/detectors.ts";
export type { Edit } from "../inspect/edits.ts";
export { type ForwardWithOptions, type ForwardWithResult, forwardWith, meanRows } from "../inspect/forward-with.ts";
export type { LayerStatisticsOptions } from "../inspect/layer-statistics.ts";
export type { Site } from "../inspect/sites.ts";
export {
  type AttentionStatistics,
  attendWithStatistics,
  type StatisticsOptions,
  scaledDotProductAttentionWithStatistics,
} from "../inspect/statistics.ts";
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
