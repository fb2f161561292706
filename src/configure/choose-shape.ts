// The sizes of a decoder for a number of parameters: width, heads, table of tokens, layers and MLP.

import { ln, pow } from "../util/math.ts";
import type { Heads } from "./choose-attention.ts";

/** A rule of thumb: the width and the head size of models of so many parameters. */
interface Anchor {
  readonly parameters: number;
  readonly dModel: number;
  readonly headDim: number;
}

/** GPT-3 small and medium, Llama 3.2 1B's width with heads of 128, and Llama 3 70B. */
const ANCHORS: readonly Anchor[] = [
  { parameters: 125e6, dModel: 768, headDim: 64 },
  { parameters: 350e6, dModel: 1024, headDim: 64 },
  { parameters: 1e9, dModel: 2048, headDim: 128 },
  { parameters: 70e9, dModel: 8192, headDim: 128 },
];

/** A budget that is no farther from that of a rule, as a share, has its width. */
const NEAR = 0.15;
/** Heads of 128 from here on, halfway between the two rules. */
const WIDE_HEADS_FROM = 590e6;

/** Vocabularies of known tokenizers, and of ones that small corpora give. */
const VOCABULARIES: readonly (readonly [size: number, of: string])[] = [
  [128_256, "Llama 3's"],
  [50_257, "GPT-2's"],
  [32_000, "Llama 2's"],
  [16_384, "one of 16 384 entries"],
  [8192, "one of 8192 entries"],
  [4096, "one of 4096 entries"],
  [1024, "one of 1024 entries"],
  [256, "bytes"],
];
/** The most of a budget that the table of tokens takes. */
const TABLE_SHARE = 1 / 3;
/** Models below share the table with the head, as Llama 3.2 1B and 3B; larger ones do not, as Llama 3.1 8B. */
const TIED_BELOW = 4e9;

/** The width of a model of so many parameters, as a real number: between rules a power law, beyond them the cube root. */
function idealWidth(parameters: number): number {
  const above = ANCHORS.findIndex((anchor) => anchor.parameters >= parameters);
  const edge = (above < 0 ? ANCHORS.at(-1) : ANCHORS[above]) as Anchor;
  if (above <= 0) return edge.dModel * pow(parameters / edge.parameters, 1 / 3);
  const low = ANCHORS[above - 1] as Anchor;
  const slope = ln(edge.dModel / low.dModel) / ln(edge.parameters / low.parameters);
  return low.dModel * pow(parameters / low.parameters, slope);
}

/** A rule of thumb that is near a budget. */
export function anchorNear(parameters: number): Anchor | undefined {
  return ANCHORS.find((anchor) => Math.abs(parameters / anchor.parameters - 1) <= NEAR);
}

/** The width and the size of heads for a budget. */
function chooseWidth(parameters: number): Pick<Anchor, "dModel" | "headDim"> {
  const near = anchorNear(parameters);
  if (near) return near;
  const ideal = idealWidth(parameters);
  const headDim = parameters >= WIDE_HEADS_FROM ? 128 : ideal >= 256 ? 64 : 32;
  const heads = ideal / headDim;
  // From 8 heads on in fours, so that groups of 4 divide them.
  const unit = heads >= 8 ? 4 : heads >= 2 ? 2 : 1;
  return { dModel: headDim * unit * Math.max(1, Math.round(heads / unit)), headDim };
}

/** The heads for a budget, as far as they are not given. Those that do not divide what they should are replaced by the nearest. */
export function chooseHeads(parameters: number, given: Partial<Heads>): Heads {
  const width = chooseWidth(parameters);
  const { dModel = width.dModel, headDim } = given;
  const wanted = given.numHeads ?? Math.max(1, Math.round(dModel / (headDim ?? width.headDim)));
  // Heads of a stated size need not be as wide as the model, as in Gemma and Qwen3.
  const numHeads = headDim !== undefined ? wanted : nearestDivisor(wanted, dModel / 2);
  return {
    ...{ dModel, numHeads, headDim: headDim ?? dModel / numHeads },
    numKvHeads: given.numKvHeads && nearestDivisor(given.numKvHeads, numHeads),
  };
}

/** The divisor of `of` that is nearest to `wanted`, of two the larger one. */
function nearestDivisor(wanted: number, of: number): number {
  for (let distance = 0; distance <= wanted; distance++)
    for (const each of [wanted + distance, wanted - distance]) if (each > 0 && of % each === 0) return each;
  return 1;
}

/**
 * Entries of the table of tokens, and whether the head is that table: those that are given, or the largest whose table takes no more
 * than its share of the budget.
 */
export function chooseVocabulary(
  parameters: number,
  dModel: number,
  given: number | undefined,
): { vocabSize: number; tied: boolean } {
  const tied = parameters < TIED_BELOW;
  const most = (parameters * TABLE_SHARE) / (tied ? dModel : 2 * dModel);
  const [least] = VOCABULARIES.at(-1) as readonly [number, string];
  const [vocabSize] = VOCABULARIES.find(([size]) => size <= most) ?? [least];
  return { vocabSize: given ?? vocabSize, tied };
}

/** Whose vocabulary has so many entries. */
export function vocabularyName(vocabSize: number): string {
  return VOCABULARIES.find(([size]) => size === vocabSize)?.[1] ?? `one of ${vocabSize} entries`;
}

/** A gated MLP of 8/3 of the width has as many weights as a plain one of 4 (Shazeer 2020). Rounded up to 64. */
const mlpDimOf = (ideal: number): number => 64 * Math.max(1, Math.round(ideal / 64));

/**
 * Layers and MLP for what the tables of a budget leave: as many layers of MLPs of 8/3 of the width as come nearest, and then the MLP
 * that comes nearest with so many layers, within 2 and 4 widths.
 */
export function chooseDepth(rest: number, dModel: number, attention: number): { layers: number; mlpDim: number } {
  const norms = 2 * dModel;
  const gated = (dim: number) => 3 * dim * dModel;
  const usual = attention + gated(mlpDimOf((8 / 3) * dModel)) + norms;
  const layers = Math.max(1, Math.round(rest / usual));
  const ideal = (rest / layers - attention - norms) / (3 * dModel);
  return { layers, mlpDim: mlpDimOf(Math.min(4 * dModel, Math.max(2 * dModel, ideal))) };
}
