// What every head of a model does, from texts that are read once.

import type { TokenIds } from "../decoder/forward.ts";
import { expectModel, type Model } from "../decoder/model.ts";
import type { PackedBlock } from "../decoder/packed.ts";
import { expectFinite, expectFlag, expectInt, readFields } from "../util/arguments.ts";
import { copyingScores, writtenFor } from "./circuits.ts";
import {
  type CheckedText,
  type HeadDetector,
  type LabelledText,
  REFERENCE,
  readKinds,
  readTexts,
} from "./detection-texts.ts";
import type { ScoreSum } from "./detectors.ts";
import { createLayerSums, type Referred, readAll } from "./pattern-sums.ts";
import { unembed } from "./unembed.ts";

/** Options of `detectHeads`. */
export interface DetectHeadsOptions {
  /** What to look for, by names of your own. Default `HEAD_KINDS`. */
  readonly kinds?: Readonly<Record<string, HeadDetector>> | undefined;
  /** The largest distance that is tried as `offset`. Default 8. */
  readonly maxOffset?: number | undefined;
  /** How far a head must be from the baseline to a perfect score to have a kind, from 0 to 1. Default 0.5. */
  readonly least?: number | undefined;
  /** Whether to compute `copying`, which takes about vocabSize·dModel² operations. Default true. */
  readonly copying?: boolean | undefined;
}

/** How well a head matches a pattern, and what a head without preference scores. */
export interface KindScore {
  readonly score: number;
  readonly baseline: number;
}

/** What a head does. All of it is plain data. */
export interface DetectedHead {
  readonly layer: number;
  readonly head: number;
  /**
   * The kind that the head is furthest towards, (score - baseline) / (1 - baseline): a name of `scores`; "offset", of which
   * `offset.by` is the distance; "name mover" for "reference" with `copies` of 0.5 or more; "mixed" if none reaches `least`. Windows
   * and "uniform", which contain other patterns, count only if no other kind does.
   */
  readonly kind: string;
  /** By name of a kind: those that any token of the texts can match; "reference" for labelled texts. */
  readonly scores: Readonly<Record<string, KindScore>>;
  /** The distance from 0 to `maxOffset` at which the head looks most, of the tokens that have one there. */
  readonly offset: KindScore & { readonly by: number };
  /** `copyingScores`; a head of random weights has 0 on average. */
  readonly copying?: number;
  /**
   * Of heads that reach `least` on "reference": the share of labelled pairs whose token at `key` is among the five likeliest ones, if
   * the head attends to it alone, by what the head writes, the final norm and the logits: the copy score of Wang et al. 2022, who
   * call heads that attend to names and copy them name movers. At random it would be 5 / vocabSize.
   */
  readonly copies?: number;
}

/** Ids among which a copied token must be, and the share of tokens that name movers copy. */
const COPY_TOP = 5;
const LEAST_COPIES = 0.5;

/**
 * What every head of a model does: the scores of all kinds, by the measure "overlap" of `headScores`, and the kind that describes it
 * best. Attention is averaged over the tokens of all texts that have anywhere to look.
 *
 * The model reads each text once, in pieces, so that the patterns of all layers take 64 MB at most, or those of a single token; what
 * detectors want of a text takes the square of its length for each kind.
 *
 * Baselines are those of a head without preference, which gives each key that its layer lets it see the same weight; for "uniform",
 * of one that sees a single key.
 * @param texts Tokens, or tokens with places that refer to others.
 * @returns All heads, layer by layer.
 * @throws TypeError or RangeError naming the argument, also for layers of latent attention, which have no patterns. HeadwiseError
 * `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { detectHeads } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model"); // a folder: the model `induction` of this repository
 * const segment = Array.from({ length: 40 }, (_, i) => (i * 37) % 95);
 * const heads = detectHeads(model, [[...segment, ...segment]]);
 * console.log(heads.map(({ kind }) => kind).join(", "));
 * // previous, current, current, previous, induction, induction, induction, induction
 * kernels.release();
 */
