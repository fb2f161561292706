// The weights of a model, in one list, which follows from its specification. What checks a file, counts parameters, lays out memory,
// reads and packs, chooses formats, counts operations or digests a model goes through it. How files call and join them is said in
// tensors.ts.

import { MIXERS } from "../mixers/mixers.ts";
import {
  BARE,
  type MixerRole,
  type Weight,
  type WeightOf,
  type WeightRole,
  weightOf,
  XIELU,
} from "../mixers/weight.ts";
import {
  type BlockSpec,
  gatesOf,
  headsOf,
  isGated,
  type MixerSpec,
  type MlpSpec,
  type ModelSpec,
  type MoeSpec,
  type NormRole,
  type NormSpec,
  widthOfHeads,
  widthOfRows,
} from "./spec.ts";

const matrix = (role: WeightRole, n: number, k: number, more: WeightOf) => weightOf(role, "matrix", [n, k], more);
const table = (role: WeightRole, n: number, k: number, more?: WeightOf) => weightOf(role, "table", [n, k], more);
const vector = (role: WeightRole, n: number, more: WeightOf) => weightOf(role, "vector", [n], more);
const normOf = (role: WeightRole, n: number, norm: NormSpec, layer?: number) =>
  vector(role, n, { norm, layer, ...(norm.bare ? BARE : { bias: norm.kind === "layer" ? true : undefined }) });

/** The weights of a model. */
export function* weightsOf(spec: ModelSpec): Generator<Weight, void> {
  yield* endWeights(spec);
  for (const layer of spec.blocks.keys()) yield* layerWeights(spec, layer);
}

/** Those before the first layer and behind the last one. */
export function* endWeights(spec: ModelSpec): Generator<Weight, void> {
  const { dModel, vocabSize, embed, finalNorm, vectorDim, relativeBias, distances, blocks, head, streams } = spec;
  const width = widthOfRows(spec);
  const projection = { part: "embed", bias: true } as const;
  yield table("embed", vocabSize, embed.dim, { part: "embed" });
  // Of the head, also where that is the table of tokens.
  yield vector("headBias", vocabSize, { optional: true });
  if (embed.norm) yield normOf("embedNorm", width, embed.norm);
  if (embed.positions)
    yield table("positions", embed.positions.rows, width, embed.positions.waves && { optional: true });
  if (embed.channels) {
    yield matrix("firstConv", dModel, 3 * embed.channels, { bias: true });
    yield matrix("secondConv", dModel, 3 * dModel, { bias: true });
  }
  if (embed.types) yield table("types", embed.types, width);
  if (embed.perLayer) {
    const { dim, rows, norm } = embed.perLayer;
    if (rows > 0) yield table("perLayerTable", rows, blocks.length * dim, { outside: true });
    yield matrix("perLayerProjection", blocks.length * dim, dModel, { part: "mlp" });
    yield normOf("perLayerNorm", dim, norm);
  }
  for (const role of streams ? (["streamIn", "streamOut"] as const) : [])
    for (let i = 1; i < (streams?.count ?? 0); i++) yield matrix(role, dModel, dModel, { expert: i - 1, part: "mlp" });
  if (embed.dim !== dModel) {
    yield matrix("projectIn", dModel, embed.dim, projection);
    if (!embed.projectLast) yield matrix("projectOut", embed.dim, dModel, projection);
  }
  if (relativeBias) yield table("relativeBias", relativeBias.buckets, headsOf(blocks[0]!.mixer));
  if (distances) yield table("distances", 2 * distances.span, dModel);
  if (distances?.norm) yield normOf("distancesNorm", dModel, distances.norm);
  if (finalNorm) yield normOf("finalNorm", dModel, finalNorm);
  if (vectorDim) yield matrix("lastProjection", vectorDim, dModel, { part: "embed" });
  if (head.tied === false) yield matrix("head", vocabSize, embed.dim, { part: "embed" });
  if (head.transform) {
    yield matrix("dense", embed.dim, dModel, projection);
    yield normOf("denseNorm", embed.dim, head.transform.norm);
  }
}

