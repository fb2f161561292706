import { expectLayout, expectMatrix, type MatrixLayout, sizeIn, type WeightTensor } from "../../base/tensor/matrix.ts";
import { readFields } from "../../base/util/arguments.ts";
import { expectMade, type Handle, makeHandle, type Releasable } from "../../base/util/lifetime.ts";
import { expectKernels, freeing, type Kernels } from "../../wasm/kernels.ts";
import { Layout } from "../../wasm/memory.ts";
import type { LinearSize, PackedFormat, PackedLinear, WeightFormat } from "./formats/format.ts";
import { expectActivations, expectFormat, expectFormatLoaded, expectVector, formatOf } from "./formats/formats.ts";
import { packBlock } from "./pack.ts";
import { type LinearPlace, modeOf, placeLinears, storeLinear } from "./products.ts";

/** The weights of y = x·wᵀ + b. */
export interface LinearWeights {
  /**
   * The matrix [outputs, inputs], as PyTorch's `nn.Linear` stores it, or [inputs, outputs] with the layout "in-out": a
   * `Tensor`, or a stored tensor of F32, F64, F16, BF16, Q8_0 or Q4_0. The last two need the layout "out-in".
   */
  readonly weight: WeightTensor;
  /** Bias [outputs]. Default zeros. */
  readonly bias?: Float32Array;
  /** Whether rows of the matrix are outputs ("out-in", the default) or inputs ("in-out"). */
  readonly layout?: MatrixLayout;
}

/** The format of a matrix, and of the activations that integer weights are multiplied with. */
export interface LinearWeightOptions {
  /** Default the format that the matrix is stored in, by the rules of `WeightOptions.weights`. */
  readonly weights?: WeightFormat;
  /** As `WeightOptions.activations`. Default "exact". */
  readonly activations?: "exact" | "fast";
}

/**
 * A matrix and its bias, packed in linear memory until `release()`.
 * @example
 * import { createLinear, linear, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const layer = createLinear(kernels, { weight: { data: Float32Array.of(1, 2, 3, 4, 5, 6), shape: [3, 2] } });
 * console.log(layer.outputs, layer.inputs, layer.format); // 3 2 f32
 * console.log(linear(layer, Float32Array.of(1, 10)).join(" ")); // 21 43 65
 * layer.release();
 */
export interface Linear extends Releasable, Handle {
  /** The kernels that run the layer, in whose memory its weights lie. */
  readonly kernels: Kernels;
  /** Floats of a row of y. */
  readonly outputs: number;
  /** Floats of a row of x. */
  readonly inputs: number;
  /** The format of the packed matrix. */
  readonly format: PackedFormat;
  /** Bytes of linear memory that the weights take. */
  readonly bytes: number;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /** @internal */
  readonly packed: PackedLinear;
  /** @internal `mode` of linear_q8. */
  readonly mode: number;
}

/** The offsets of a matrix and its bias, and their bytes. */
export function linearLayout(size: LinearSize, format: PackedFormat): { place: LinearPlace; bytes: number } {
  const layout = new Layout();
  const [place] = placeLinears(layout, [{ ...size, format }]) as [LinearPlace];
  return { place, bytes: layout.bytes };
}

/**
 * Packs a matrix and its bias into linear memory, for y = x·wᵀ + b. The matrix keeps the format it is stored in, unless
 * `options.weights` names another. The given arrays are not used later.
 * @throws TypeError or RangeError naming the argument, the rule and the value. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or
 * `NO_QUANTIZED` for formats other than "f32" with kernels that were loaded without `quantized`. Nothing is allocated then.
 * @example
 * import { createLinear, linear, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const weight = { data: Float32Array.of(1, 0, 0, 1, 1, 1), shape: [2, 3] };
 * using layer = createLinear(kernels, { weight, bias: Float32Array.of(0.5, 0), layout: "out-in" });
 * console.log(linear(layer, Float32Array.of(1, 2, 3)).join(" ")); // 1.5 6
 */
export function createLinear(kernels: Kernels, weights: LinearWeights, options: LinearWeightOptions = {}): Linear {
  const where = "createLinear";
  expectKernels(where, kernels);
  const { weight, bias, layout: givenLayout } = readFields(where, "weights", weights, ["weight", "bias", "layout"]);
  const { weights: requested, activations } = readFields(where, "options", options, ["weights", "activations"]);
  const layout = expectLayout(where, givenLayout);
  const fast = expectActivations(where, "options.activations", activations);
  if (requested !== undefined) expectFormat(where, "options.weights", requested);
  const w = expectMatrix(where, "weight", weight, layout);
  const [n, k] = sizeIn(w, layout);
  if (n === 0 || k === 0)
    throw new RangeError(`${where}: weight expected 1 or more outputs and inputs, got shape [${w.shape.join(", ")}]`);
  const b = expectVector(where, "bias", bias, n);
  // Again, because reading arguments may have run code of the caller's that released them.
  expectKernels(where, kernels);
  const format = requested ?? formatOf(w, kernels.quantized);
  expectFormatLoaded(where, kernels.quantized, "weight", format);

  const { place, bytes } = linearLayout({ n, k }, format);
  // Before the layer's own allocation, because this may allocate memory temporarily.
  const mode = modeOf(kernels, [format], fast);
  const { at, packed } = packBlock(where, kernels, bytes, [place], (to, staging) => ({
    packed: storeLinear(kernels, to, place, w, layout, b, staging),
  }));
  const parts = { kernels, outputs: n, inputs: k, format, bytes, packed, mode };
  return makeHandle<Linear>("Linear", where, parts, ["packed", "mode"], freeing(kernels, at));
}

/** Throws unless `layer` came from createLinear and neither it nor its kernels were released. */
export function expectLinear(where: string, layer: Linear): void {
  expectMade(where, "layer", layer, "createLinear");
  expectKernels(where, layer.kernels, "layer.kernels");
}
