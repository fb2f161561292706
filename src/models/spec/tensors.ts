// What files call the weights of a model: the tensor that each weight of the list lies in, alone or joined with others, and that of
// its bias. Files of one form have the same names; families differ in some.

import type { MatrixLayout } from "../../base/tensor/matrix.ts";
import type { SafetensorsFile } from "../../files/safetensors/safetensors.ts";
import type { AttentionWeights } from "../../layers/attention/weights.ts";
import type { LatentWeights } from "../../layers/latent/weights.ts";
import type { HfAttentionConfig } from "../families/attention-rules.ts";
import type { MlpNames, Names, TensorForm } from "../families/family.ts";
import { latentBiases, latentTensors, readLatentWeights } from "../weights/hf-latent.ts";
import { readAttentionWeights } from "../weights/hf-weights.ts";
import type { BlockSpec, ModelSpec, NormRole } from "./spec.ts";
import { type AttentionRole, attentionOf, attentionWeights, endWeights, layerWeights, type Weight } from "./weights.ts";

type Shape = readonly number[];

/** Names of tensors below a prefix, with their shapes. */
export type NamedShapes = readonly (readonly [name: string, shape: Shape])[];

/** A tensor of a file. */
export interface Source {
  readonly name: string;
  readonly shape: Shape;
  /** The weights of the list that it holds: the outputs of one after those of the other, or as `form` says. */
  readonly weights: readonly Weight[];
  /** Files may lack it. */
  readonly optional?: boolean | undefined;
  readonly bias?: { readonly name: string; readonly shape: Shape; readonly required?: true } | undefined;
  /** Default "out-in". */
  readonly layout?: MatrixLayout | undefined;
  /** Which attention of a layer it belongs to. */
  readonly attention?: Weight["attention"];
  /**
   * "stacked": [experts, outputs, inputs]; "interleaved": [experts, inputs, outputs], where outputs of an expert's weights take turns;
   * "convolution": [outputs, channels, 3].
   */
  readonly form?: "stacked" | "interleaved" | "convolution" | undefined;
}

/** A decoder, and how its file names and lays out what it consists of. */
export interface Decoder {
  readonly spec: ModelSpec;
  readonly names: Names;
  readonly family: TensorForm;
  readonly attention: AttentionTensors;
  /** The encoder of a model with two halves. */
  readonly encoder?: Decoder;
}

// The tensors of a layer's attention.

/** A tensor of a layer's attention, by its name below the layer's prefix. */
interface AttentionTensor {
  readonly name: string;
  readonly shape: Shape;
  readonly roles: readonly AttentionRole[];
  readonly optional?: boolean;
  /** The name and the shape of its bias, which files may lack. */
  readonly bias?: readonly [name: string, shape: Shape] | undefined;
}

/** The tensors of a layer's attention in files of one form. */
export interface AttentionTensors {
  tensors(attention: BlockSpec["attention"]): readonly AttentionTensor[];
  readHeads(tensors: SafetensorsFile["tensors"], prefix: string, config: HfAttentionConfig): AttentionWeights;
  readLatents(tensors: SafetensorsFile["tensors"], prefix: string): LatentWeights;
}

/** Those of safetensors files. */
export function hfAttentionTensors(names: Names, family: TensorForm): AttentionTensors {
  const file = (tensors: SafetensorsFile["tensors"]): SafetensorsFile => ({ metadata: new Map(), tensors });
  return {
    tensors: (attention) =>
      attention.kind === "latent"
        ? namedTensors(latentTensors(attention.config), latentBiases(attention.config))
        : hfHeads(attention, names, family),
    readHeads: (tensors, prefix, { numHeads, numKvHeads, headDim, fused }) =>
      readAttentionWeights(file(tensors), prefix, { numHeads, numKvHeads, headDim, fused }),
    readLatents: (tensors, prefix) => readLatentWeights(file(tensors), prefix),
  };
}

/** The weights of tensors of GGUF files, and of latent attention in safetensors files, by their names. */
const ROLES: Readonly<Record<string, readonly AttentionRole[]>> = {
  ...{ q: ["q"], k: ["k"], v: ["v"], qkv: ["q", "k", "v"], output: ["o"], q_norm: ["qNorm"], k_norm: ["kNorm"] },
  ...{ sinks: ["sinks"], q_a: ["qDown"], q_a_norm: ["qNorm"], q_b: ["q"], kv_a_mqa: ["kvDown"], kv_a_norm: ["kvNorm"] },
  ...{ kv_b: ["k", "v"], k_b: ["k"], v_b: ["v"] },
  ...{ q_proj: ["q"], q_a_proj: ["qDown"], q_a_layernorm: ["qNorm"], q_b_proj: ["q"], kv_b_proj: ["k", "v"] },
  ...{ kv_a_proj_with_mqa: ["kvDown"], kv_a_layernorm: ["kvNorm"], o_proj: ["o"] },
};

