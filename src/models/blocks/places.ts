// Where the weights of a decoder lie in their blocks of memory. It follows from the list of weights and the formats alone, so that
// the number of bytes is known before a weight is read.

import { type PackedFormat, type PackedLinear, panelsOf } from "../../layers/linear/formats/format.ts";
import { joinLinears, type LinearPlace, linearFlops, placeLinears } from "../../layers/linear/products.ts";
import type { BlockLayer } from "../../layers/mixer/mixer.ts";
import type { F32Ptr, NullPtr } from "../../wasm/abi.ts";
import { Layout } from "../../wasm/memory.ts";
import type { ActivationSpec, MlpSpec, ModelSpec, NormRole, NormSpec, RouterSpec } from "../spec/spec.ts";
import { endWeights, keyOf, layerWeights, type Weight } from "../spec/weights.ts";
import { relativeFloats } from "./relative.ts";

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
  for (const role of ["projectIn", "projectOut", "dense"]) outer.push(ends.linears.get(role));
  return {
    ...{ ends, blocks },
    products: [...outer, ...blocks.flatMap(({ linears }) => [...linears.values()])].filter(
      (each) => each !== undefined,
    ),
    rowFlops: (spec.order ?? [...flops.keys()]).reduce((sum, layer) => sum + (flops[layer] as number), 0),
  };
}

/** Of a row, through a matrix that has a format: routers are too small to count. */
function flopsOf({ kind, part, active, attention, shape: [n, k = 0] }: Weight): number {
  const isCounted = kind === "matrix" && part !== undefined && active && attention !== "cross";
  return isCounted ? linearFlops({ panels: panelsOf(n), k }, 1) : 0;
}

/** Lays out what is not part of an attention, which has blocks of its own. */
function placeBlock(all: readonly Weight[], formatOf: FormatOf, relative: number): BlockPlaces {
  const weights = all.filter(({ attention }) => attention === undefined);
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
  readonly down: PackedLinear;
}

/** Experts, and what chooses among them. */
export interface PackedMoe {
  readonly topK: number;
  readonly router: RouterSpec;
  readonly gate: PackedLinear;
  readonly correction: F32Ptr | NullPtr;
  readonly experts: readonly PackedMlp[];
  readonly shared: PackedMlp | undefined;
  /** The projection whose sigmoid scales the outputs of `shared`. */
  readonly sharedGate: PackedLinear | undefined;
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

/** A decoder layer. */
export interface PackedBlock {
  /** Its weights besides those of attention. */
  readonly packed: PackedWeights;
  readonly attention: BlockLayer;
  /** Attention to the outputs of an encoder. */
  readonly cross: BlockLayer | undefined;
  readonly norms: Readonly<Partial<Record<NormRole, PackedNorm>>>;
  readonly mlp: PackedMlp | undefined;
  readonly moe: PackedMoe | undefined;
  readonly parallel: boolean;
  readonly addsToNormed: boolean;
  readonly scale: number;
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
