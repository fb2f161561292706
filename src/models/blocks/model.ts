// A decoder in linear memory.

import { HeadwiseError } from "../../base/util/errors.ts";
import { expectMade, type Handle, type Releasable } from "../../base/util/lifetime.ts";
import type { RelativeTable } from "../../layers/attention/heads.ts";
import type { PackedLinear } from "../../layers/linear/formats/format.ts";
import type { ActivationShapePtr, EmbedShapePtr, I32Ptr, NormShapePtr, RouteShapePtr } from "../../wasm/abi.ts";
import { expectKernels, type Kernels } from "../../wasm/kernels.ts";
import type { LinearMemory } from "../../wasm/memory.ts";
import type { ModelSpec } from "../spec/spec.ts";
import type { ModelPlaces, PackedBlock, PackedNorm, PackedTable, PackedWeights } from "./places.ts";

/** Gives an address the type of what it points to, for the kernels of decoders; `pointer` of memory.ts has the others. */
export const modelPointer: {
  i32(at: number): I32Ptr;
  normShape(at: number): NormShapePtr;
  activationShape(at: number): ActivationShapePtr;
  embedShape(at: number): EmbedShapePtr;
  routeShape(at: number): RouteShapePtr;
} = {
  i32: (at) => at as I32Ptr,
  normShape: (at) => at as NormShapePtr,
  activationShape: (at) => at as ActivationShapePtr,
  embedShape: (at) => at as EmbedShapePtr,
  routeShape: (at) => at as RouteShapePtr,
};

/**
 * Grows memory for blocks that are allocated next, once: each growth costs the engine about a millisecond. Where so many bytes
 * do not fit in one piece, the blocks may, and grow it themselves.
 */
export function reserve(where: string, memory: LinearMemory, bytes: number): void {
  try {
    memory.free(memory.allocate(where, bytes));
  } catch (error) {
    if (!(error instanceof HeadwiseError) || error.code !== "OUT_OF_MEMORY") throw error;
  }
}

/** The kinds of whole models: what `loadModel`, `loadEncoder` and `loadSeq2Seq` load. */
export type ModelKind = "Model" | "Encoder" | "Seq2Seq";

/**
 * A whole decoder: its weights, packed in linear memory until `release()`.
 * @example
 * import { loadKernels } from "headwise";
 * import { forward, createSession, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * using model = await loadModel(kernels, "model");
 * const { logits } = forward(createSession(model, { maxSeqLen: 64 }), [1, 2, 3]);
 * console.log(logits.length === model.vocabSize); // true
 */
export interface Model extends LoadedModel<"Model"> {}

/** What a whole model is, of whatever kind. */
export interface LoadedModel<Kind extends ModelKind = ModelKind> extends Releasable, Handle<Kind> {
  /** The kernels that run the model, in whose memory its weights lie. */
  readonly kernels: Kernels;
  /** `model_type` of config.json. */
  readonly type: string;
  /** Floats of a token's row between layers. */
  readonly dModel: number;
  /** Tokens that ids name: each id is less. */
  readonly vocabSize: number;
  /** Layers. */
  readonly layers: number;
  /** Tokens of the longest sequence: what `loadModel` was given, else what config.json says; undefined if it says nothing. */
  readonly maxSeqLen: number | undefined;
  /** Bytes of linear memory that the weights take. */
  readonly bytes: number;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /** @internal */
  readonly spec: ModelSpec;
  /** @internal */
  readonly places: ModelPlaces;
  /** @internal */
  readonly weights: ModelWeights;
  /** @internal The encoder of a model with two halves. */
  readonly encoder: ModelHalf | undefined;
}

/** A model, or a half of one, in linear memory. */
export type ModelHalf = Pick<LoadedModel, "spec" | "places" | "weights">;

/** What a model consists of. */
export interface ModelWeights {
  /** Those before the first layer and behind the last one. */
  readonly packed: PackedWeights;
  readonly embed: PackedTable;
  readonly embedNorm: PackedNorm | undefined;
  readonly positions: PackedTable | undefined;
  readonly types?: PackedTable | undefined;
  /** Widens rows of the table to dModel, and narrows the last ones to its rows. */
  readonly projectIn: PackedLinear | undefined;
  readonly projectOut: PackedLinear | undefined;
  readonly blocks: readonly PackedBlock[];
  readonly finalNorm: PackedNorm | undefined;
  readonly transform?: { readonly dense: PackedLinear; readonly norm: PackedNorm } | undefined;
  readonly head: PackedLinear;
  readonly stem?: { readonly first: PackedLinear; readonly second: PackedLinear } | undefined;
  readonly relativeBias?: RelativeTable | undefined;
  /** `mode` of linear_q8. */
  readonly mode: number;
}

/** Throws unless `model` came from `maker` and neither it nor its kernels were released. */
export function expectModel(where: string, model: LoadedModel, maker = "loadModel"): void {
  expectMade(where, "model", model, maker);
  expectKernels(where, model.kernels, "model.kernels");
}
