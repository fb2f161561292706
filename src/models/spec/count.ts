// How many numbers the tensors of a whole decoder hold: its parameters. Which biases a model has, shapes do not say: each type has
// a rule, from the class of that name in transformers.

import type { Facts } from "../families/facts.ts";
import type { BiasPart } from "../families/family.ts";
import { BIASES } from "../families/index.ts";
import { type Decoder, sourcesOf } from "./tensors.ts";
import type { Weight } from "./weights.ts";

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
  const parts = (BIASES.get(decoder.spec.type)?.[1] ?? biasesByFlags)(file);
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
