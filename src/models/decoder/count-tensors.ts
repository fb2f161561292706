// How many numbers the tensors of a whole decoder hold: its parameters. Which biases a model has, shapes do not say: each type has
// a rule, from the class of that name in transformers.

import type { Fields } from "../hf/config-fields.ts";
import { expectedTensors } from "./check-tensors.ts";
import type { Decoder } from "./read-spec.ts";
import type { BlockSpec } from "./spec.ts";

/** Where a bias is. "qkv" is of queries, keys and values, "o" of attention's outputs. */
type BiasPart = "qkv" | "o" | "mlp" | "router" | "norm" | "headNorm" | "head";
type BiasRule = (file: Fields) => readonly BiasPart[];

const always =
  (...parts: BiasPart[]): BiasRule =>
  () =>
    parts;
const flagged =
  (name: string, otherwise: boolean, parts: readonly BiasPart[], more: readonly BiasPart[] = []): BiasRule =>
  (file) =>
    file.flag(name, otherwise) ? [...parts, ...more] : more;

const ALL: readonly BiasPart[] = ["qkv", "o", "mlp"];
const BY_FLAGS: BiasRule = (file) => [
  ...(file.flag("attention_bias", false) ? (["qkv", "o"] as const) : []),
  ...(file.flag("mlp_bias", false) ? (["mlp"] as const) : []),
];

const BIASES: Readonly<Record<string, BiasRule>> = {
  bloom: always(...ALL, "norm"),
  falcon: flagged("bias", false, ALL, ["norm"]),
  glm: flagged("attention_bias", false, ["qkv"]),
  glm4: flagged("attention_bias", false, ["qkv"]),
  glm4_moe: flagged("attention_bias", false, ["qkv"]),
  gpt2: always(...ALL, "norm"),
  gpt_neox: flagged("attention_bias", true, ["qkv", "o"], ["mlp", "norm"]),
  gpt_oss: flagged("attention_bias", true, ["qkv", "o"], ["router"]),
  gptj: always("mlp", "norm", "head"),
  opt: always(...ALL, "norm"),
  phi: always(...ALL, "norm", "headNorm", "head"),
  qwen2: always("qkv"),
  qwen2_moe: always("qkv"),
  stablelm: flagged("use_qkv_bias", false, ["qkv"], ["norm"]),
  starcoder2: flagged("use_bias", true, ALL, ["norm"]),
};

/** The parameters of a decoder. */
export interface DecoderCounts {
  readonly parameters: number;
  /** Without the experts that a token does not take. */
  readonly active: number;
  /** Of the tables of tokens and positions, which a token reads a row of; not of a head, nor of a table that is one. */
  readonly tables: number;
}

const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** Counts the parameters of a decoder, whose head is resolved (`resolveHead`), and whose config.json is `file`. */
export function countDecoder(decoder: Decoder, file: Fields): DecoderCounts {
  const { spec } = decoder;
  const { required, optional } = expectedTensors(decoder, "");
  const parts = (BIASES[spec.type] ?? BY_FLAGS)(file);
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
