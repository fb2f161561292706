// Linear layers: their weights, y = x·wᵀ + b on rows of JavaScript arrays, in one step or in slices, and their plan.

import { PANEL } from "../../../assembly/layout.ts";
import { shapeText } from "../../base/tensor/dtypes.ts";
import { expectLayout, expectMatrix, type MatrixLayout, sizeIn, type WeightTensor } from "../../base/tensor/matrix.ts";
import { createFloats } from "../../base/tensor/tensor.ts";
import { expectFloats, expectInt, readFields } from "../../base/util/arguments.ts";
import { expectMade, type Handle, makeHandle, type Releasable } from "../../base/util/lifetime.ts";
import { CHUNK_ROWS, chunksOf, copyRows } from "../../base/util/rows.ts";
import { finish, type Steps } from "../../base/util/steps.ts";
import { expectKernels, freeing, type Kernels } from "../../wasm/kernels.ts";
import { aligned, Layout, type MemoryPlan, pointer } from "../../wasm/memory.ts";
import {
  expectActivations,
  expectFormat,
  expectFormatLoaded,
  expectVector,
  formatOf,
  type LinearSize,
  type PackedFormat,
  type PackedLinear,
  panelsOf,
  type WeightFormat,
  wholePanels,
} from "../linear/formats.ts";
import {
  cutPanels,
  type LinearPlace,
  linearFlops,
  modeOf,
  packBlock,
  placeLinearScratch,
  placeLinears,
  prepareInput,
  project,
  STEP_PANELS,
  storeLinear,
} from "../linear/products.ts";
import { countRows, expectKeptArrays, expectOut } from "../pass/call.ts";
import { checkSlices, runSlices, SLICE_OPTIONS, type SliceOptions, stepFlopsOf } from "../pass/forward.ts";

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
function linearLayout(size: LinearSize, format: PackedFormat): { place: LinearPlace; bytes: number } {
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
    throw new RangeError(`${where}: weight expected 1 or more outputs and inputs, got shape ${shapeText(w.shape)}`);
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
function expectLinear(where: string, layer: Linear): void {
  expectMade(where, "layer", layer, "createLinear");
  expectKernels(where, layer.kernels, "layer.kernels");
}

// Chunks of rows are copied into scratch, multiplied, and copied out.

/** Options of `linear`. */
export interface LinearOptions {
  /**
   * Array to write y to, [rows, outputs]. It may be x itself if the layer has as many outputs as inputs, and must not
   * overlap x otherwise. Default a new array.
   */
  readonly out?: Float32Array;
}

/** The fields of LinearOptions. */
const LINEAR_OPTIONS = ["out"] as const;

/** A checked call of a layer on `rows` rows. */
interface LinearCall {
  /** The public function, for messages. */
  readonly where: string;
  readonly layer: Pick<Linear, "kernels" | "packed" | "mode" | "outputs" | "inputs" | "format">;
  readonly rows: number;
  readonly x: Float32Array;
  readonly out: Float32Array | undefined;
  /** The array that was given as `out`, of which that of the call is a view. */
  readonly given: Float32Array | undefined;
}

/** Checks a call whose options were read before, because that may have run code of the caller's that released the layer. */
function checkLinear(where: string, layer: Linear, rowsGiven: Float32Array, { out: given }: LinearOptions): LinearCall {
  expectLinear(where, layer);
  const x = expectFloats(where, "x", rowsGiven);
  const out = given === undefined ? undefined : expectFloats(where, "out", given);
  const rows = countRows(where, "x", x, 1, "inputs", layer.inputs);
  const { outputs, inputs } = layer;
  if (out) expectOut(where, out, rows * outputs, { x }, inputs === outputs);
  return { where, layer, rows, x, out, given };
}

/**
 * The most floats of outputs in scratch, enough for a block of panels of a whole chunk. If a chunk has more outputs, they
 * are computed in pieces, some panels each.
 */
const OUTPUT_FLOATS = 2 ** 20;

/** The scratch of calls of up to `rows` rows, 1 or more. */
function placeLinearCall(
  { outputs, inputs, format }: { readonly outputs: number; readonly inputs: number; readonly format: PackedFormat },
  rows: number,
) {
  const chunk = Math.min(rows, CHUNK_ROWS);
  const panels = Math.min(panelsOf(outputs), STEP_PANELS * Math.floor(OUTPUT_FLOATS / (chunk * PANEL * STEP_PANELS)));
  const layout = new Layout();
  // [rows, inputs], and a piece of the outputs [rows, 8·panels].
  const x = layout.floats(chunk * inputs);
  // Not chunk * PANEL * panels, which a call of fewer rows can exceed.
  const y = layout.floats(Math.min(chunk * wholePanels(outputs), OUTPUT_FLOATS));
  const linear = placeLinearScratch(layout, [{ k: inputs, format }], chunk);
  return { places: { x, y, panels, linear }, bytes: layout.bytes };
}

/**
 * Computes y [rows, outputs] in steps of about `stepFlops`. With `ownScratch` it allocates a block instead of using the
 * scratch that all calls share, because others may run between steps.
 */
export function* runLinear(
  { where, layer, rows, x, out }: Omit<LinearCall, "given">,
  stepFlops: number = Infinity,
  ownScratch = false,
): Steps<Float32Array> {
  const { kernels, packed, mode, outputs, inputs } = layer;
  const { memory } = kernels;
  // Scratch is taken last: once grown it stays so, and nothing may fail after it.
  const y = out ?? createFloats(where, "y", rows * outputs);
  if (rows === 0) return y;
  const { places, bytes } = placeLinearCall(layer, rows);
  const base = ownScratch ? memory.allocate(where, bytes) : memory.scratch(where, bytes);
  const stride = PANEL * places.panels;
  const [xAt, yAt] = [pointer.f32(base + places.x), pointer.f32(base + places.y)];
  try {
    for (const [begin, end] of chunksOf(rows, CHUNK_ROWS)) {
      const count = end - begin;
      memory.f32(xAt, count * inputs).set(x.subarray(begin * inputs, end * inputs));
      const at = { at: xAt, stride: inputs };
      const input = prepareInput(kernels, [packed], at, count, mode, places.linear, base);
      for (const [first, last] of chunksOf(packed.panels, places.panels)) {
        yield* project(kernels, cutPanels(packed, first, last), { at: yAt, stride }, input, count, stepFlops);
        const column = PANEL * first;
        const width = Math.min(outputs - column, stride);
        const piece = memory.f32(yAt, count * stride);
        copyRows(y, begin * outputs + column, outputs, piece, stride, width);
      }
    }
  } finally {
    if (ownScratch && !kernels.released) memory.free(base);
  }
  return y;
}

// Calls.

/**
 * y = x·wᵀ + b for any number of rows. A row's y has the same bits in any number of rows, and on any number of threads.
 * @param x Input rows [rows, inputs], none or more.
 * @returns Output rows y [rows, outputs]: `options.out` where it is given, else a new array.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, and with threads
 * `WORKER_LOST` or `KERNEL_FAILED`.
 * @example
 * import { createLinear, linear, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const layer = createLinear(kernels, { weight: { data: Float32Array.of(1, 2, 3, 4), shape: [2, 2] } });
 * console.log(linear(layer, Float32Array.of(1, 0, 0, 1)).join(" ")); // 1 3 2 4: two rows
 * const x = Float32Array.of(1, 1);
 * linear(layer, x, { out: x });
 * console.log(x.join(" ")); // 3 7
 * kernels.release();
 */
export function linear(layer: Linear, x: Float32Array, options: LinearOptions = {}): Float32Array {
  const given = readFields("linear", "options", options, LINEAR_OPTIONS);
  const call = checkLinear("linear", layer, x, given);
  const y = finish(runLinear(call));
  return call.given ?? y;
}

/** Options of `linearAsync`: those of `linear`, and how the call is sliced. */
export type LinearAsyncOptions = LinearOptions & SliceOptions;

/**
 * `linear` in time slices. It yields to the event loop between slices, so that pages stay responsive and servers answer
 * other requests. The result has the bits of `linear`. x must not change before the promise settles; other calls on the same
 * layer may run meanwhile.
 * @param x Input rows [rows, inputs], none or more.
 * @returns Output rows y [rows, outputs]: `options.out` where it is given, written at the end, else a new array.
 * @throws The same errors as `linear`, the signal's reason, whatever `onProgress` throws, RangeError if x or `out` is detached or
 * resized before the end, and HeadwiseError `RELEASED` if the layer or its kernels are released before. `out` is then
 * unchanged.
 * @example
 * import { createLinear, linearAsync, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const layer = createLinear(kernels, { weight: { data: new Float32Array(64 * 32), shape: [64, 32] } });
 * const y = await linearAsync(layer, new Float32Array(1000 * 32), { sliceMs: 4 });
 * console.log(y.length); // 64000
 * kernels.release();
 */
export async function linearAsync(
  layer: Linear,
  x: Float32Array,
  options: LinearAsyncOptions = {},
): Promise<Float32Array> {
  const where = "linearAsync";
  const read = readFields(where, "options", options, [...SLICE_OPTIONS, ...LINEAR_OPTIONS]);
  const slices = checkSlices(where, read);
  const call = checkLinear(where, layer, x, read);
  const { x: rows, out, given } = call;
  const expectKept = expectKeptArrays(where, { x: rows, out });
  const expectActive = () => {
    slices.signal?.throwIfAborted();
    expectLinear(where, layer);
    expectKept();
  };
  // `out` is written last, when nothing can end the call any more.
  const steps = runLinear({ ...call, out: undefined }, stepFlopsOf(layer.kernels), true);
  const y = await runSlices(steps, linearFlops(layer.packed, call.rows), slices, expectActive);
  expectActive();
  out?.set(y);
  return given ?? y;
}

/** The sizes of a layer to plan memory for. */
export interface LinearSizes {
  /** Floats of a row of y. */
  readonly outputs: number;
  /** Floats of a row of x. */
  readonly inputs: number;
}

/** The largest call to plan memory for, and the format of the weights. */
export interface LinearPlanOptions {
  /** Rows of the longest call. Default 1. */
  readonly rows?: number;
  /** Format of the weights, as `createLinear` takes it. Default "f32". */
  readonly weights?: WeightFormat;
}

/** What `planLinear` gives. */
export type LinearPlan = MemoryPlan;

/**
 * The memory that a linear layer and a call will take, computed before anything is allocated.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { planLinear } from "headwise";
 * const { weights } = planLinear({ outputs: 32_000, inputs: 2048 }, { weights: "q8" });
 * console.log(weights); // 77952000: 32 000 x 2048 bytes, six more for each 32 of them, and the biases
 */
export function planLinear(sizes: LinearSizes, options: LinearPlanOptions = {}): LinearPlan {
  const where = "planLinear";
  const { outputs, inputs } = readFields(where, "sizes", sizes, ["outputs", "inputs"]);
  const { rows = 1, weights: given = "f32" } = readFields(where, "options", options, ["rows", "weights"]);
  const size = { n: expectInt(where, "outputs", outputs), k: expectInt(where, "inputs", inputs) };
  expectInt(where, "rows", rows);
  const format = expectFormat(where, "weights", given);
  const weights = aligned(linearLayout(size, format).bytes);
  const { bytes: scratch } = placeLinearCall({ outputs, inputs, format }, rows);
  return { weights, scratch, total: weights + scratch };
}
