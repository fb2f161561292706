import type { Attention, LayerParts } from "../attention/attention.ts";
import { expectModel, type Model } from "../decoder/model.ts";
import type { PackedBlock } from "../decoder/packed.ts";
import { scoreColumns } from "../forward/attend-segment.ts";
import { type AttendCall, type AttendOptions, checkGiven, expectAttention, isSelf } from "../forward/call.ts";
import { forward } from "../forward/forward.ts";
import { readCall } from "../forward/given-call.ts";
import { placeHeads, projectPart } from "../forward/stages.ts";
import { createFloats, type Tensor } from "../tensor/tensor.ts";
import { expectInt, readFields } from "../util/arguments.ts";
import { tagOf } from "../util/errors.ts";
import { copyRows } from "../util/rows.ts";
import { finish } from "../util/steps.ts";
import { type F32Ptr, NULL, type NullPtr } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { type Formula, formulasOf, type StageName } from "./formulas.ts";
import { isLatent } from "./read-weights.ts";
import { type Stage, scoreStages, sideBySide, swapAxes } from "./stage-tensors.ts";
import { latentFormulas, latentStages } from "./trace-latent.ts";

/** Options of `traceAttention`: those of `attend` that do not concern a cache, padding or where y is written. */
export type TraceOptions = Pick<
  AttendOptions,
  "batch" | "keys" | "values" | "align" | "keep" | "drop" | "bias" | "positions"
>;

const OPTIONS: readonly (keyof TraceOptions)[] = [
  ...(["batch", "keys", "values", "align"] as const),
  ...(["keep", "drop", "bias", "positions"] as const),
];

/** A layer of a whole decoder. */
export interface ModelLayer {
  /** What `loadModel` gave. */
  readonly model: Model;
  /** 0 for the first layer. */
  readonly layer: number;
}

/** One stage of attention, as plain data. */
export interface AttentionStage {
  /** One of nine that all layers have, or of six that some have besides. */
  readonly name: StageName;
  /** What the stage does, in a sentence. */
  readonly text: string;
  /** The same as a formula, with the numbers of the layer. Biases that it lacks are zeros. */
  readonly formula: string;
  /** What the stage gives, by the letters of the formula. */
  readonly tensors: Readonly<Record<string, Tensor>>;
}

/**
 * The stages of an attention layer on x, one after the other, each with its formula and what it gives: to step through, forwards and
 * backwards. They come from the layer's own kernels and weights, in the formats that these have. `z` and `y` have the bits of
 * `attend`, `weights` those of `attendWithMaps`. Each stage is what its formula makes of the stage before within rounding.
 *
 * It takes memory for all stages at once, three times numHeads·qLen·kvLen floats or more, and some times as long as `attend`.
 * @param attention A layer of `createAttention` or of `createLatentAttention`, or one of a decoder. Those of latent attention are
 * traced on the path "absorbed", where latents are the keys and values of all heads.
 * @param x Input rows [batch, qLen, dModel]: for a decoder's layer, what `forwardWith` captures at "attnIn" of all tokens. Then y
 * is what it captures at "attnOut", before the norm of attention's output that some models have.
 * @returns The stages. Shapes begin with batch where `options.batch` is given.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { createAttention, loadKernels } from "headwise";
 * import { traceAttention } from "headwise/inspect";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const stages = traceAttention(attention, Float32Array.of(1, 0, 0, 0, 0, 1, 0, 0));
 * console.log(stages.map(({ name }) => name).join(" ")); // project chunk split scores mask softmax sum merge output
 * console.log(stages[5]?.formula, stages[5]?.tensors.weights?.shape); // weights[h, i, j] = e^scores[h, i, j] / Σ e^scores[h, i, :] [ 2, 2, 2 ]
 * kernels.release();
 */
export function traceAttention(
  attention: Attention | ModelLayer,
  x: Float32Array,
  options: TraceOptions = {},
): AttentionStage[] {
  const where = "traceAttention";
  const given = readCall<AttendOptions>(where, x, options, OPTIONS);
  const layer = layerOf(where, attention);
  expectAttention(where, layer);
  const call = checkGiven(where, layer, given);
  const lead = given.options.batch === undefined ? [] : [call.batch];
  const [formulas, stages] = isLatent(layer)
    ? [latentFormulas(layer, call), latentStages(layer, call)]
    : [formulasOf(layer, call), headStages(layer, call)];
  return Array.from(stages, ([name, tensors]): AttentionStage => {
    const batched = Object.entries(tensors).map(([letter, { data, shape }]) => [
      letter,
      { data, shape: [...lead, ...shape] },
    ]);
    return { name, ...(formulas[name] as Formula), tensors: Object.fromEntries(batched) };
  });
}

