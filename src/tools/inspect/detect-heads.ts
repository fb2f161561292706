// What every head of a model does, from texts that are read once.

import { expectShape } from "../../base/tensor/dtypes.ts";
import { createFloats, expectTensor, type Tensor } from "../../base/tensor/tensor.ts";
import { expectFinite, expectFlag, expectInt, expectRecord, readFields, readList } from "../../base/util/arguments.ts";
import { throwUnder, underName } from "../../base/util/errors.ts";
import { chunksOf } from "../../base/util/rows.ts";
import { finish, type WaitingSteps } from "../../base/util/steps.ts";
import { firstKeyOf } from "../../layers/attention/heads.ts";
import { expectModel, type Model, type PackedBlock } from "../../models/blocks/model.ts";
import { makeSession, readIds, type Session, type TokenIds } from "../../models/decoder/session.ts";
import { mostTokens, stateLayer } from "../../models/spec/spec.ts";
import { addQuery, copyingScores, type HeadKind, lookOf, MOST_TOKENS, type ScoreSum, writtenFor } from "./detectors.ts";
import { forwardWithSteps } from "./forward-with.ts";
import { unembed } from "./logits.ts";
import { kvHeadOf } from "./parts.ts";
import { hasSite, type Site } from "./sites.ts";
import { expectHeads, headsOf } from "./views.ts";

// The order of kinds in lists of heads.

/** The kinds of `detectHeads`, from the most specific to "mixed". */
export const KIND_ORDER: readonly string[] = [
  "name mover",
  "reference",
  "previous",
  "induction",
  "duplicate",
  "offset",
  "current",
  "first",
  "local",
  "uniform",
  "mixed",
];

// What detectors look for, and the texts in which they do.

/** Writes where the token at i looks. */
type Look = ReturnType<typeof lookOf>;

/** A kind of heads: one of `detectionPattern`, or what gives the pattern [tokens, tokens] of a text. */
export type HeadDetector = HeadKind | ((tokens: readonly number[]) => Tensor);

/** A text of which is known which places refer to which. */
export interface LabelledText {
  /** Ids, 1 to 16,384. */
  readonly tokens: TokenIds;
  /** References; a place may refer to several. */
  readonly pairs: readonly ReferencePair[];
}

/** The token at place `query` refers to that at `key`, which is not behind it: a pronoun to a name, a place before a name to it. */
export interface ReferencePair {
  /** The place that refers, as an index into `tokens`. */
  readonly query: number;
  /** The place that it refers to: at most `query`. */
  readonly key: number;
}

/** What `detectHeads` looks for by default. */
export const HEAD_KINDS: Readonly<Record<string, HeadKind>> = Object.freeze({
  previous: "previous",
  current: "current",
  first: "first",
  duplicate: "duplicate",
  induction: "induction",
  local: Object.freeze({ window: 4 }),
  uniform: "uniform",
});

/** The kind of labelled texts. */
const REFERENCE = "reference";

/** Names that kinds of one's own cannot have, because heads have them for other reasons. */
const RESERVED: readonly string[] = [REFERENCE, "offset", "name mover", "mixed"];

/** A text that was checked. */
interface CheckedText {
  readonly ids: readonly number[];
  readonly pairs: readonly ReferencePair[];
}

/** Checks the kinds of a call. Their values are checked with each text. */
function readKinds(
  where: string,
  kinds: Readonly<Record<string, HeadDetector>> = HEAD_KINDS,
): [name: string, detector: HeadDetector][] {
  expectRecord(where, "options.kinds", kinds);
  const entries = Object.entries(kinds);
  const taken = entries.find(([name]) => RESERVED.includes(name));
  if (taken)
    throw new RangeError(`${where}: options.kinds expected names other than ${RESERVED.join(", ")}, got ${taken[0]}`);
  return entries;
}

/** Checks the texts of a call, 1 or more of 1 or more tokens. */
function readTexts(where: string, texts: readonly (TokenIds | LabelledText)[], { vocabSize }: Model): CheckedText[] {
  const read = Array.from(
    readList(where, "texts", texts, Infinity, (text, i): CheckedText => {
      const name = `texts[${i}]`;
      const isLabelled = text !== null && typeof text === "object" && "tokens" in text;
      const { tokens, pairs } = isLabelled
        ? readFields(where, name, text as LabelledText, ["tokens", "pairs"])
        : { tokens: text, pairs: [] };
      const ids = readIds(where, isLabelled ? `${name}.tokens` : name, tokens, vocabSize, MOST_TOKENS);
      if (ids.length === 0 || ids.length > MOST_TOKENS)
        throw new RangeError(`${where}: ${name} expected 1 to ${MOST_TOKENS} tokens, got ${ids.length}`);
      return { ids: Array.from(ids), pairs: readPairs(where, `${name}.pairs`, pairs, ids.length) };
    }),
  );
  if (read.length === 0) throw new RangeError(`${where}: texts expected 1 or more, got none`);
  return read;
}

