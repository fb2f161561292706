// What files call the weights of a model: the tensor that each weight of the list lies in, alone or joined with others, and that of
// its bias. Files of one form have the same names; families differ in some.

import type { MatrixLayout } from "../../base/tensor/matrix.ts";
import type { SafetensorsFile } from "../../files/safetensors/safetensors.ts";
import type { AttentionWeights } from "../../layers/attention/weights.ts";
import type { LatentWeights } from "../../layers/latent/weights.ts";
import type { Family, MlpNames, Names } from "../families/family.ts";
import type { HfAttentionConfig } from "../families/hf-rules.ts";
import { latentBiases, latentTensors, readLatentWeights } from "../weights/hf-latent.ts";
import { readAttentionWeights } from "../weights/hf-weights.ts";
import type { BlockSpec, ModelSpec, MoeSpec, NormRole } from "./spec.ts";
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
  /** Whether files may lack it. */
  readonly optional: boolean;
  readonly bias?: { readonly name: string; readonly shape: Shape; readonly optional: boolean } | undefined;
  readonly layout: MatrixLayout;
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
  readonly family: Family;
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
export function hfAttentionTensors(names: Names, family: Family): AttentionTensors {
  const file = (tensors: SafetensorsFile["tensors"]): SafetensorsFile => ({ metadata: new Map(), tensors });
  return {
    tensors: (attention) =>
      attention.kind === "latent"
        ? asTensors(latentTensors(attention.config), latentBiases(attention.config), HF_LATENTS)
        : hfHeads(attention, names, family),
    readHeads: (tensors, prefix, { numHeads, numKvHeads, headDim, fused }) =>
      readAttentionWeights(file(tensors), prefix, { numHeads, numKvHeads, headDim, fused }),
    readLatents: (tensors, prefix) => readLatentWeights(file(tensors), prefix),
  };
}

type Roles = Readonly<Record<string, readonly AttentionRole[]>>;

const HF_LATENTS: Roles = {
  q_proj: ["q"],
  q_a_proj: ["qDown"],
  q_a_layernorm: ["qNorm"],
  q_b_proj: ["q"],
  kv_a_proj_with_mqa: ["kvDown"],
  kv_a_layernorm: ["kvNorm"],
  kv_b_proj: ["k", "v"],
  o_proj: ["o"],
};

const GGUF_ATTENTION: Roles = {
  ...{ q: ["q"], k: ["k"], v: ["v"], qkv: ["q", "k", "v"], output: ["o"], q_norm: ["qNorm"], k_norm: ["kNorm"] },
  ...{ sinks: ["sinks"], q_a: ["qDown"], q_a_norm: ["qNorm"], q_b: ["q"], kv_a_mqa: ["kvDown"], kv_a_norm: ["kvNorm"] },
  ...{ kv_b: ["k", "v"], k_b: ["k"], v_b: ["v"] },
};

/** Those of a GGUF file, as its reader found them. */
export const ggufAttentionTensors = (required: NamedShapes, optional: NamedShapes): readonly AttentionTensor[] =>
  asTensors(required, optional, GGUF_ATTENTION);

/** Tensors with the biases among `optional`, and the rest of these. */
function asTensors(required: NamedShapes, optional: NamedShapes, roles: Roles): readonly AttentionTensor[] {
  const ownerOf = (name: string) => name.replace(/\.(weight|bias)$/, "");
  const biases = new Map(optional.filter(([name]) => name.endsWith(".bias")).map((each) => [ownerOf(each[0]), each]));
  const others = optional.filter(([name]) => !name.endsWith(".bias"));
  return [...required, ...others].map(([name, shape], i) => {
    const owner = ownerOf(name);
    return { name, shape, roles: roles[owner] ?? [], optional: i >= required.length, bias: biases.get(owner) };
  });
}

