// What every head of a model does, from texts that are read once.

import type { TokenIds } from "../decoder/forward.ts";
import { expectModel, type Model } from "../decoder/model.ts";
import type { PackedBlock } from "../decoder/packed.ts";
import { expectFinite, expectFlag, expectInt, readFields } from "../util/arguments.ts";
import { underName } from "../util/errors.ts";
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
import { createLayerSums, type HeadSums, type Referred, readAll } from "./pattern-sums.ts";
import { isLatent, kvHeadOf } from "./read-weights.ts";
import { unembed } from "./unembed.ts";

/** Options of `detectHeads`. */
export interface DetectHeadsOptions {
  /** What to look for, by names of your own. Default `HEAD_KINDS`. */
  readonly kinds?: Readonly<Record<string, HeadDetector>> | undefined;
  /** The largest distance that is tried as `offset`. Default 8. */
  readonly maxOffset?: number | undefined;
  /** How far a head that has a kind must be from its baseline, 0, to a perfect score, 1. Default 0.5. */
  readonly least?: number | undefined;
  /** How many tokens a score must rest on to make a kind, unless they were labelled. Default 8. */
  readonly leastTokens?: number | undefined;
  /** Whether to compute `copying`, which takes about vocabSize·dModel² operations. Default true. */
  readonly copying?: boolean | undefined;
}

/** How well a head matches a pattern, and what a head without preference scores. */
export interface KindScore {
  /** 1 is a perfect match. */
  readonly score: number;
  /** Less than 1, unless every token has a single key. */
  readonly baseline: number;
  /** How many tokens of the texts have anywhere to look: the score is a mean over these. */
  readonly tokens: number;
}

/** What a head does. All of it is plain data. */
export interface DetectedHead {
  /** 0 for the first layer. */
  readonly layer: number;
  /** 0 for the first head of the layer. */
  readonly head: number;
  /**
   * The kind that the head is furthest towards, (score - baseline) / (1 - baseline), among those that reach `least`: a name of
   * `scores`, or "name mover" for "reference" with `copies` of 0.5 or more; "mixed" if there is none. Scores of fewer than
   * `leastTokens` tokens, which may be coincidences, make no kind, unless it is "reference", which the text itself says. Windows and
   * "uniform", which contain other patterns, count only if no other kind does.
   */
  readonly kind: string;
  /** By name of a kind: those that any token of the texts can match; "reference" for labelled texts; "offset", as below. */
  readonly scores: Readonly<Record<string, KindScore>>;
  /** The best of `{ offset: 0 }` to `{ offset: maxOffset }` of `leastTokens` tokens or more; of all, if none has as many. */
  readonly offset: KindScore & {
    /** How far back the head looks. */
    readonly by: number;
  };
  /** `copyingScores`; a head of random weights has 0 on average. */
  readonly copying?: number;
  /**
   * Of heads that reach `least` on "reference": the share of labelled pairs whose token at `key` is among the five likeliest ones, if
   * the head attends to it alone and the residual is what the head writes. That is the copy score of Wang et al. 2022, who call heads
   * that attend to names and copy them name movers; they take the token's residual behind the first MLP, here it is the one that the
   * head reads. At random it would be 5 / vocabSize. Heads of latent attention, whose values are made of latents, have
   * none.
   */
  readonly copies?: number;
}

/** Ids among which a copied token must be, and the share of tokens that name movers copy. */
const COPY_TOP = 5;
const LEAST_COPIES = 0.5;

/**
 * What every head of a model does: the scores of all kinds, by the measure "overlap" of `headScores`, and the kind that describes it
 * best. Attention is averaged over the tokens of all texts that have anywhere to look, which `tokens` counts. A sentence that
 * repeats a single word has one such token for "induction": kinds that need repetition need long texts, or random tokens twice.
 *
 * The model reads each text once, in pieces, so that the patterns of all layers take 64 MB at most, or those of a single token. Only
 * functions that make patterns need the square of a text's length.
 *
 * Baselines are those of a head without preference, which gives each key that its layer lets it see the same weight; for "uniform",
 * of one that sees a single key.
 * @param texts Tokens, or tokens with places that refer to others.
 * @returns All heads, layer by layer.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { detectHeads } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model"); // a folder: the model `induction` of this repository
 * const segment = Array.from({ length: 40 }, (_, i) => (i * 37) % 95);
 * const heads = detectHeads(model, [[...segment, ...segment]]);
 * const layer1 = heads.slice(4).map(({ kind }) => kind);
 * console.log(layer1.join(", ")); // induction, induction, induction, induction
 * kernels.release();
 */
