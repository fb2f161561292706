// What files call the weights of a model: the tensor that each weight of the list lies in, alone or joined with others, and that of
// its bias. Files of one form have the same names; families differ in some.

import { hasShape, shapeText } from "../../base/tensor/dtypes.ts";
import type { MatrixLayout } from "../../base/tensor/matrix.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import type { Facts } from "../families/facts.ts";
import type { BiasPart, MlpNames, Names, TensorForm } from "../families/family.ts";
import type { MixerFiles } from "../mixers/mixer.ts";
import type { Source, Weight, XIELU } from "../mixers/weight.ts";
import { type BlockSpec, headsOf, type MixerSpec, type ModelSpec, type NormRole } from "./spec.ts";
import { endWeights, layerWeights } from "./weights.ts";

type Shape = readonly number[];

/** A decoder, and how its file names and lays out what it consists of. */
export interface Decoder {
  readonly spec: ModelSpec;
  readonly names: Names;
  readonly family: TensorForm;
  readonly mixers: MixerFiles;
  /** The encoder of a model with two halves. */
  readonly encoder?: Decoder;
}

// The tensors of all weights.

/** The prefix of the tensors besides the head. */
export function findRoot({ names }: Decoder, tensors: ReadonlyMap<string, unknown>): string {
  return names.roots.find((root) => tensors.has(`${root}${names.embed}.weight`)) ?? (names.roots[0] as string);
}

/** The tensors of a decoder, besides the head below the prefix `root`, in the order of the list. */
export function* sourcesOf(decoder: Decoder, root: string): Generator<Source, void> {
  yield* endSources(decoder, root);
  for (const layer of decoder.spec.blocks.keys()) {
    const { self, cross, rest } = layerSources(decoder, root, layer);
    yield* [...self.sources, ...(cross?.sources ?? []), ...rest];
  }
}

/** Those before the first layer and behind the last one. */
export const endSources = (decoder: Decoder, root: string): Iterable<Source> =>
  joinSources(endWeights(decoder.spec), (weight) => endPlace(decoder, root, weight));

/** Those of a mixer of a layer, and what their names begin with. */
interface MixerSources {
  readonly mixer: MixerSpec;
  readonly prefix: string;
  readonly sources: readonly Source[];
}