export function detectHeads(
  model: Model,
  texts: readonly (TokenIds | LabelledText)[],
  options: DetectHeadsOptions = {},
): DetectedHead[] {
  const where = "detectHeads";
  expectModel(where, model);
  const given = readFields(where, "options", options, ["kinds", "maxOffset", "least", "copying"]);
  const kinds = readKinds(where, given.kinds);
  const maxOffset = expectInt(where, "options.maxOffset", given.maxOffset ?? 8, 0);
  const least = expectFinite(where, "options.least", given.least ?? 0.5);
  const copying = expectFlag(where, "options.copying", given.copying ?? true);
  const checked = readTexts(where, texts, model);
  const latent = model.spec.blocks.findIndex(({ attention }) => attention.kind === "latent");
  if (latent >= 0)
    throw new RangeError(`${where}: model expected layers with keys, got latent attention in layer ${latent}`);

  const names = [...kinds.map(([name]) => name), REFERENCE];
  const layers = createLayerSums(model, names.length, maxOffset);
  const referred = readAll(where, model, checked, kinds, layers);

  const broad = new Set(kinds.flatMap(([name, detector]) => (isBroad(detector) ? [name] : [])));
  const lone = loneOverlap(checked);
  const found = layers.flatMap(({ heads, even }, layer) =>
    heads.map((sums, head) => {
      const scores: Record<string, KindScore> = {};
      for (const [i, name] of names.entries())
        if ((sums.kinds[i] as ScoreSum).of > 0) scores[name] = compare(sums.kinds[i], even.kinds[i]);
      for (const [name, detector] of kinds)
        if (detector === "uniform") scores[name] = { ...(scores[name] as KindScore), baseline: lone };
      const offsets = sums.offsets.map((sum, by) => ({ ...compare(sum, even.offsets[by]), by }));
      const offset = offsets.reduce((best, each) => (each.score > best.score ? each : best));
      return { layer, head, scores, offset };
    }),
  );
  const refers = found.filter(({ scores }) => scores[REFERENCE] && marginOf(scores[REFERENCE]) >= least);
  const shares = new Map(copyShares(where, model, refers, referred).map((share, i) => [refers[i], share]));
  const copied = copying ? copyingScores(model) : undefined;
  return found.map((each): DetectedHead => {
    const copies = shares.get(each);
    return {
      ...{ layer: each.layer, head: each.head, kind: kindOf(each, broad, least, copies) },
      ...{ scores: each.scores, offset: each.offset },
      ...(copied && { copying: copied[each.layer]?.[each.head] as number }),
      ...(copies !== undefined && { copies }),
    };
  });
}

/** Whether a kind contains other kinds. */
const isBroad = (detector: HeadDetector): boolean =>
  detector === "uniform" || (typeof detector === "object" && "window" in detector);

/** The overlap with "uniform" of a head that looks at one key: the mean of 1 / (i + 1). */
function loneOverlap(texts: readonly CheckedText[]): number {
  const shares = texts.flatMap(({ ids }) => ids.map((_, i) => 1 / (i + 1)));
  return shares.reduce((sum, share) => sum + share, 0) / shares.length;
}

function compare(sum: ScoreSum | undefined, even: ScoreSum | undefined): KindScore {
  const scoreOf = ({ matched, of }: ScoreSum) => (of > 0 ? matched / of : 0);
  return { score: scoreOf(sum as ScoreSum), baseline: scoreOf(even as ScoreSum) };
}

/** How far a score is from its baseline to 1. */
const marginOf = ({ score, baseline }: KindScore): number => (baseline < 1 ? (score - baseline) / (1 - baseline) : 0);

/** The kind of a head, as `DetectedHead.kind` says. */
function kindOf(
  { scores, offset }: Pick<DetectedHead, "scores" | "offset">,
  broad: ReadonlySet<string>,
  least: number,
  copies: number | undefined,
): string {
  const all = [...Object.entries(scores), ["offset", offset] as const];
  const best = (isCandidate: (name: string) => boolean) => {
    let [kind, most]: [string | undefined, number] = [undefined, least];
    for (const [name, score] of all) {
      const margin = marginOf(score);
      // Of equal ones the first: "previous" rather than "offset".
      if (isCandidate(name) && (kind === undefined ? margin >= most : margin > most)) [kind, most] = [name, margin];
    }
    return kind;
  };
  const kind = best((name) => !broad.has(name)) ?? best((name) => broad.has(name)) ?? "mixed";
  return kind === REFERENCE && copies !== undefined && copies >= LEAST_COPIES ? "name mover" : kind;
}

/** `DetectedHead.copies` of some heads. */
function copyShares(
  where: string,
  model: Model,
  heads: readonly Pick<DetectedHead, "layer" | "head">[],
  referred: readonly Referred[],
): number[] {
  const { weights, vocabSize } = model;
  return heads.map(({ layer, head }) => {
    const block = weights.blocks[layer] as PackedBlock;
    const { numHeads, numKvHeads, valueDim } = block.attention.config;
    const from = Math.floor((head * numKvHeads) / numHeads) * valueDim;
    const values = new Float32Array(referred.length * valueDim);
    for (const [i, each] of referred.entries())
      values.set((each.values[layer] as Float32Array).subarray(from, from + valueDim), i * valueDim);
    let copies = 0;
    unembed(where, model, writtenFor(where, model, block, head, values), (row) => {
      const { ids } = row.top(Math.min(COPY_TOP, vocabSize));
      if (ids.includes((referred[row.output] as Referred).token)) copies++;
    });
    return copies / referred.length;
  });
}
