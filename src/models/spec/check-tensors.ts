// The tensors that a decoder must have, by name and shape, and one report of all that a file lacks or has too many of.

import { hasShape, shapeText } from "../../base/tensor/dtypes.ts";
import type { MatrixLayout } from "../../base/tensor/matrix.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import type { Facts } from "../families/facts.ts";
import type { BiasPart, MlpNames } from "../families/family.ts";
import { BIASES } from "../families/index.ts";
import type { Decoder } from "./read-spec.ts";
import { type BlockSpec, type MlpSpec, type MoeSpec, type NormRole, type NormSpec, widthOfRows } from "./spec.ts";

/** What a file says of a tensor before it is read. */
export interface TensorFacts {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
}

/** Tensors that follow from the configuration, in files of older programs, or that are a part of it. */
const IGNORED =
  /(^|\.)(rotary_emb\.(inv_freq|cos_cached|sin_cached)|(attn|attention)\.(bias|masked_bias))$|^rope_(freqs|factors_(long|short))\.weight$/;

/** The most names of a kind in a report. */
const MOST_NAMED = 8;

/** The prefix of the tensors besides the head. */
export function findRoot({ names }: Decoder, tensors: ReadonlyMap<string, unknown>): string {
  return names.roots.find((root) => tensors.has(`${root}${names.embed}.weight`)) ?? (names.roots[0] as string);
}

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
  const tied = head.tied ?? !tensors.has(`${rest.names.head}.weight`);
  const transforms = transform && tensors.has(`${rest.names.transform?.dense}.weight`);
  return { ...rest, spec: { ...spec, head: { ...head, tied, ...(transforms && { transform }) } } };
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
  const isIgnored = (name: string) =>
    IGNORED.test(name) ||
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

type Shape = readonly number[];

interface Expected {
  /** By name, with their shapes. */
  readonly required: ReadonlyMap<string, Shape>;
  readonly optional: ReadonlyMap<string, Shape>;
}

