// The weights of a model, in one list, which follows from its specification. What checks a file, counts parameters, lays out memory,
// reads and packs, chooses formats, counts operations or digests a model goes through it. How files call and join them is said in
// tensors.ts.

import { checkConfig } from "../../layers/attention/config.ts";
import { PROJECTIONS, projectionSizes, vectorSizes } from "../../layers/attention/weights.ts";
import { checkLatentConfig } from "../../layers/latent/config.ts";
import { latentMatrixSizes } from "../../layers/latent/weights.ts";
import type { LinearSize } from "../../layers/linear/formats/format.ts";
import {
  type BlockSpec,
  type MlpSpec,
  type ModelSpec,
  type MoeSpec,
  type NormRole,
  type NormSpec,
  widthOfRows,
} from "./spec.ts";

/** Of a layer's attention; where it has latents, "k" and "v" widen them, and the norms of latents are "qNorm" and "kvNorm". */
export type AttentionRole =
  | ("q" | "k" | "v" | "o" | "qDown" | "kvDown")
  | ("qNorm" | "kNorm" | "kvNorm" | "sinks" | "qHeadNorm" | "kHeadNorm");

/** What a weight is for. Those before the first layer and behind the last one, and those of a layer. */
export type WeightRole =
  | (
      | "embed"
      | "headBias"
      | "embedNorm"
      | "positions"
      | "firstConv"
      | "secondConv"
      | "types"
      | "projectIn"
      | "projectOut"
    )
  | ("relativeBias" | "finalNorm" | "head" | "dense" | "denseNorm")
  | (AttentionRole | NormRole | "router" | "correction" | "gate" | "up" | "down" | "sharedGate");

/** A weight of a model. A matrix or a norm stands for its bias, too. */
export interface Weight {
  readonly role: WeightRole;
  /** Index of `blocks`; undefined of what is before the first layer and behind the last one. */
  readonly layer?: number | undefined;
  /** Whose MLP this is: an expert's, or that of the expert of all tokens; undefined in a layer without experts. */
  readonly expert?: number | "shared" | undefined;
  /** Which attention of the layer this belongs to, which is packed as a whole: its own, or that to an encoder's outputs. */
  readonly attention?: "self" | "cross" | undefined;
  /** A matrix that rows are multiplied with [outputs, inputs], a vector [floats], or a table [rows, floats]. */
  readonly kind: "matrix" | "vector" | "table";
  readonly shape: readonly [n: number, k?: number];
  /** The part of the model whose formats it can have; undefined if it is always float32, such as what rounding would harm. */
  readonly part?: "attention" | "mlp" | "embed" | undefined;
  /** Whether it can have a bias. */
  readonly bias?: true | undefined;
  /** Of a norm. */
  readonly norm?: NormSpec | undefined;
  /** Whether some models lack it. */
  readonly optional?: true | undefined;
  /** False of experts that a token does not take; the first ones stand for those that it takes. */
  readonly active: boolean;
}

/** A weight among those of its layer, or of the ends, besides those of attention. */
export const keyOf = ({ role, expert }: Pick<Weight, "role" | "expert">): string =>
  expert === undefined ? role : `${role} ${expert}`;

/** For messages about attention, which whoever read the specification has checked. */
const WHERE = "weightsOf";

/** What a weight has besides its role, kind and shape. */
type More = Partial<Omit<Weight, "role" | "kind" | "shape">>;

const weightOf = <Role extends WeightRole>(
  role: Role,
  kind: Weight["kind"],
  shape: Weight["shape"],
  more: More,
): Weight & { readonly role: Role } => ({ role, kind, shape, active: true, ...more });

const matrix = <Role extends WeightRole>(role: Role, n: number, k: number, more: More) =>
  weightOf(role, "matrix", [n, k], more);
const table = (role: WeightRole, n: number, k: number, more: More = {}) => weightOf(role, "table", [n, k], more);
const vector = <Role extends WeightRole>(role: Role, n: number, more: More = {}) => weightOf(role, "vector", [n], more);
const normOf = (role: WeightRole, n: number, norm: NormSpec, layer?: number) =>
  vector(role, n, { norm, layer, bias: norm.kind === "layer" ? true : undefined });

/** The weights of a model. */
export function* weightsOf(spec: ModelSpec): Generator<Weight, void> {
  yield* endWeights(spec);
  for (const layer of spec.blocks.keys()) yield* layerWeights(spec, layer);
}

