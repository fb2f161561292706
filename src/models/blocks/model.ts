// A whole model in linear memory: what it consists of, and where its weights lie.

import { HeadwiseError } from "../../base/util/errors.ts";
import { expectMade, type Handle, type Releasable } from "../../base/util/lifetime.ts";
import { ln } from "../../base/util/math.ts";
import type { RelativeTable } from "../../layers/attention/distances.ts";
import { type PackedFormat, type PackedLinear, panelsOf } from "../../layers/linear/formats.ts";
import { joinLinears, type LinearPlace, linearFlops, placeLinears } from "../../layers/linear/products.ts";
import type { BlockLayer } from "../../layers/mixer/mixer.ts";
import type { ActivationShape, EmbedShape, F32Ptr, NormShape, NullPtr, Pointer, RouteShape } from "../../wasm/abi.ts";
import { expectKernels, type Kernels } from "../../wasm/kernels.ts";
import { Layout, type LinearMemory } from "../../wasm/memory.ts";
import { keyOf, type Weight } from "../mixers/weight.ts";
import {
  type ActivationSpec,
  type BranchFactors,
  headsOf,
  type MlpSpec,
  type ModelSpec,
  mostTokens,
  type NormRole,
  type NormSpec,
  type RelativeBias,
  type RouterSpec,
  type Temperature,
} from "../spec/spec.ts";
import { endWeights, layerWeights } from "../spec/weights.ts";

/** Gives an address the type of what it points to, for the kernels of decoders; `pointer` of memory.ts has the others. */
export const modelPointer: {
  i32(at: number): Pointer<Int32Array>;
  normShape(at: number): Pointer<NormShape>;
  activationShape(at: number): Pointer<ActivationShape>;
  embedShape(at: number): Pointer<EmbedShape>;
  routeShape(at: number): Pointer<RouteShape>;
} = {
  i32: (at) => at as Pointer<Int32Array>,
  normShape: (at) => at as Pointer<NormShape>,
  activationShape: (at) => at as Pointer<ActivationShape>,
  embedShape: (at) => at as Pointer<EmbedShape>,
  routeShape: (at) => at as Pointer<RouteShape>,
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
  /** Floats of the states that `encode` gives: `dModel`, unless a last projection makes others of them. */
  readonly vectorDim: number;
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
  /** What inputs of layers besides the residual are computed of. */
  readonly perLayer?:
    | { readonly stored: StoredTable | undefined; readonly projection: PackedLinear; readonly norm: PackedNorm }
    | undefined;
  /** What makes rows of streams besides the first, and what makes one row of them again. */
  readonly streams?: { readonly into: readonly PackedLinear[]; readonly out: readonly PackedLinear[] } | undefined;
  /** Widens rows of the table to dModel, and narrows the last ones to its rows. */
  readonly projectIn: PackedLinear | undefined;
  readonly projectOut: PackedLinear | undefined;
  readonly blocks: readonly PackedBlock[];
  readonly finalNorm: PackedNorm | undefined;
  readonly lastProjection?: PackedLinear | undefined;
  readonly transform?: { readonly dense: PackedLinear; readonly norm: PackedNorm } | undefined;
  readonly head: PackedLinear;
  readonly stem?: { readonly first: PackedLinear; readonly second: PackedLinear } | undefined;
  readonly relativeBias?: RelativeTable | undefined;
  readonly distances?: PackedTable | undefined;
  readonly distancesNorm?: PackedNorm | undefined;
  /** `mode` of linear_q8. */
  readonly mode: number;
}

/** Throws unless `model` came from `maker` and neither it nor its kernels were released. */
export function expectModel(where: string, model: LoadedModel, maker = "loadModel"): void {
  expectMade(where, "model", model, maker);
  expectKernels(where, model.kernels, "model.kernels");
}

// Where the weights of a model lie in their blocks of memory. It follows from the list of weights and the formats alone, so that
// the number of bytes is known before a weight is read.