/** Tensors that readers of layers name, with the biases among `optional`, and the rest of these. */
export function namedTensors(required: NamedShapes, optional: NamedShapes): readonly AttentionTensor[] {
  const ownerOf = (name: string) => name.replace(/\.(weight|bias)$/, "");
  const biases = new Map(optional.filter(([name]) => name.endsWith(".bias")).map((each) => [ownerOf(each[0]), each]));
  const others = optional.filter(([name]) => !name.endsWith(".bias"));
  return [...required, ...others].map(([name, shape], i) => {
    const owner = ownerOf(name);
    return { name, shape, roles: ROLES[owner] ?? [], optional: i >= required.length, bias: biases.get(owner) };
  });
}

function hfHeads(
  attention: BlockSpec["attention"],
  { projections, sinks }: Names,
  { layout, headNorm }: TensorForm,
): readonly AttentionTensor[] {
  const weights = [...attentionWeights(attention, 0, "self")];
  const joined: readonly (readonly AttentionRole[])[] =
    projections.length === 2 ? [["q", "k", "v"], ["o"]] : [["q"], ["k"], ["v"], ["o"]];
  const linears = projections.map((name, i): AttentionTensor => {
    const roles = joined[i] as readonly AttentionRole[];
    const parts = weights.filter(({ role }) => roles.includes(role));
    const outputs = parts.reduce((sum, { shape: [n] }) => sum + n, 0);
    const inputs = parts[0]?.shape[1] as number;
    const shape = layout === "in-out" ? [inputs, outputs] : [outputs, inputs];
    return { name: `${name}.weight`, shape, roles, bias: [`${name}.bias`, [outputs]] };
  });
  const vectors = weights.flatMap(({ role, shape: [n] }): readonly AttentionTensor[] => {
    if (role === "qNorm" || role === "kNorm") return [{ name: `${role[0]}_norm.weight`, shape: [n], roles: [role] }];
    if (role === "sinks" && sinks !== undefined) return [{ name: sinks, shape: [n], roles: [role] }];
    if (!headNorm || (role !== "qHeadNorm" && role !== "kHeadNorm")) return [];
    const { dModel, numHeads, headDim = dModel / numHeads } = attention.config as HfAttentionConfig;
    return headNormTensors(headNorm, role, n, headDim);
  });
  return [...linears, ...vectors];
}

/** The gains of layer norms of `n` floats in all: one tensor, or one for each head. */
function headNormTensors(
  { each, ...names }: NonNullable<TensorForm["headNorm"]>,
  role: "qHeadNorm" | "kHeadNorm",
  n: number,
  headDim: number,
): readonly AttentionTensor[] {
  const name = role === "qHeadNorm" ? names.q : names.k;
  const tensor = (own: string, shape: Shape): AttentionTensor => ({
    ...{ name: `${own}.weight`, shape, roles: [role], bias: [`${own}.bias`, shape] },
  });
  if (each === "apart")
    return Array.from({ length: n / headDim }, (_, head) => tensor(`${name}.norms.${head}`, [headDim]));
  return [tensor(name, each === "together" ? [n / headDim, headDim] : [n])];
}

// The tensors of all weights.

/** The prefix of the tensors besides the head. */
export function findRoot({ names }: Decoder, tensors: ReadonlyMap<string, unknown>): string {
  return names.roots.find((root) => tensors.has(`${root}${names.embed}.weight`)) ?? (names.roots[0] as string);
}

/** The tensors of a decoder, besides the head below the prefix `root`, in the order of the list. */
export function* sourcesOf(decoder: Decoder, root: string): Generator<Source, void> {
  yield* endSources(decoder, root);
  for (const layer of decoder.spec.blocks.keys()) yield* layerSources(decoder, root, layer);
}

/** Those before the first layer and behind the last one. */
export const endSources = (decoder: Decoder, root: string): Iterable<Source> =>
  joinSources(endWeights(decoder.spec), (weight) => endPlace(decoder, root, weight));

/** Those of a layer. */
export function* layerSources(decoder: Decoder, root: string, layer: number): Generator<Source, void> {
  const { spec, names } = decoder;
  const weights = [...layerWeights(spec, layer)];
  for (const which of ["self", "cross"] as const) yield* attentionSources(decoder, root, layer, which, weights);
  const rest = weights.filter(({ attention }) => attention === undefined);
  const at = `${root}${names.layers}.${layer}.`;
  yield* joinSources(rest, (weight) => layerPlace(decoder, at, weight));
}

/** What the names of the tensors of a layer's attention begin with. */
export const attentionPrefix = ({ names }: Decoder, root: string, layer: number, which: "self" | "cross"): string =>
  `${root}${names.layers}.${layer}.${which === "self" ? names.attention : names.cross}`;

function* attentionSources(
  decoder: Decoder,
  root: string,
  layer: number,
  which: "self" | "cross",
  weights: readonly Weight[],
): Generator<Source, void> {
  const kind = attentionOf(decoder.spec.blocks[layer] as BlockSpec, which);
  if (kind === undefined) return;
  const prefix = attentionPrefix(decoder, root, layer, which);
  const own = new Map(weights.filter((each) => each.attention === which).map((each) => [each.role, each]));
  for (const { name, shape, roles, optional, bias } of decoder.attention.tensors(kind))
    yield {
      ...{ name: `${prefix}${name}`, shape, optional, attention: which },
      weights: roles.flatMap((role) => own.get(role) ?? []),
      bias: bias && { name: `${prefix}${bias[0]}`, shape: bias[1] },
    };
}

