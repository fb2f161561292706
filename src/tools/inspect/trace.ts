// The stages of a layer of attention as data, in words and formulas.

import type { Tensor } from "../../base/tensor/tensor.ts";
import { expectInt, readFields } from "../../base/util/arguments.ts";
import { tagOf } from "../../base/util/errors.ts";
import type { Attention } from "../../layers/attention/attention.ts";
import type { BlockLayer } from "../../layers/mixer/mixer.ts";
import { type AttendOptions, checkPass, expectAttention, readCall } from "../../layers/pass/call.ts";
import { expectModel, type Model, type PackedBlock } from "../../models/blocks/model.ts";
import { STAGES, type StageName } from "./stages.ts";
import { expectHeads, mixerOf, viewOf } from "./views.ts";

/** Options of `traceAttention`: those of `attend` that do not concern a cache, padding or where y is written. */
export type TraceOptions = Pick<
  AttendOptions,
  "batch" | "keys" | "values" | "align" | "keep" | "drop" | "bias" | "positions"
>;

const OPTIONS = [
  ...(["batch", "keys", "values", "align"] as const),
  ...(["keep", "drop", "bias", "positions"] as const),
] as const;

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
  const given = readCall(where, x, options, OPTIONS);
  const layer = layerOf(where, attention);
  expectAttention(where, layer);
  const view = viewOf(layer);
  const call = checkPass(where, layer, view.passes, given);
  const lead = given.options.batch === undefined ? [] : [call.batch];
  const { formulas, stages } = STAGES[layer.kind] as (typeof STAGES)[string];
  const texts = formulas(layer, call);
  return Array.from(stages(layer, call), ([name, tensors]): AttentionStage => {
    const batched = Object.entries(tensors).map(([letter, { data, shape }]) => [
      letter,
      { data, shape: [...lead, ...shape] },
    ]);
    return { name, ...(texts[name] as NonNullable<(typeof texts)[StageName]>), tensors: Object.fromEntries(batched) };
  });
}

function layerOf(where: string, attention: Attention | ModelLayer): Attention | BlockLayer {
  if (tagOf(attention) === "Model")
    throw new TypeError(`${where}: attention expected { model, layer } for a layer of a model, got Model`);
  if (attention === null || typeof attention !== "object" || !("model" in attention)) return attention;
  const { model, layer } = readFields(where, "attention", attention, ["model", "layer"]);
  expectModel(where, model);
  const { blocks } = model.weights;
  const index = expectInt(where, "attention.layer", layer, 0, blocks.length - 1);
  const { attention: own } = blocks[index] as PackedBlock;
  const heads = expectHeads(where, "attention.layer", own, index);
  if (!heads.isPart) return own;
  throw new RangeError(
    `${where}: attention.layer expected one of attention alone, got ${index}: ${mixerOf(own).name(own)}`,
  );
}