/** The format of a matrix or a table. */
export type FormatOf = (weight: Weight) => PackedFormat;

/** Offsets of a vector and of its bias, if it is the gain of a norm that has one. */
export interface VectorPlace {
  readonly at: number;
  readonly bias: number;
}

/** Offsets of weights in a block of memory, by `keyOf`. */
export interface BlockPlaces {
  /** Those of the list that lie there; the bias of the head lies behind the head, or behind the table that is the head. */
  readonly weights: readonly Weight[];
  readonly bytes: number;
  /** Matrices and tables with their biases. */
  readonly linears: ReadonlyMap<string, LinearPlace>;
  readonly vectors: ReadonlyMap<string, VectorPlace>;
}

/** Where a model's weights lie besides those of attention: a block for the ends, and one for each layer. */
export interface ModelPlaces {
  readonly ends: BlockPlaces;
  readonly blocks: readonly BlockPlaces[];
  /** The matrices besides those of attention that rows of tokens are multiplied with. */
  readonly products: readonly LinearPlace[];
  /** About how many operations a row takes through all layers: its products. */
  readonly rowFlops: number;
}

/** Lays out the weights of a model, in the order of the list. */
export function placeModel(spec: ModelSpec, formatOf: FormatOf): ModelPlaces {
  const ends = placeBlock([...endWeights(spec)], formatOf, relativeFloats(spec));
  const layers = spec.blocks.map((_, layer) => [...layerWeights(spec, layer)]);
  const blocks = layers.map((weights) => placeBlock(weights, formatOf, 0));
  const flops = layers.map((weights) => weights.reduce((sum, weight) => sum + flopsOf(weight), 0));
  const outer = [ends.linears.get("head") ?? ends.linears.get("embed")];
  for (const role of ["projectIn", "projectOut", "dense", "perLayerProjection", "lastProjection"])
    outer.push(ends.linears.get(role));
  for (const [key, place] of ends.linears) if (key.startsWith("stream")) outer.push(place);
  return {
    ...{ ends, blocks },
    products: [...outer, ...blocks.flatMap(({ linears }) => [...linears.values()])].filter(
      (each) => each !== undefined,
    ),
    rowFlops: (spec.order ?? [...flops.keys()]).reduce((sum, layer) => sum + (flops[layer] as number), 0),
  };
}

/** Of a row, through a matrix that has a format: routers are too small to count. */
function flopsOf({ kind, part, active, mixer, shape: [n, k] }: Weight): number {
  const isCounted = kind === "matrix" && part !== undefined && active && mixer !== "cross";
  return isCounted ? linearFlops({ panels: panelsOf(n), k: k as number }, 1) : 0;
}

/** Lays out what is not part of an attention, which has blocks of its own. */
function placeBlock(all: readonly Weight[], formatOf: FormatOf, relative: number): BlockPlaces {
  const weights = all.filter(({ mixer, outside }) => mixer === undefined && !outside);
  const layout = new Layout();
  const linears = new Map<string, LinearPlace>();
  const vectors = new Map<string, VectorPlace>();
  for (const [i, weight] of weights.entries()) {
    const { role, kind, shape, bias } = weight;
    const [n] = shape;
    if (role === "headBias") continue;
    // Packed, it has an entry for each distance.
    if (role === "relativeBias") vectors.set(role, { at: layout.floats(relative), bias: 0 });
    else if (kind === "vector") vectors.set(keyOf(weight), { at: layout.floats(n), bias: bias ? layout.floats(n) : 0 });
    // The gate and the other factor lie side by side, so that both can be one product.
    else if (role !== "up" || weights[i - 1]?.role !== "gate") {
      const neighbours = role === "gate" ? weights.slice(i, i + 2) : [weight];
      const sizes = neighbours.map((each) => ({
        n: each.shape[0],
        k: each.shape[1] as number,
        format: formatOf(each),
      }));
      for (const [j, place] of placeLinears(layout, sizes).entries())
        linears.set(keyOf(neighbours[j] as Weight), place);
    }
  }
  return { weights, bytes: layout.bytes, linears, vectors };
}