/** Those of a layer. */
export function* layerWeights({ dModel, blocks, embed, streams }: ModelSpec, layer: number): Generator<Weight, void> {
  const block = blocks[layer] as BlockSpec;
  for (const which of ["self", "cross"] as const) {
    const mixer = mixerOf(block, which);
    if (mixer) yield* mixerWeights(mixer, layer, which);
  }
  const heads = widthOfHeads(block);
  if (isGated(block)) yield matrix("attentionGate", gatesOf(block), dModel, { layer, part: "attention", bias: true });
  if (block.scaled) yield vector("layerScale", 1, { layer });
  if (embed.perLayer) {
    yield matrix("perLayerGate", embed.perLayer.dim, dModel, { layer, part: "mlp" });
    yield matrix("perLayerOut", dModel, embed.perLayer.dim, { layer, part: "mlp" });
  }
  if (block.lowRank) {
    yield matrix("lowRankDown", block.lowRank, dModel, { layer, part: "mlp" });
    yield matrix("lowRankUp", dModel, block.lowRank, { layer, part: "mlp" });
  }
  if (streams) {
    const { count, scaled } = streams;
    yield matrix("streamRouter", count, dModel, { layer });
    yield matrix("streamPredict", count * count, count, { layer });
    yield matrix("streamCorrect", count, count, { layer });
    if (scaled) yield vector("streamScale", dModel, { layer });
  }
  const { mlp } = block;
  const widths: Partial<Record<string, number>> = { attentionSub: heads, mlpSub: mlp?.kind === "mlp" ? mlp.dim : 0 };
  for (const [role, norm] of Object.entries(block.norms))
    yield normOf(role as NormRole, widths[role] ?? dModel, norm, layer);
  if (mlp?.kind === "mlp") yield* mlpWeights(mlp, dModel, { layer });
  if (mlp?.kind === "moe") yield* moeWeights(mlp, dModel, layer);
}

/** A layer's own mixer, or its attention to the outputs of an encoder. */
export const mixerOf = (block: BlockSpec, which: "self" | "cross"): MixerSpec | undefined =>
  which === "self" ? block.mixer : block.cross;

/** Those of a mixer of a layer. */
export const mixerWeights = (mixer: MixerSpec, layer: number, which: "self" | "cross"): Iterable<Weight<MixerRole>> =>
  MIXERS[mixer.kind].weights(mixer, { layer, mixer: which });

function* mlpWeights({ dim, gated, activation }: MlpSpec, dModel: number, of: WeightOf): Generator<Weight, void> {
  const more = { ...of, part: "mlp", bias: true } as const;
  if (gated) yield matrix("gate", dim, dModel, more);
  yield matrix("up", dim, dModel, more);
  yield matrix("down", dModel, dim, more);
  if (activation.kind !== "xielu" || activation.xielu) return;
  for (const [role, constant] of Object.entries(XIELU) as [keyof typeof XIELU, number | undefined][])
    yield vector(role, 1, { ...of, constant, optional: constant === undefined ? undefined : true });
}

/** Experts and what chooses among them, which is float32: rounding could choose others. */
function* moeWeights(
  { experts, topK, expert, shared, dim, router }: MoeSpec,
  dModel: number,
  layer: number,
): Generator<Weight, void> {
  yield matrix("router", experts, dModel, { layer, bias: true });
  yield vector("correction", experts, { layer, optional: true });
  if (router.expertScales) yield vector("expertScales", experts, { layer });
  for (let e = 0; e < experts; e++) yield* mlpWeights(expert, dim ?? dModel, { layer, expert: e, active: e < topK });
  if (dim !== undefined) {
    yield matrix("expertsIn", dim, dModel, { layer, part: "mlp", bias: true });
    yield matrix("expertsOut", dModel, dim, { layer, part: "mlp", bias: true });
  }
  if (shared) yield* mlpWeights(shared.mlp, dModel, { layer, expert: "shared" });
  if (shared?.gated) yield matrix("sharedGate", 1, dModel, { layer, bias: true });
}