/** The tensor of a weight, alone or with others. */
type Place = Omit<Source, "weights">;

/** Joins weights of one tensor. */
function joinSources(weights: Iterable<Weight>, placeOf: (weight: Weight) => Place | undefined): Iterable<Source> {
  const found = new Map<string, Source & { readonly weights: Weight[] }>();
  for (const weight of weights) {
    const place = placeOf(weight);
    if (place === undefined) continue;
    const known = found.get(place.name);
    if (known) known.weights.push(weight);
    else found.set(place.name, { ...place, weights: [weight] });
  }
  return found.values();
}

/** The tensor NAME.weight and, if the weight can have one, NAME.bias, with `n` outputs. */
function named(name: string, { shape: [own, k], bias }: Weight, layout?: MatrixLayout, n = own): Place {
  const shape = k === undefined ? [n] : layout === "in-out" ? [k, n] : [n, k];
  return { name: `${name}.weight`, shape, bias: bias && { name: `${name}.bias`, shape: [n] }, layout };
}

/** Where a weight before the first layer or behind the last one lies; undefined if the file has none of its own. */
function endPlace({ names, family }: Decoder, root: string, weight: Weight): Place | undefined {
  const { role, shape } = weight;
  const [n, k = 0] = shape;
  const { head, headBias, stem = [], transform } = names;
  switch (role) {
    case "head":
      return named(head, weight);
    case "headBias":
      if (family.part === "encoder") return undefined;
      return { name: headBias ?? `${head}.bias`, shape: headBias ? [1, n] : [n], optional: true };
    case "embed":
      // An encoder beside a decoder has the table of that.
      return family.part === "encoder" ? undefined : named(`${root}${names.embed}`, weight);
    case "firstConv":
    case "secondConv": {
      const { name, bias } = named(`${root}${stem[role === "firstConv" ? 0 : 1]}`, weight);
      return { name, shape: [n, k / 3, 3], bias: bias && { ...bias, required: true }, form: "convolution" };
    }
    case "dense":
    case "denseNorm":
      return transform && named(role === "dense" ? transform.dense : transform.norm, weight, family.layout);
    default:
      return named(`${root}${names[role as EndName]}`, weight, weight.kind === "matrix" ? family.layout : undefined);
  }
}
type EndName = "embedNorm" | "positions" | "types" | "projectIn" | "projectOut" | "relativeBias" | "finalNorm";

/** Where a weight of a layer, whose names begin with `at`, lies, besides those of attention. */
function layerPlace({ spec, names, family }: Decoder, at: string, weight: Weight): Place | undefined {
  const { role, expert, layer, norm } = weight;
  const { layout, moeNames: moe } = family;
  if (norm) return named(`${at}${names.norms[role as NormRole]}`, weight);
  const { mlp } = spec.blocks[layer as number] as BlockSpec;
  if (expert === undefined && mlp?.kind === "mlp")
    return mlpPlace(names.mlpAt === "" ? at : `${at}${names.mlpAt}.`, names.mlp, weight, layout);
  if (moe === undefined || mlp?.kind !== "moe") return undefined;
  if (role === "router") return named(`${at}${moe.router}`, weight);
  if (role === "correction")
    return moe.correction && mlp.router.correction
      ? { name: `${at}${moe.correction}`, shape: moe.correctionRow ? [1, mlp.experts] : [mlp.experts] }
      : undefined;
  if (role === "sharedGate") {
    const place = named(`${at}${moe.sharedGate}`, weight, layout);
    return moe.expert === "stacked" ? { ...place, shape: place.shape.slice(1) } : place;
  }
  if (expert === "shared")
    return mlpPlace(moe.shared === "" ? at : `${at}${moe.shared}.`, moe.sharedMlp ?? moe.mlp, weight, layout);
  const form = moe.expert;
  if (typeof form !== "string") return mlpPlace(`${at}${form(expert as number)}.`, moe.mlp, weight, layout);
  // The tensors of all experts.
  const { name, shape, bias } = mlpPlace(at, moe.mlp, weight, form === "stacked" ? "out-in" : "in-out");
  const all = (shape: Shape) => [mlp.experts, ...shape];
  const biases = bias && { name: bias.name, shape: all(bias.shape) };
  if (form === "stacked") return { name, shape: all(shape), bias: biases, form };
  const plain = name.replace(/\.weight$/, "");
  return { name: plain, shape: all(shape), bias: biases && { ...biases, name: `${plain}_bias`, required: true }, form };
}

/** The tensor of a projection of an MLP: the gate and the other factor may be one. */
function mlpPlace(prefix: string, names: MlpNames, weight: Weight, layout: MatrixLayout | undefined): Place {
  const { gate, up = gate, down } = names;
  const { role, shape } = weight;
  const isJoined = role !== "down" && names.up === undefined;
  const name = role === "gate" ? gate : role === "up" ? up : down;
  return named(`${prefix}${name}`, weight, layout, isJoined ? 2 * shape[0] : shape[0]);
}