// The weights of a decoder around attention in linear memory, as the pass finds them.

/** A norm of rows. */
export interface PackedNorm {
  readonly kind: NormSpec["kind"];
  readonly eps: number;
  readonly gain: F32Ptr;
  readonly bias: F32Ptr | NullPtr;
}

/** Two or three projections and an activation. */
export interface PackedMlp {
  readonly dim: number;
  /** The first projections, of the same rows: the gate and the other factor side by side, as one product if they are alike. */
  readonly inputs: readonly PackedLinear[];
  readonly gated: boolean;
  readonly activation: ActivationSpec;
  /** The scalars of xIELU, as its kernel takes them. */
  readonly xielu?: { readonly positive: number; readonly negative: number; readonly beta: number };
  readonly down: PackedLinear;
}

/** Experts, and what chooses among them. */
export interface PackedMoe {
  readonly topK: number;
  readonly router: RouterSpec;
  readonly scalesInputs: true | undefined;
  readonly gate: PackedLinear;
  readonly correction: F32Ptr | NullPtr;
  /** What the weights of each expert are multiplied by, if they are. */
  readonly expertScales: F32Ptr | NullPtr;
  readonly experts: readonly PackedMlp[];
  readonly shared: PackedMlp | undefined;
  /** The projection whose sigmoid scales the outputs of `shared`. */
  readonly sharedGate: PackedLinear | undefined;
  /** The projections before and behind experts that are narrower than the model. */
  readonly narrow: { readonly in: PackedLinear; readonly out: PackedLinear } | undefined;
}

/** A table of rows, one for each token or position, in the panels of a projection. */
export interface PackedTable {
  readonly rows: number;
  readonly dim: number;
  readonly format: PackedFormat;
  readonly at: number;
  /** Minimums, if the format has them. */
  readonly mins: number;
}

/** A row of a table as floats, until the next one is read. */
export type ReadRow = (index: number) => Float32Array;

/** A table [rows, width] outside of linear memory, as a file stores it: in the host's memory, or left in the file. */
export interface StoredTable {
  /** What reads these rows, if all of them are in memory. */
  held(rows: readonly number[]): ReadRow | undefined;
  /** What reads these rows, once those that are not in memory have come from the file. */
  fetch(where: string, rows: readonly number[]): Promise<ReadRow>;
  /** All bytes, in order. */
  pieces(where: string): AsyncIterable<Uint8Array>;
}

/** What a layer computes of an input of its own: see PerLayerSpec. */
export interface PackedLayerInput {
  readonly gate: PackedLinear;
  readonly out: PackedLinear;
  readonly activation: ActivationSpec;
  readonly dim: number;
  /** The first of its floats in a row of the inputs of all layers, which lie `stride` floats apart. */
  readonly first: number;
  readonly stride: number;
}

/** What a layer computes of streams: see StreamsSpec. */
export interface PackedStreams {
  readonly count: number;
  readonly active: number;
  readonly router: PackedLinear;
  readonly predict: PackedLinear;
  readonly correct: PackedLinear;
  readonly norm: PackedNorm;
  readonly scale: F32Ptr | NullPtr;
}