/** Those of a layer: of its own mixer, of attention to the outputs of an encoder, and the rest. */
export function layerSources(
  decoder: Decoder,
  root: string,
  layer: number,
): { readonly self: MixerSources; readonly cross: MixerSources | undefined; readonly rest: Iterable<Source> } {
  const { spec, names, mixers } = decoder;
  const weights = [...layerWeights(spec, layer)];
  const { mixer, cross, layers: [first, second] = [layer, layer] } = spec.blocks[layer] as BlockSpec;
  const [at, behind] = [first, second].map((index) => `${root}${names.layers}.${index}.`) as [string, string];
  const sourcesIn = (mixer: MixerSpec, which: "self" | "cross", below = ""): MixerSources => {
    const prefix = `${at}${below}`;
    const own = new Map(weights.filter((each) => each.mixer === which).map((each) => [each.role, each]));
    const sources = mixers.tensors(mixer).map(
      ({ name, shape, roles, optional, bias }): Source => ({
        ...{ name: `${prefix}${name}`, shape, optional },
        weights: roles.flatMap((role) => own.get(role) ?? []),
        bias: bias && { name: `${prefix}${bias[0]}`, shape: bias[1], required: bias[2] },
      }),
    );
    return { mixer, prefix, sources };
  };
  const rest = weights.filter((each) => each.mixer === undefined);
  const isSecond = ({ role, norm }: Weight) => !norm || role.startsWith("mlp");
  return {
    self: sourcesIn(mixer, "self", "at" in mixer ? mixer.at : names.attention),
    cross: cross && sourcesIn(cross, "cross", names.cross),
    rest: joinSources(rest, (weight) => layerPlace(decoder, isSecond(weight) ? behind : at, weight)),
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
    if (known) known.weights[known.reversed ? "unshift" : "push"](weight);
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
function endPlace({ spec, names, family }: Decoder, root: string, weight: Weight): Place | undefined {
  const { role, shape, expert } = weight;
  if (weight.constant !== undefined || (role === "positions" && weight.optional)) return undefined;
  const [n, k = 0] = shape;
  const { head, headBias, stem = [], transform, others } = names;
  const other = others?.[role];
  if (other !== undefined && expert !== undefined && !other.includes("#"))
    return { name: `${root}${other}`, shape: [(spec.streams?.count ?? 0) - 1, n, k], form: "stacked" };
  if (other !== undefined) return { name: `${root}${other.replace("#", String(expert))}`, shape: shape as Shape };
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
type EndName =
  | ("embedNorm" | "positions" | "types" | "projectIn" | "projectOut" | "relativeBias" | "finalNorm")
  | ("distances" | "distancesNorm");

/** Where a weight of a layer, whose names begin with `at`, lies, besides those of attention. */
function layerPlace({ spec, names, family }: Decoder, at: string, weight: Weight): Place | undefined {
  const { role, expert, layer, norm } = weight;
  const { layout, moeNames: moe } = family;
  if (norm?.bare) return undefined;
  const other = names.others?.[role];
  if (other !== undefined) return { name: `${at}${other}`, shape: weight.shape as Shape };
  if (role === "attentionGate" && family.gatedQueries) {
    const heads = headsOf((spec.blocks[layer as number] as BlockSpec).mixer);
    const [n, k] = weight.shape;
    const place = named(`${at}${names.attention}${names.projections[0] ?? "q"}`, weight);
    const bias = place.bias && { ...place.bias, shape: [2 * n] };
    return { ...place, shape: [2 * n, k as number], bias, form: "gates", heads };
  }
  if (role === "layerScale") return { name: `${at}${names.layerScale}`, shape: [1] };
  if (role === "attentionGate") return named(`${at}${names.attention}${names.attentionGate}`, weight, layout);
  if (norm) {
    const place = named(`${at}${names.norms[role as NormRole]}`, weight);
    return names.bareNorms?.includes(role as NormRole)
      ? { ...place, name: place.name.replace(/\.weight$/, "") }
      : place;
  }
  const { mlp } = spec.blocks[layer as number] as BlockSpec;
  const scalar = names.xielu?.[role as keyof typeof XIELU];
  if (scalar !== undefined)
    return { ...scalar, name: `${at}${names.mlpAt}.${scalar.name}`, optional: weight.constant !== undefined };
  if (expert === undefined && mlp?.kind === "mlp")
    return mlpPlace(names.mlpAt === "" ? at : `${at}${names.mlpAt}.`, names.mlp, weight, layout);
  if (moe === undefined || mlp?.kind !== "moe") return undefined;
  if (role === "router") return named(`${at}${moe.router}`, weight);
  if (role === "correction")
    return moe.correction && mlp.router.correction
      ? { name: `${at}${moe.correction}`, shape: moe.correctionRow ? [1, mlp.experts] : [mlp.experts] }
      : undefined;
  if (role === "expertsIn" || role === "expertsOut") return named(`${at}${moe[role]}`, weight, layout);
  if (role === "sharedGate") {
    const place = named(`${at}${moe.sharedGate}`, weight, layout);
    return moe.sharedGateFlat ? { ...place, shape: place.shape.slice(1) } : place;
  }
  if (expert === "shared")
    return mlpPlace(moe.shared === "" ? at : `${at}${moe.shared}.`, moe.sharedMlp ?? moe.mlp, weight, layout);
  const form = moe.expert;
  if (typeof form !== "string") return mlpPlace(`${at}${form(expert as number)}.`, moe.mlp, weight, layout);
  // The tensors of all experts.
  const { name, shape, bias } = mlpPlace(at, moe.mlp, weight, form === "stacked" ? "out-in" : "in-out");
  const all = (shape: Shape) => [mlp.experts, ...shape];
  const biases = bias && { name: bias.name, shape: all(bias.shape) };
  const plain = name.replace(/\.weight$/, "");
  // Stacked tensors without a suffix have no biases.
  const of = form === "transposed" ? "in-out" : "out-in";
  if (form !== "interleaved" && moe.unsuffixed) return { name: plain, shape: all(shape), form: "stacked", layout: of };
  if (form !== "interleaved") return { name, shape: all(shape), bias: biases, form: "stacked", layout: of };
  return { name: plain, shape: all(shape), bias: biases && { ...biases, name: `${plain}_bias`, required: true }, form };
}

/** The tensor of a projection of an MLP: the gate and the other factor may be one. */
function mlpPlace(prefix: string, names: MlpNames, weight: Weight, layout: MatrixLayout | undefined): Place {
  const { gate, gateLast: reversed, up = gate, down } = names;
  const { role, shape } = weight;
  const isJoined = role !== "down" && names.up === undefined;
  const name = role === "gate" ? gate : role === "up" ? up : down;
  return { ...named(`${prefix}${name}`, weight, layout, isJoined ? 2 * shape[0] : shape[0]), reversed };
}

// What a file must have, and one report of all that it lacks or has too many of.

/** What a file says of a tensor before it is read. */
export interface TensorFacts {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
}

/** Tensors that follow from the configuration, in files of older programs, or that are a part of it. */
const IGNORED =
  /(^|\.)(rotary_emb\.(inv_freq|cos_cached|sin_cached)|(attn|attention)\.(bias|masked_bias))$|^rope_(freqs|factors_(long|short))\.weight$/;

/** The tensors of towers and of what joins them to a text model whose names have the prefix of a model without any. */
const TOWERS =
  /^(model\.)?(visual|vision|vision_tower|vision_model|audio_tower|multi_modal_projector|connector|aligner)\./;

/** The most names of a kind in a report. */
const MOST_NAMED = 8;

/**
 * The decoder with what its file decides: without a word of it in config.json, the head is shared if the file has none. Files of
 * encoders may lack what is before it. Without `tensors`, a head that only they could decide is one of its own, as in transformers.
 */
export function resolveHead({ spec, ...rest }: Decoder, tensors?: ReadonlyMap<string, unknown>): Decoder {
  if (tensors === undefined) {
    const { tied = false } = spec.head;
    return { ...rest, spec: { ...spec, head: { ...spec.head, tied } } };
  }
  const { transform, ...head } = spec.head;
  const { otherMlpAt, mlp } = rest.names;
  const hasOther = otherMlpAt && [...tensors.keys()].some((name) => name.endsWith(`.${otherMlpAt}.${mlp.down}.weight`));
  const own = hasOther ? { ...rest.names, mlpAt: otherMlpAt } : rest.names;
  const names = rest.family.hasTowers ? namesBesideTowers(own, tensors) : own;
  const tied = head.tied ?? !tensors.has(`${names.head}.weight`);
  const transforms = transform && tensors.has(`${rest.names.transform?.dense}.weight`);
  return { ...rest, names, spec: { ...spec, head: { ...head, tied, ...(transforms && { transform }) } } };
}

/** The names of a text model beside towers: the head may be below the prefix of the text model. */
function namesBesideTowers(names: Names, tensors: ReadonlyMap<string, unknown>): Names {
  const known = [names.head, `language_model.${names.head}`, `model.${names.head}`];
  return { ...names, head: known.find((name) => tensors.has(`${name}.weight`)) ?? names.head };
}

/**
 * The tensors that are read. Ignored are those that follow from the configuration, and a head beside a shared one, as
 * transformers ignores it. Throws BAD_FILE with all names that are missing, unexpected, or of another shape.
 */
export function checkTensors<T extends TensorFacts>(
  where: string,
  decoder: Decoder,
  tensors: ReadonlyMap<string, T>,
): ReadonlyMap<string, T> {
  const all = [decoder, decoder.encoder].flatMap((half) =>
    half ? expectedTensors(half, findRoot(half, tensors)) : [],
  );
  const required = new Map(all.flatMap((half) => [...half.required]));
  const optional = new Map(all.flatMap((half) => [...half.optional]));
  const missing = [...required.keys()].filter((name) => !tensors.has(name));
  const known = new Map([...required, ...optional]);
  const ownHead = `${decoder.names.head}.weight`;
  const root = findRoot(decoder, tensors);
  // What lies beside the text model belongs to the towers; without a prefix, that cannot be told.
  const isOfTowers = (name: string) =>
    decoder.family.hasTowers === true &&
    (root === "model." ? TOWERS.test(name) : root !== "" && !name.startsWith(root));
  const unused = decoder.spec.blocks.flatMap(({ mixer }, layer) => {
    const { prefix } = layerSources(decoder, root, layer).self;
    return (decoder.mixers.ignored?.(mixer) ?? []).map((name) => `${prefix}${name}.`);
  });
  const isIgnored = (name: string) =>
    IGNORED.test(name) ||
    unused.some((prefix) => name.startsWith(prefix)) ||
    isOfTowers(name) ||
    (name === ownHead && decoder.spec.head.tied !== false) ||
    decoder.family.ignoredTensors?.test(name) === true;
  const unexpected = [...tensors.keys()].filter((name) => !known.has(name) && !isIgnored(name));
  const mismatched = [...known].flatMap(([name, shape]) => {
    const own = tensors.get(name)?.shape;
    return own === undefined || hasShape(own, shape)
      ? []
      : [`${name} expected ${shapeText(shape)}, got ${shapeText(own)}`];
  });
  const found = [
    ...listed("missing", missing),
    ...listed("unexpected", unexpected),
    ...listed("of another shape", mismatched),
  ];
  if (found.length === 0) return new Map([...tensors].filter(([name]) => known.has(name)));
  const rule = `those of ${describe(decoder.spec.type)} with ${decoder.spec.blocks.length} layers`;
  throw new HeadwiseError("BAD_FILE", `${where}: tensors expected ${rule}, got ${found.join("; ")}`);
}

/** Names of one kind, layers folded together. */
function listed(kind: string, names: readonly string[]): string[] {
  if (names.length === 0) return [];
  const folded = new Map<string, number[]>();
  for (const name of names) {
    const [, before = name, layer = "", after = ""] = /^(.*?\.)(\d+)(\..*)$/s.exec(name) ?? [];
    const key = layer === "" ? name : `${before}#${after}`;
    const layers = folded.get(key) ?? [];
    if (layer !== "") layers.push(Number(layer));
    folded.set(key, layers);
  }
  const texts = [...folded].map(([key, layers]) => key.replace("#", () => layersText(layers)));
  const more = texts.length > MOST_NAMED ? ` and ${texts.length - MOST_NAMED} more` : "";
  return [`${names.length} ${kind}: ${texts.slice(0, MOST_NAMED).join(", ")}${more}`];
}

function layersText(layers: readonly number[]): string {
  const [first = 0] = layers;
  const last = layers.at(-1) ?? first;
  if (layers.length === 1) return `${first}`;
  return layers.length === last - first + 1 ? `{${first}..${last}}` : `{${layers.join(",")}}`;
}

/** The tensors of a decoder, besides the head below the prefix `root`: by name, with their shapes. */
export function expectedTensors(
  decoder: Decoder,
  root: string,
): Readonly<Record<"required" | "optional", ReadonlyMap<string, Shape>>> {
  const required = new Map<string, readonly number[]>();
  const optional = new Map<string, readonly number[]>();
  for (const { name, shape, optional: isOptional, bias } of sourcesOf(decoder, root)) {
    (isOptional ? optional : required).set(name, shape);
    if (bias) (bias.required ? required : optional).set(bias.name, bias.shape);
  }
  return { required, optional };
}

// How many numbers the tensors of a whole decoder hold: its parameters. Which biases a model has, shapes do not say: each type has
// a rule, from the class of that name in transformers.

/** Biases of models that have none of their own rules. */
const biasesByFlags = (facts: Facts): readonly BiasPart[] => [
  ...(facts.flag("attention_bias", false) ? (["qkv", "o"] as const) : []),
  ...(facts.flag("mlp_bias", false) ? (["mlp"] as const) : []),
];

/** The parameters of a decoder. */
interface DecoderCounts {
  readonly parameters: number;
  /** Without the experts that a token does not take: their biases, a thousandth of that, are counted. */
  readonly active: number;
  /** Of the tables of tokens and positions, which a token reads a row of; not of a head, nor of a table that is one. */
  readonly tables: number;
}

const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
const numbersOf = ({ shape: [n, k = 1] }: Weight): number => n * k;

/** Counts the parameters of a decoder, whose head is resolved (`resolveHead`), and whose config.json is `file`. */
export function countDecoder(decoder: Decoder, file: Facts): DecoderCounts {
  const { head } = decoder.spec;
  const parts = (decoder.family.biases ?? biasesByFlags)(file);
  const counts = { parameters: 0, active: 0, tables: 0 };
  const counted = new Set<string>();
  for (const { name, shape, weights, optional, bias } of sourcesOf(decoder, "")) {
    // Gates of attention may lie in the tensor of queries.
    if (counted.has(name)) continue;
    counted.add(name);
    const hasBias = parts.includes(partOf(weights[0] as Weight));
    const own = !optional || hasBias ? sizeOf(shape) : 0;
    const all = own + (bias && (bias.required || hasBias) ? sizeOf(bias.shape) : 0);
    counts.parameters += all;
    counts.active += all - weights.reduce((sum, weight) => sum + (weight.active ? 0 : numbersOf(weight)), 0);
    for (const weight of weights)
      if (weight.role === "positions" || (weight.role === "embed" && !head.tied)) counts.tables += numbersOf(weight);
  }
  return counts;
}

/** What the bias of a weight belongs to. */
function partOf({ role, norm, mixer }: Weight): BiasPart {
  if (role === "head" || role === "headBias") return "head";
  if (role === "qHeadNorm" || role === "kHeadNorm") return "headNorm";
  if (norm) return "norm";
  if (role === "router") return "router";
  return mixer ? (role === "o" ? "o" : "qkv") : "mlp";
}