/** The tensors of a decoder, besides the head below the prefix `root`. */
export function expectedTensors({ spec, names, family, attention }: Decoder, root: string): Expected {
  const required = new Map<string, Shape>();
  const optional = new Map<string, Shape>();
  const { dModel, vocabSize, embed, head } = spec;
  const layout = family.layout ?? "out-in";
  const norm = (name: string, { kind }: NormSpec, n = dModel) => {
    required.set(`${name}.weight`, [n]);
    if (kind === "layer") optional.set(`${name}.bias`, [n]);
  };
  const linear = (name: string, n: number, k: number, way: MatrixLayout = layout) => {
    required.set(`${name}.weight`, way === "out-in" ? [n, k] : [k, n]);
    optional.set(`${name}.bias`, [n]);
  };
  // An encoder beside a decoder has the table of that.
  if (family.part !== "encoder") {
    required.set(`${root}${names.embed}.weight`, [vocabSize, embed.dim]);
    if (names.headBias) optional.set(names.headBias, [1, vocabSize]);
    else optional.set(`${names.head}.bias`, [vocabSize]);
  }
  const width = widthOfRows(spec);
  if (embed.norm) norm(`${root}${names.embedNorm}`, embed.norm, width);
  if (embed.positions) required.set(`${root}${names.positions}.weight`, [embed.positions.rows, width]);
  for (const [i, name] of (embed.channels ? (names.stem ?? []) : []).entries()) {
    required.set(`${root}${name}.weight`, [dModel, i === 0 ? (embed.channels as number) : dModel, 3]);
    required.set(`${root}${name}.bias`, [dModel]);
  }
  if (embed.types) required.set(`${root}${names.types}.weight`, [embed.types, width]);
  if (embed.dim !== dModel) {
    linear(`${root}${names.projectIn}`, dModel, embed.dim);
    if (!embed.projectLast) linear(`${root}${names.projectOut}`, embed.dim, dModel);
  }
  if (spec.relativeBias) {
    const { numHeads } = spec.blocks[0]!.attention.config;
    required.set(`${root}${names.relativeBias}.weight`, [spec.relativeBias.buckets, numHeads]);
  }
  if (spec.finalNorm) norm(`${root}${names.finalNorm}`, spec.finalNorm);
  if (head.tied === false) required.set(`${names.head}.weight`, [vocabSize, embed.dim]);
  if (head.transform && names.transform) {
    linear(names.transform.dense, embed.dim, dModel);
    norm(names.transform.norm, head.transform.norm, embed.dim);
  }

  const mlp = (own: string, { gate, up, down }: MlpNames, { dim, gated }: MlpSpec) => {
    if (gate !== undefined && gated) linear(`${own}${gate}`, up === undefined ? 2 * dim : dim, dModel);
    if (up !== undefined) linear(`${own}${up}`, dim, dModel);
    linear(`${own}${down}`, dModel, dim);
  };
  const experts = (at: string, moe: MoeSpec) => {
    const own = family.moeNames;
    if (own === undefined) return;
    linear(`${at}${own.router}`, moe.experts, dModel, "out-in");
    if (own.correction && moe.router.correction)
      required.set(`${at}${own.correction}`, own.correctionRow ? [1, moe.experts] : [moe.experts]);
    const { dim } = moe.expert;
    if (own.expert === "stacked")
      for (const [name, n, k] of [
        [own.mlp.gate, dim, dModel],
        [own.mlp.up, dim, dModel],
        [own.mlp.down, dModel, dim],
      ] as const) {
        required.set(`${at}${name}.weight`, [moe.experts, n, k]);
        optional.set(`${at}${name}.bias`, [moe.experts, n]);
      }
    else if (own.expert === "interleaved") {
      required.set(`${at}${own.mlp.gate}`, [moe.experts, dModel, 2 * dim]);
      required.set(`${at}${own.mlp.gate}_bias`, [moe.experts, 2 * dim]);
      required.set(`${at}${own.mlp.down}`, [moe.experts, dim, dModel]);
      required.set(`${at}${own.mlp.down}_bias`, [moe.experts, dModel]);
    } else for (let e = 0; e < moe.experts; e++) mlp(`${at}${own.expert(e)}.`, own.mlp, moe.expert);
    if (moe.shared) {
      mlp(own.shared === "" ? at : `${at}${own.shared}.`, own.sharedMlp ?? own.mlp, moe.shared.mlp);
      if (moe.shared.gated) linear(`${at}${own.sharedGate}`, 1, dModel);
      if (moe.shared.gated && own.expert === "stacked") required.set(`${at}${own.sharedGate}.weight`, [dModel]);
    }
  };
  for (const [i, block] of spec.blocks.entries()) {
    const at = `${root}${names.layers}.${i}.`;
    const own = `${at}${names.attention}`;
    const add = (from: string, each: BlockSpec["attention"]) => {
      for (const [name, shape] of attention.required(each)) required.set(`${from}${name}`, shape);
      for (const [name, shape] of attention.optional(each)) optional.set(`${from}${name}`, shape);
    };
    add(own, block.attention);
    if (block.cross) add(`${at}${names.cross}`, { kind: "heads", config: block.cross });
    for (const [role, own] of Object.entries(block.norms)) norm(`${at}${names.norms[role as NormRole]}`, own);
    if (block.mlp?.kind === "moe") experts(at, block.mlp);
    else if (block.mlp) mlp(names.mlpAt === "" ? at : `${at}${names.mlpAt}.`, names.mlp, block.mlp);
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
  /** Without the experts that a token does not take. */
  readonly active: number;
  /** Of the tables of tokens and positions, which a token reads a row of; not of a head, nor of a table that is one. */
  readonly tables: number;
}

const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** Counts the parameters of a decoder, whose head is resolved (`resolveHead`), and whose config.json is `file`. */
export function countDecoder(decoder: Decoder, file: Facts): DecoderCounts {
  const { spec } = decoder;
  const { required, optional } = expectedTensors(decoder, "");
  const parts = (BIASES.get(spec.type)?.[1] ?? biasesByFlags)(file);
  const biases = [...optional].filter(([name]) => parts.includes(partOf(name, decoder)));
  const parameters = [...required, ...biases].reduce((sum, [, shape]) => sum + sizeOf(shape), 0);
  const idle = spec.blocks.reduce((sum, { mlp }) => sum + idleOf(mlp, spec.dModel), 0);
  const { embed, vocabSize, dModel } = spec;
  const tables = (spec.head.tied ? 0 : vocabSize * embed.dim) + (embed.positions?.rows ?? 0) * dModel;
  return { parameters, active: parameters - idle, tables };
}

/** Parameters of the experts that a token does not take: their matrices, and the biases of gpt-oss are a thousandth of that. */
function idleOf(mlp: BlockSpec["mlp"], dModel: number): number {
  if (mlp?.kind !== "moe") return 0;
  return (mlp.experts - mlp.topK) * (mlp.expert.gated ? 3 : 2) * mlp.expert.dim * dModel;
}

/** What the bias of this name belongs to. */
function partOf(name: string, { names, family }: Decoder): BiasPart {
  const owner = name.slice(0, name.lastIndexOf(".bias"));
  const isNamed = (...own: (string | undefined)[]) =>
    own.some((each) => each !== undefined && (owner === each || owner.endsWith(`.${each}`)));
  if (isNamed(names.head)) return "head";
  if (isNamed(...Object.values(names.norms), names.finalNorm, names.embedNorm)) return "norm";
  if (isNamed(family.moeNames?.router)) return "router";
  if (!owner.includes(`.${names.attention}`)) return "mlp";
  const [q, k] = [family.headNorm?.q, family.headNorm?.k];
  if (isNamed(q, k) || owner.includes(".norms.")) return "headNorm";
  return isNamed(names.projections.at(-1)) ? "o" : "qkv";
}