export function detectHeads(
  model: Model,
  texts: readonly (TokenIds | LabelledText)[],
  options: DetectHeadsOptions = {},
): DetectedHead[] {
  const where = "detectHeads";
  expectModel(where, model);
  const given = readFields(where, "options", options, ["kinds", "maxOffset", "least", "leastTokens", "copying"]);
  const kinds = readKinds(where, given.kinds);
  const maxOffset = expectInt(where, "options.maxOffset", given.maxOffset ?? 8, 0);
  const least = expectFinite(where, "options.least", given.least ?? 0.5);
  const leastTokens = expectInt(where, "options.leastTokens", given.leastTokens ?? 8);
  const copying = expectFlag(where, "options.copying", given.copying ?? true);
  const checked = readTexts(where, texts, model);

  const layers = createLayerSums(model, kinds.length + 1, maxOffset);
  const referred = underName(where, () => readAll(where, model, checked, kinds, layers));

  const lone = loneOverlap(checked);
  const found = layers.flatMap(({ heads, even }, layer) =>
    heads.map((sums, head): FoundHead => {
      const offsets = sums.offsets.map((sum, by) => ({ ...compare(sum, even.offsets[by]), by }));
      const enough = offsets.filter(({ tokens }) => tokens >= leastTokens);
      const offset = (enough.length > 0 ? enough : offsets).reduce((best, each) =>
        each.score > best.score ? each : best,
      );
      const { by: _, ...score } = offset;
      return { layer, head, scores: { ...scoresOf(kinds, sums, even, lone), offset: score }, offset };
    }),
  );
  const refers = found.filter(({ layer, scores: { reference } }) => {
    const { attention } = model.weights.blocks[layer] as PackedBlock;
    return reference && marginOf(reference) >= least && !isLatent(attention);
  });
  const shares = underName(where, () => copyShares(where, model, refers, referred));
  const copied = copying ? underName(where, () => copyingScores(model)) : undefined;
  return found.map((each): DetectedHead => {
    const copies = shares[refers.indexOf(each)];
    const best = kindOf(each, kinds, least, leastTokens);
    const kind = best === REFERENCE && (copies ?? 0) >= LEAST_COPIES ? "name mover" : best;
    const { layer, head, scores, offset } = each;
    return {
      ...{ layer, head, kind, scores, offset },
      ...(copied && { copying: copied[layer]?.[head] as number }),
      ...(copies !== undefined && { copies }),
    };
  });
}

type Kinds = readonly [name: string, detector: HeadDetector][];

type FoundHead = Pick<DetectedHead, "layer" | "head" | "scores" | "offset">;

/** The overlap with "uniform" of a head that looks at one key: the mean of 1 / (i + 1). */
function loneOverlap(texts: readonly CheckedText[]): number {
  const shares = texts.flatMap(({ ids }) => ids.map((_, i) => 1 / (i + 1)));
  return shares.reduce((sum, share) => sum + share, 0) / shares.length;
}

/** `DetectedHead.scores`; sums of the last kind are those of labelled texts. */
function scoresOf(kinds: Kinds, own: HeadSums, even: HeadSums, lone: number): Record<string, KindScore> {
  const scores: Record<string, KindScore> = {};
  for (const [i, sum] of own.kinds.entries()) {
    const [name, detector] = kinds[i] ?? [REFERENCE];
    if (sum.of > 0)
      scores[name] = { ...compare(sum, even.kinds[i]), ...(detector === "uniform" && { baseline: lone }) };
  }
  return scores;
}

function compare(own: ScoreSum, even: ScoreSum | undefined): KindScore {
  const scoreOf = ({ matched, of }: ScoreSum) => (of > 0 ? matched / of : 0);
  return { score: scoreOf(own), baseline: scoreOf(even as ScoreSum), tokens: own.of };
}

/** How far a score is from its baseline to 1. */
export const marginOf = ({ score, baseline }: KindScore): number =>
  baseline < 1 ? (score - baseline) / (1 - baseline) : 0;

/** Whether a kind contains other kinds. */
const isBroad = (detector: HeadDetector | undefined): boolean =>
  detector === "uniform" || (typeof detector === "object" && "window" in detector);

/** The kind of a head, as `DetectedHead.kind` says, but for name movers. */
function kindOf({ scores }: FoundHead, kinds: Kinds, least: number, leastTokens: number): string {
  const detectors = new Map(kinds);
  const near = Object.entries(scores).flatMap(([name, score]) => {
    const margin = marginOf(score);
    const counts = name === REFERENCE || score.tokens >= leastTokens;
    return counts && margin >= least ? [{ name, margin }] : [];
  });
  const narrow = near.filter(({ name }) => !isBroad(detectors.get(name)));
  // Of equal ones the first: "previous" rather than "offset".
  const most = (best: (typeof near)[number], each: (typeof near)[number]) => (each.margin > best.margin ? each : best);
  return (narrow.length > 0 ? narrow : near).reduce(most, { name: "mixed", margin: Number.NEGATIVE_INFINITY }).name;
}

/** `DetectedHead.copies` of some heads. */
function copyShares(
  where: string,
  model: Model,
  heads: readonly Pick<DetectedHead, "layer" | "head">[],
  referred: readonly Referred[],
): number[] {
  const { weights, vocabSize, dModel } = model;
  return heads.map(({ layer, head }) => {
    const block = weights.blocks[layer] as PackedBlock;
    const { config } = block.attention;
    const { valueDim } = config;
    const from = kvHeadOf(config, head) * valueDim;
    const values = new Float32Array(referred.length * valueDim);
    for (const [i, each] of referred.entries())
      values.set((each.values.get(layer) as Float32Array).subarray(from, from + valueDim), i * valueDim);
    const written = writtenFor(where, model, block, head, values);
    const rows = referred.map((_, i) => written.subarray(i * dModel, (i + 1) * dModel));
    let copies = 0;
    unembed(where, model, rows, (row) => {
      const { ids } = row.top(Math.min(COPY_TOP, vocabSize));
      if (ids.includes((referred[row.output] as Referred).token)) copies++;
    });
    return copies / referred.length;
  });
}