function hfHeads(
  attention: BlockSpec["attention"],
  { projections, sinks }: Names,
  { layout, headNorm }: Family,
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
  { each, ...names }: NonNullable<Family["headNorm"]>,
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
  joinSources(endWeights(decoder.spec), (weight) => endSource(decoder, root, weight));

/** Those of a layer. */
export function* layerSources(decoder: Decoder, root: string, layer: number): Generator<Source, void> {
  const { spec, names } = decoder;
  const weights = [...layerWeights(spec, layer)];
  for (const which of ["self", "cross"] as const) yield* attentionSources(decoder, root, layer, which, weights);
  const rest = weights.filter(({ attention }) => attention === undefined);
  const at = `${root}${names.layers}.${layer}.`;
  yield* joinSources(rest, (weight) => layerSource(decoder, at, weight));
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
  for (const { name, shape, roles, optional = false, bias } of decoder.attention.tensors(kind))
    yield {
      ...{ name: `${prefix}${name}`, shape, optional, layout: "out-in", attention: which },
      weights: roles.flatMap((role) => own.get(role) ?? []),
      bias: bias && { name: `${prefix}${bias[0]}`, shape: bias[1], optional: true },
    };
}

/** Joins weights of one tensor. */
function joinSources(weights: Iterable<Weight>, sourceOf: (weight: Weight) => Source | undefined): Iterable<Source> {
  const found = new Map<string, Source & { readonly weights: Weight[] }>();
  for (const weight of weights) {
    const source = sourceOf(weight);
    if (source === undefined) continue;
    const known = found.get(source.name);
    if (known) known.weights.push(weight);
    else found.set(source.name, { ...source, weights: [weight] });
  }
  return found.values();
}

/** The tensor NAME.weight of a weight, and NAME.bias. */
function namedSource(name: string, weight: Weight, layout: MatrixLayout = "out-in"): Source {
  const [n, k] = weight.shape;
  const shape = k === undefined ? [n] : layout === "out-in" ? [n, k] : [k, n];
  const bias = weight.bias && { name: `${name}.bias`, shape: [n], optional: true };
  return { name: `${name}.weight`, shape, weights: [weight], optional: false, bias, layout };
}

/** Where a weight before the first layer or behind the last one lies; undefined if the file has none of its own. */
function endSource({ names, family }: Decoder, root: string, weight: Weight): Source | undefined {
  const { role } = weight;
  const below = (name: string | undefined, layout?: MatrixLayout) => namedSource(`${root}${name}`, weight, layout);
  const [n, k = 0] = weight.shape;
  switch (role) {
    case "embed":
      // An encoder beside a decoder has the table of that.
      return family.part === "encoder" ? undefined : below(names.embed);
    case "headBias": {
      if (family.part === "encoder") return undefined;
      const [name, shape] = names.headBias ? [names.headBias, [1, n]] : [`${names.head}.bias`, [n]];
      return { name, shape, weights: [weight], optional: true, layout: "out-in" };
    }
    case "head":
      return namedSource(names.head, weight);
    case "firstConv":
    case "secondConv": {
      const name = names.stem?.[role === "firstConv" ? 0 : 1];
      const bias = { name: `${root}${name}.bias`, shape: [n], optional: false };
      return { ...below(name), shape: [n, k / 3, 3], bias, form: "convolution" };
    }
    case "dense":
      return names.transform && namedSource(names.transform.dense, weight, family.layout);
    case "denseNorm":
      return names.transform && namedSource(names.transform.norm, weight);
    case "projectIn":
    case "projectOut":
      return below(names[role], family.layout);
    default:
      return below(names[role as "embedNorm" | "positions" | "types" | "relativeBias" | "finalNorm"]);
  }
}

/** Where a weight of a layer, whose names begin with `at`, lies, besides those of attention. */
function layerSource({ spec, names, family }: Decoder, at: string, weight: Weight): Source | undefined {
  const { role, expert, layer } = weight;
  if (weight.norm) return namedSource(`${at}${names.norms[role as NormRole]}`, weight);
  if (expert === undefined && (role === "gate" || role === "up" || role === "down"))
    return mlpSource(names.mlpAt === "" ? at : `${at}${names.mlpAt}.`, names.mlp, weight, family.layout);
  const { moeNames: own } = family;
  if (own === undefined) return undefined;
  if (role === "router") return namedSource(`${at}${own.router}`, weight);
  if (role === "correction") {
    const { mlp } = spec.blocks[layer as number] as BlockSpec;
    const corrects = own.correction && mlp?.kind === "moe" && mlp.router.correction;
    return corrects ? { ...namedSource(at, weight), name: `${at}${own.correction}` } : undefined;
  }
  if (role === "sharedGate") {
    const source = namedSource(`${at}${own.sharedGate}`, weight, family.layout);
    return own.expert === "stacked" ? { ...source, shape: source.shape.slice(1) } : source;
  }
  if (expert === "shared")
    return mlpSource(own.shared === "" ? at : `${at}${own.shared}.`, own.sharedMlp ?? own.mlp, weight, family.layout);
  if (typeof own.expert !== "string")
    return mlpSource(`${at}${own.expert(expert as number)}.`, own.mlp, weight, family.layout);
  const { experts } = (spec.blocks[layer as number] as BlockSpec).mlp as MoeSpec;
  const [n, k] = weight.shape as readonly [number, number];
  const name = `${at}${mlpName(own.mlp, role)}`;
  if (own.expert === "stacked") {
    const bias = { name: `${name}.bias`, shape: [experts, n], optional: true };
    const shape = [experts, n, k];
    return {
      name: `${name}.weight`,
      shape,
      weights: [weight],
      optional: false,
      bias,
      layout: "out-in",
      form: "stacked",
    };
  }
  const outputs = role === "down" ? n : 2 * n;
  const bias = { name: `${name}_bias`, shape: [experts, outputs], optional: false };
  const shape = [experts, k, outputs];
  return { name, shape, weights: [weight], optional: false, bias, layout: "in-out", form: "interleaved" };
}

/** What the tensor of a projection of an MLP is called: the gate and the other factor may be one. */
const mlpName = ({ gate, up = gate, down }: MlpNames, role: Weight["role"]): string =>
  (role === "gate" ? gate : role === "up" ? up : down) as string;

function mlpSource(prefix: string, names: MlpNames, weight: Weight, layout: MatrixLayout | undefined): Source {
  const source = namedSource(`${prefix}${mlpName(names, weight.role)}`, weight, layout);
  if (weight.role === "down" || names.up !== undefined) return source;
  const [n, k] = weight.shape as readonly [number, number];
  const shape = layout === "in-out" ? [k, 2 * n] : [2 * n, k];
  return { ...source, shape, bias: source.bias && { ...source.bias, shape: [2 * n] } };
}