/** A decoder layer. */
export interface PackedBlock {
  /** Its weights besides those of attention. */
  readonly packed: PackedWeights;
  readonly attention: BlockLayer;
  /** Attention to the outputs of an encoder. */
  readonly cross: BlockLayer | undefined;
  readonly norms: Readonly<Partial<Record<NormRole, PackedNorm>>>;
  /** How queries grow with their positions. */
  readonly temperature: Temperature | undefined;
  readonly layerInput: PackedLayerInput | undefined;
  readonly lowRank: { readonly down: PackedLinear; readonly up: PackedLinear } | undefined;
  readonly streams: PackedStreams | undefined;
  /** What the layer's output is multiplied by. */
  readonly outScale: number;
  /** The projection whose sigmoid the outputs of heads are multiplied by. */
  readonly attentionGate: PackedLinear | undefined;
  /** Whether the gates are of heads, not of each of their outputs. */
  readonly gatesHeads: boolean;
  readonly mlp: PackedMlp | undefined;
  readonly moe: PackedMoe | undefined;
  readonly parallel: boolean;
  readonly addsToNormed: boolean;
  readonly scale: number;
  readonly mlpScale?: number | undefined;
  readonly factors?: BranchFactors | undefined;
}

/** The weights of a block of memory, by `keyOf`. */
export interface PackedWeights {
  readonly linears: ReadonlyMap<string, PackedLinear>;
  readonly vectors: ReadonlyMap<string, { readonly at: F32Ptr; readonly bias: F32Ptr | NullPtr }>;
}

/** The first projections of an MLP: as one product, if they are alike. */
export function joinInputs(gate: PackedLinear | undefined, up: PackedLinear): readonly PackedLinear[] {
  if (gate === undefined) return [up];
  return gate.format === up.format ? [joinLinears(gate, up)] : [gate, up];
}

/** The MLP of packed matrices. */
export function joinMlp(
  { dim, gated, activation }: MlpSpec,
  gate: PackedLinear | undefined,
  up: PackedLinear,
  down: PackedLinear,
): PackedMlp {
  return { dim, gated, activation, inputs: joinInputs(gate, up), down };
}

// Biases by relative position: distances share the entries of a table of buckets, near ones have entries of their own. Packed, each
// head has a row with an entry for each distance.

/** What kernels may read behind a row. */
const BEHIND = 8;

const biasHeads = ({ blocks: [first] }: ModelSpec) => (first ? headsOf(first.mixer) : 0);

/** Entries of a row: of all keys before a query, its own, and those after it. */
const strideOf = (spec: ModelSpec) => 2 * mostTokens(spec) + BEHIND;

/** Floats of the packed bias of a model; 0 if it has none. */
const relativeFloats = (spec: ModelSpec): number => (spec.relativeBias ? biasHeads(spec) * strideOf(spec) : 0);

/** The packed bias at the address `at`. */
export const relativeTable = (spec: ModelSpec, at: number): RelativeTable => ({
  ...{ at, zero: mostTokens(spec), stride: strideOf(spec) },
});

/** Packs a bias [buckets, heads] at the address `at`. */
export function packRelative(memory: LinearMemory, spec: ModelSpec, values: Float32Array, at: number): void {
  const [heads, bias] = [biasHeads(spec), spec.relativeBias as RelativeBias];
  const { stride, zero } = relativeTable(spec, at);
  const rows = memory.f32(at, heads * stride);
  for (let i = 0; i < stride; i++) {
    const bucket = bucketOf(bias, i - zero);
    for (let head = 0; head < heads; head++) rows[head * stride + i] = values[bucket * heads + head] as number;
  }
}

/** The bucket of a key `distance` positions after its query. */
export function bucketOf({ buckets, maxDistance, bothWays }: RelativeBias, distance: number): number {
  const count = bothWays ? buckets / 2 : buckets;
  const first = bothWays && distance > 0 ? count : 0;
  const away = bothWays ? Math.abs(distance) : Math.max(0, -distance);
  const exact = Math.floor(count / 2);
  if (away < exact) return first + away;
  // From there on, buckets grow with the distance; in float32, as in PyTorch, because bounds of buckets are not far from integers.
  const share = Math.fround(Math.fround(ln(Math.fround(away / exact))) / Math.fround(ln(maxDistance / exact)));
  return first + Math.min(exact + Math.floor(Math.fround(share * (count - exact))), count - 1);
}