function readPairs(where: string, name: string, pairs: unknown, tokens: number): ReferencePair[] {
  return Array.from(
    readList(where, name, pairs, Infinity, (pair, i) => {
      const at = `${name}[${i}]`;
      const given = readFields(where, at, pair as ReferencePair, ["query", "key"]);
      const query = expectInt(where, `${at}.query`, given.query, 0, tokens - 1);
      return { query, key: expectInt(where, `${at}.key`, given.key, 0, query) };
    }),
  );
}

/** Where each kind looks in a text, that of `REFERENCE` last. */
function looksIn(
  where: string,
  { ids, pairs }: CheckedText,
  kinds: readonly [name: string, detector: HeadDetector][],
): Look[] {
  const n = ids.length;
  const looks = kinds.map(([name, detector]): Look => {
    if (typeof detector !== "function") return lookOf(where, `options.kinds.${name}`, detector, ids);
    const { data, shape } = expectTensor(where, `options.kinds.${name}(…)`, detector([...ids]), [2]);
    expectShape(where, `options.kinds.${name}(…)`, shape, [n, n]);
    return (i, row) => row.set(data.subarray(i * n, i * n + i + 1));
  });
  const keysOf = new Map<number, number[]>(pairs.map(({ query }) => [query, []]));
  for (const { query, key } of pairs) (keysOf.get(query) as number[]).push(key);
  const refer: Look = (i, row) => {
    row.fill(0, 0, i + 1);
    for (const key of keysOf.get(i) ?? []) row[key] = 1;
  };
  return [...looks, refer];
}

// Sums over the attention patterns of texts, of which a session holds a few rows at a time.

/** About how many weights of patterns are held at a time. */
const PATTERN_FLOATS = 2 ** 24;

/** Sums of a head over all texts: of each kind, and of each offset. */
interface HeadSums {
  readonly kinds: readonly ScoreSum[];
  readonly offsets: readonly ScoreSum[];
}

/** Sums of a layer's heads, and of a head without preference there. */
interface LayerSums {
  /** The first key that a token sees. */
  firstKey(query: number): number;
  readonly heads: readonly HeadSums[];
  readonly even: HeadSums;
}

/** A labelled pair: the token at `key`, and its values [numKvHeads·valueDim] by layer; those of latent attention have none. */
interface Referred {
  readonly token: number;
  readonly values: ReadonlyMap<number, Float32Array>;
}

/** Sums of 0, for the layers of a model. */
function createLayerSums({ weights }: Model, kinds: number, maxOffset: number): LayerSums[] {
  const zeros = (length: number) => Array.from({ length }, (): ScoreSum => ({ matched: 0, of: 0 }));
  const create = () => ({ kinds: zeros(kinds), offsets: zeros(maxOffset + 1) });
  return weights.blocks.map(({ attention }) => {
    const heads = headsOf(attention)?.layer;
    return {
      firstKey: (query) => (heads ? firstKeyOf(heads, query) : 0),
      heads: Array.from({ length: heads?.config.numHeads ?? 0 }, create),
      even: create(),
    };
  });
}

/** Reads all texts and adds them to the sums. Returns what the pairs of labelled texts refer to. */
function* readAll(
  where: string,
  model: Model,
  texts: readonly CheckedText[],
  kinds: readonly [string, HeadDetector][],
  layers: readonly LayerSums[],
  sliced: boolean,
): WaitingSteps<Referred[]> {
  const longest = texts.reduce((most, { ids }) => Math.max(most, ids.length), 0);
  const session = makeSession(where, model, { maxSeqLen: longest });
  try {
    const referred: Referred[] = [];
    for (const text of texts) {
      session.truncate(0);
      referred.push(...(yield* addText(where, session, text, looksIn(where, text, kinds), layers, sliced)));
    }
    return referred;
  } catch (error) {
    return throwUnder(where, error);
  } finally {
    session.release();
  }
}