/** Those before the first layer and behind the last one. */
export function* endWeights(spec: ModelSpec): Generator<Weight, void> {
  const { dModel, vocabSize, embed, finalNorm, relativeBias, blocks, head } = spec;
  const width = widthOfRows(spec);
  const projection = { part: "embed", bias: true } as const;
  yield table("embed", vocabSize, embed.dim, { part: "embed" });
  // Of the head, also where that is the table of tokens.
  yield vector("headBias", vocabSize, { optional: true });
  if (embed.norm) yield normOf("embedNorm", width, embed.norm);
  if (embed.positions) yield table("positions", embed.positions.rows, width);
  if (embed.channels) {
    yield matrix("firstConv", dModel, 3 * embed.channels, { bias: true });
    yield matrix("secondConv", dModel, 3 * dModel, { bias: true });
  }
  if (embed.types) yield table("types", embed.types, width);
  if (embed.dim !== dModel) {
    yield matrix("projectIn", dModel, embed.dim, projection);
    if (!embed.projectLast) yield matrix("projectOut", embed.dim, dModel, projection);
  }
  if (relativeBias) yield table("relativeBias", relativeBias.buckets, blocks[0]!.attention.config.numHeads);
  if (finalNorm) yield normOf("finalNorm", dModel, finalNorm);
  if (head.tied === false) yield matrix("head", vocabSize, embed.dim, { part: "embed" });
  if (head.transform) {
    yield matrix("dense", embed.dim, dModel, projection);
    yield normOf("denseNorm", embed.dim, head.transform.norm);
  }
}

/** Those of a layer. */
export function* layerWeights({ dModel, blocks }: ModelSpec, layer: number): Generator<Weight, void> {
  const block = blocks[layer] as BlockSpec;
  for (const which of ["self", "cross"] as const) {
    const attention = attentionOf(block, which);
    if (attention) yield* attentionWeights(attention, layer, which);
  }
  for (const [role, norm] of Object.entries(block.norms)) yield normOf(role as NormRole, dModel, norm, layer);
  const { mlp } = block;
  if (mlp?.kind === "mlp") yield* mlpWeights(mlp, dModel, { layer });
  if (mlp?.kind === "moe") yield* moeWeights(mlp, dModel, layer);
}

/** A layer's own attention, or that to the outputs of an encoder. */
export function attentionOf(
  { attention, cross }: BlockSpec,
  which: "self" | "cross",
): BlockSpec["attention"] | undefined {
  if (which === "self") return attention;
  return cross && { kind: "heads", config: cross };
}

/** Those of an attention, with the sizes that its layers check. */
export function* attentionWeights(
  own: BlockSpec["attention"],
  layer: number,
  attention: "self" | "cross",
): Generator<Weight & { readonly role: AttentionRole }, void> {
  const of = { layer, attention };
  const joined = { ...of, part: "attention" } as const;
  const linear = { ...joined, bias: true } as const;
  const matrixOf = (role: AttentionRole, { n, k }: LinearSize, more: More = linear) => matrix(role, n, k, more);
  if (own.kind === "latent") {
    const config = checkLatentConfig(WHERE, own.config);
    const { numHeads, nopeDim, valueDim, kvLoraRank, qLoraRank } = config;
    const { wq, wqDown, wqUp, wkvDown, wo } = latentMatrixSizes(config);
    if (qLoraRank > 0) {
      yield matrixOf("qDown", wqDown);
      yield vector("qNorm", qLoraRank, of);
    }
    yield matrixOf("q", qLoraRank > 0 ? wqUp : wq);
    yield matrixOf("kvDown", wkvDown);
    yield vector("kvNorm", kvLoraRank, of);
    // The parts of wkvUp.
    yield matrix("k", numHeads * nopeDim, kvLoraRank, joined);
    yield matrix("v", numHeads * valueDim, kvLoraRank, joined);
    yield matrixOf("o", wo);
    return;
  }
  const config = checkConfig(WHERE, own.config);
  const sizes = projectionSizes(config);
  for (const role of PROJECTIONS) yield matrixOf(role, sizes[role]);
  const { qNorm, kNorm, sinks } = vectorSizes(config);
  if (config.qkNorm) {
    yield vector("qNorm", qNorm, of);
    yield vector("kNorm", kNorm, of);
  }
  yield vector("sinks", sinks, { ...of, optional: true });
  const { headNorm } = own;
  if (headNorm) {
    yield vector("qHeadNorm", headNorm.each ? sizes.q.n : config.headDim, { ...of, bias: true });
    yield vector("kHeadNorm", headNorm.each ? sizes.k.n : config.headDim, { ...of, bias: true });
  }
}

function* mlpWeights({ dim, gated }: MlpSpec, dModel: number, of: More): Generator<Weight, void> {
  const more = { ...of, part: "mlp", bias: true } as const;
  if (gated) yield matrix("gate", dim, dModel, more);
  yield matrix("up", dim, dModel, more);
  yield matrix("down", dModel, dim, more);
}

/** Experts and what chooses among them, which is float32: rounding could choose others. */
function* moeWeights(
  { experts, topK, expert, shared }: MoeSpec,
  dModel: number,
  layer: number,
): Generator<Weight, void> {
  yield matrix("router", experts, dModel, { layer, bias: true });
  yield vector("correction", experts, { layer, optional: true });
  for (let e = 0; e < experts; e++) yield* mlpWeights(expert, dModel, { layer, expert: e, active: e < topK });
  if (shared) yield* mlpWeights(shared.mlp, dModel, { layer, expert: "shared" });
  if (shared?.gated) yield matrix("sharedGate", 1, dModel, { layer, bias: true });
}