function layerOf(where: string, attention: Attention | ModelLayer): Attention {
  if (tagOf(attention) === "Model")
    throw new TypeError(`${where}: attention expected { model, layer } for a layer of a model, got Model`);
  if (attention === null || typeof attention !== "object" || !("model" in attention)) return attention;
  const { model, layer } = readFields(where, "attention", attention, ["model", "layer"]);
  expectModel(where, model);
  const { blocks } = model.weights;
  return (blocks[expectInt(where, "attention.layer", layer, 0, blocks.length - 1)] as PackedBlock).attention;
}

/** The stages of a call on a layer of `createAttention`. */
function* headStages(attention: Attention, call: AttendCall): Generator<Stage, void, void> {
  const { kernels, config, pageShape, layer, rotary, headNorm } = attention;
  const { where, x, keys, values, batch, qLen, newKeys: kvLen, positions, keyPositions } = call;
  const { dModel, numHeads, numKvHeads, headDim, valueDim } = config;
  const parts: LayerParts = { kernels, config, pageShape, pass: undefined, layer, rotary, headNorm };
  const sizes = {
    q: { heads: numHeads, len: qLen, dim: headDim },
    k: { heads: numKvHeads, len: kvLen, dim: headDim },
    v: { heads: numKvHeads, len: kvLen, dim: valueDim },
  };
  const rowsOf = (part: Part, data: Float32Array): Tensor => {
    const { heads, len, dim } = sizes[part];
    return { data, shape: [len, heads * dim] };
  };
  const headsOf = (part: Part, data: Float32Array): Tensor => {
    const { heads, len, dim } = sizes[part];
    return { data: swapAxes(where, data, batch, len, heads, dim), shape: [heads, len, dim] };
  };

  const [q, k, v] = [
    projectPart(where, parts, "q", x),
    projectPart(where, parts, "k", keys),
    projectPart(where, parts, "v", values),
  ];
  const chunk = { q: rowsOf("q", q), k: rowsOf("k", k), v: rowsOf("v", v) };
  const width = (numHeads + numKvHeads) * headDim + numKvHeads * valueDim;
  yield [
    "project",
    isSelf(call) ? { qkv: { data: sideBySide(where, batch * qLen, [q, k, v]), shape: [qLen, width] } } : chunk,
  ];
  yield ["chunk", chunk];
  const split = { q: headsOf("q", q), k: headsOf("k", k), v: headsOf("v", v) };
  yield ["split", split];
  const placed = (of: LayerParts) => ({
    q: headsOf("q", placeHeads(where, of, "q", q, positions)),
    k: headsOf("k", placeHeads(where, of, "k", k, keyPositions)),
  });
  if (config.qkNorm || headNorm) yield ["norm", placed({ ...parts, rotary: undefined })];
  if (rotary) yield ["rotate", placed(parts)];

  const columns = scoreColumns(kvLen, layer.extraKey !== NULL, config.addZeroAttn);
  if (columns > kvLen) {
    const extend = (tensor: Tensor, extra: F32Ptr | NullPtr) =>
      extendKeys(where, kernels, batch, tensor, extra, columns);
    yield ["extend", { k: extend(placed(parts).k, layer.extraKey), v: extend(split.v, layer.extraValue) }];
  }

  yield* scoreStages(parts, call, columns);

  // Without its output projection, a layer gives what its heads give.
  const heads: LayerParts = { ...parts, layer: { ...layer, linears: { ...layer.linears, o: undefined } } };
  const z = finish(forward(heads, [call], { where })).ys[0] as Float32Array;
  yield [
    "sum",
    { z: { data: swapAxes(where, z, batch, qLen, numHeads, valueDim), shape: [numHeads, qLen, valueDim] } },
  ];
  yield ["merge", { z: { data: z, shape: [qLen, numHeads * valueDim] } }];
  const y = finish(forward(parts, [call], { where })).ys[0] as Float32Array;
  yield ["output", { y: { data: y, shape: [qLen, dModel] } }];
}

type Part = "q" | "k" | "v";

/** `batch` times keys or values [heads, len, dim] with the layer's own one, and one of zeros, up to `columns` of them. */
function extendKeys(
  where: string,
  { memory }: Kernels,
  batch: number,
  { data, shape }: Tensor,
  extra: F32Ptr | NullPtr,
  columns: number,
): Tensor {
  const [heads, len, dim] = shape as [number, number, number];
  const out = createFloats(where, "stage", batch * heads * columns * dim);
  copyRows(out, 0, columns * dim, data, len * dim, len * dim);
  if (extra !== NULL)
    for (let row = 0; row < batch * heads; row++) {
      const own = memory.f32(extra, heads * dim).subarray((row % heads) * dim, ((row % heads) + 1) * dim);
      out.set(own, (row * columns + len) * dim);
    }
  return { data: out, shape: [heads, columns, dim] };
}