function* addText(
  where: string,
  session: Session,
  { ids, pairs }: CheckedText,
  looks: readonly Look[],
  layers: readonly LayerSums[],
  sliced: boolean,
): WaitingSteps<Referred[]> {
  const n = ids.length;
  const numHeads = layers.reduce((sum, { heads }) => sum + heads.length, 0);
  const patterns = [...layers.keys()].filter((layer) => (layers[layer] as LayerSums).heads.length > 0);
  const { blocks } = session.model.weights;
  const valued = patterns.filter((layer) => pairs.length > 0 && hasSite("v", (blocks[layer] as PackedBlock).attention));
  const capture = valued.map((layer): Site => ({ at: "v", layer }));
  const values = new Map(pairs.map(({ key }): [number, Map<number, Float32Array>] => [key, new Map()]));
  const wanted = looks.map(() => createFloats(where, "pattern", n));
  const even = createFloats(where, "pattern", n);
  for (const [begin, end] of chunksOf(n, Math.max(1, Math.floor(PATTERN_FLOATS / Math.max(1, numHeads * n))))) {
    const pass = yield* forwardWithSteps(session, ids.slice(begin, end), { patterns, capture, top: 1 }, sliced);
    for (let i = begin; i < end; i++) {
      for (const [kind, look] of looks.entries()) look(i, wanted[kind] as Float32Array);
      for (const [at, layer] of patterns.entries()) {
        const { heads, even: sums, firstKey } = layers[layer] as LayerSums;
        const { data } = pass.patterns[at] as Tensor;
        for (const [head, own] of heads.entries())
          addRow(own, wanted, i, data, (head * (end - begin) + i - begin) * end);
        const first = firstKey(i);
        even.fill(0).fill(1 / (i - first + 1), first, i + 1);
        addRow(sums, wanted, i, even, 0);
      }
    }
    for (const [i, { data, shape }] of pass.captured.entries())
      for (const [key, rows] of values)
        if (key >= begin && key < end) {
          const width = shape[1] as number;
          rows.set(valued[i] as number, data.slice((key - begin) * width, (key - begin + 1) * width));
        }
  }
  return pairs.map(({ key }) => ({ token: ids[key] as number, values: values.get(key) as Referred["values"] }));
}

/** Adds the weights of token i, which lie at `at`; `wanted` is where each kind looks. */
function addRow(
  { kinds, offsets }: HeadSums,
  wanted: readonly Float32Array[],
  i: number,
  weights: Float32Array,
  at: number,
): void {
  for (const [kind, sum] of kinds.entries())
    addQuery(sum, "overlap", weights, at, wanted[kind] as Float32Array, 0, 0, i + 1);
  for (let by = 0; by <= i && by < offsets.length; by++) {
    const sum = offsets[by] as ScoreSum;
    sum.matched += weights[at + i - by] as number;
    sum.of++;
  }
}

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
  /**
   * Whether to compute `copying`, which takes about vocabSize·dModel² operations. Default true, unless layers attend the keys and values
   * of other layers, which have no scores.
   */
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
 * @returns All heads, layer by layer; recurrent layers have none.
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
  return finish(detectHeadSteps(model, texts, options));
}

/** `detectHeads` in steps, as `forwardWithSteps`. */
export function* detectHeadSteps(
  model: Model,
  texts: readonly (TokenIds | LabelledText)[],
  options: DetectHeadsOptions,
  sliced = false,
): WaitingSteps<DetectedHead[]> {
  const where = "detectHeads";
  expectModel(where, model);
  const given = readFields(where, "options", options, ["kinds", "maxOffset", "least", "leastTokens", "copying"]);
  const kinds = readKinds(where, given.kinds);
  const maxOffset = expectInt(where, "options.maxOffset", given.maxOffset ?? 8, 0);
  const least = expectFinite(where, "options.least", given.least ?? 0.5);
  const leastTokens = expectInt(where, "options.leastTokens", given.leastTokens ?? 8);
  const isShared = model.spec.blocks.some((block, layer) => stateLayer(block, layer) !== layer);
  const copying = expectFlag(where, "options.copying", given.copying ?? !isShared);
  const checked = readTexts(where, texts, model);

  const layers = createLayerSums(model, kinds.length + 1, maxOffset);
  const referred = yield* readAll(where, model, checked, kinds, layers, sliced);

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
    return reference && marginOf(reference) >= least && hasSite("v", attention);
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
const marginOf = ({ score, baseline }: KindScore): number => (baseline < 1 ? (score - baseline) / (1 - baseline) : 0);

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
  return (narrow.length > 0 ? narrow : near).reduce(most, { name: "mixed", margin: -Infinity }).name;
}

