/**
 * Formats other than float32: their kernels, which `loadKernels` takes as the option `quantized`, and
 * measurements of how far a layer is from what it gives in float32, or from another layer.
 * @packageDocumentation
 */

import cachesRelaxed from "../../build/caches-relaxed.wasm";
import cachesSimd from "../../build/caches-simd.wasm";
import weightsRelaxed from "../../build/weights-relaxed.wasm";
import weightsSimd from "../../build/weights-simd.wasm";
import type { QuantizedKernels } from "../wasm/modules.ts";

export type { Deviation } from "../tools/diagnostics/quantize-report.ts";
export {
  compareLayers,
  type LayerDeviation,
  type QuantizeReportOptions,
  type QuantizeResult,
  type QuantizeTrial,
  quantizeReport,
} from "../tools/diagnostics/quantize-report.ts";
export type { QuantizedKernels, QuantizedModules } from "../wasm/modules.ts";

/**
 * Kernels for weights in f16, bf16, q8, q8-row and q4 and for caches in f16, q8 and q4, for both builds.
 * @example
 * import { createAttention, loadKernels } from "headwise";
 * import { quantized } from "headwise/quantized";
 * const kernels = await loadKernels({ quantized });
 * const matrix = { data: new Float32Array(64 * 64), shape: [64, 64] };
 * const weights = { wq: matrix, wk: matrix, wv: matrix, wo: matrix };
 * const attention = createAttention(kernels, { dModel: 64, numHeads: 4 }, weights, { weights: "q8" });
 * console.log(attention.formats.q); // q8
 * kernels.release();
 */
export const quantized: QuantizedKernels = {
  simd: { weights: weightsSimd, caches: cachesSimd },
  relaxed: { weights: weightsRelaxed, caches: cachesRelaxed },
};
