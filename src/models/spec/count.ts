// How many numbers the tensors of a whole decoder hold: its parameters. Which biases a model has, shapes do not say: each type has
// a rule, from the class of that name in transformers.

import type { Fields } from "../families/fields.ts";
import type { Decoder } from "./tensors.ts";
import { sourcesOf } from "./tensors.ts";
import type { Weight } from "./weights.ts";

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
export function countDecoder(decoder: Decoder, file: Fields): DecoderCounts {
  const { head } = decoder.spec;
  const parts = (BIASES[decoder.spec.type] ?? BY_FLAGS)(file);
  const counts = { parameters: 0, active: 0, tables: 0 };
  for (const { shape, weights, optional, bias } of sourcesOf(decoder, "")) {
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
function partOf({ role, norm, attention }: Weight): BiasPart {
  if (role === "head" || role === "headBias") return "head";
  if (role === "qHeadNorm" || role === "kHeadNorm") return "headNorm";
  if (norm) return "norm";
  if (role === "router") return "router";
  return attention ? (role === "o" ? "o" : "qkv") : "mlp";
}