/** `DetectedHead.copies` of some heads. */
function copyShares(
  where: string,
  model: Model,
  places: readonly Pick<DetectedHead, "layer" | "head">[],
  referred: readonly Referred[],
): number[] {
  const { weights, vocabSize, dModel } = model;
  return places.map(({ layer, head }) => {
    const block = weights.blocks[layer] as PackedBlock;
    const heads = expectHeads(where, "texts", block.attention, layer);
    const { config } = heads.layer;
    const { valueDim } = config;
    const from = kvHeadOf(config, head) * valueDim;
    const values = new Float32Array(referred.length * valueDim);
    for (const [i, each] of referred.entries())
      values.set((each.values.get(layer) as Float32Array).subarray(from, from + valueDim), i * valueDim);
    const written = writtenFor(where, model, block, heads, head, values);
    const rows = referred.map((_, i) => written.subarray(i * dModel, (i + 1) * dModel));
    let copies = 0;
    unembed(where, model, rows, (row) => {
      const { ids } = row.top(Math.min(COPY_TOP, vocabSize));
      if (ids.includes((referred[row.output] as Referred).token)) copies++;
    });
    return copies / referred.length;
  });
}

// What callers ask beside `detectHeads`: how long a text may be, and in which order heads are shown.

/**
 * The most tokens of a text that `detectHeads` reads: those that the model has positions for, at most 16384.
 * @throws TypeError unless `model` is one of loadModel. HeadwiseError `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { longestText } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * console.log(longestText(await loadModel(kernels, "model"))); // 16384: rotary positions have no end
 * kernels.release();
 */
export function longestText(model: Model): number {
  expectModel("longestText", model);
  return Math.min(MOST_TOKENS, mostTokens(model.spec));
}

/** A head with the score that it is ranked by. */
export interface RankedHead extends DetectedHead {
  /** The pattern that it is furthest towards: its kind, or of "mixed" the nearest one. */
  readonly nearest: string;
  /** Of that pattern; of a "name mover" that of "reference". */
  readonly score: KindScore;
}

/**
 * Sorts heads by what they do: by their kinds, from the most specific ones to "mixed", those of detectors of your own before "mixed";
 * within a kind by how far the score is from its baseline, 0, to a perfect score, 1, the farthest first.
 * @param heads What `detectHeads` gives. They are not changed.
 * @throws TypeError naming the argument.
 * @example
 * import { loadKernels } from "headwise";
 * import { detectHeads, rankHeads } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const found = detectHeads(await loadModel(kernels, "model"), [[5, 6, 7, 8, 9, 10, 11, 5, 6, 7, 8, 9, 10, 11]], { copying: false });
 * const [first] = rankHeads(found);
 * console.log(first!.score.score >= first!.score.baseline); // true
 * kernels.release();
 */
export function rankHeads(heads: readonly DetectedHead[]): RankedHead[] {
  const where = "rankHeads";
  const read = (each: unknown, i: number): RankedHead => {
    expectRecord(where, `heads[${i}]`, each);
    const { kind, scores } = each as DetectedHead;
    expectRecord(where, `heads[${i}].scores`, scores);
    const nearest = kind === "mixed" ? nearestOf(scores) : kind;
    const score = scores[kind === "name mover" ? REFERENCE : nearest];
    expectRecord(where, `heads[${i}].scores.${nearest}`, score);
    return { ...(each as DetectedHead), nearest, score: score as KindScore };
  };
  const ranked = Array.from(readList(where, "heads", heads, MOST_RANKED, read));
  return ranked.sort((a, b) => placeOf(a.kind) - placeOf(b.kind) || marginOf(b.score) - marginOf(a.score));
}

/** More heads than any model has. */
const MOST_RANKED = 2 ** 24;

/** Where a kind stands in lists. */
function placeOf(kind: string): number {
  const at = KIND_ORDER.indexOf(kind);
  return at < 0 ? KIND_ORDER.length - 1.5 : at;
}

/** The kind whose score is furthest from its baseline. */
function nearestOf(scores: DetectedHead["scores"]): string {
  const [first = "mixed", ...others] = Object.keys(scores);
  const marginAt = (name: string) => marginOf(scores[name] as KindScore);
  return others.reduce((best, name) => (marginAt(name) > marginAt(best) ? name : best), first);
}
