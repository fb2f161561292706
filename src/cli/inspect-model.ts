// What `headwise inspect` asks of a model. Every result is that of a recorded inspection, so that others can repeat it.

import type { CacheFormat, Tensor } from "../entries/core.ts";
import {
  type AttentionStatistics,
  type DetectedHead,
  type Edit,
  HEAD_KINDS,
  type InspectionName,
  type InspectionRecord,
  type Inspections,
  inspect,
  layerConfig,
  layerMixers,
  longestText,
  nextTokens,
  type RankedHead,
  type ReferencePair,
  rankHeads,
  type ScoreExplanation,
  sitesOf,
} from "../entries/inspect.ts";
import type { Model } from "../entries/models.ts";
import { UsageError } from "./args.ts";

/** Tokens of the longest text: no model has a longer one. */
export const MOST_TOKENS = 16_384;
/** How many tokens a score must rest on to make a kind. */
export const LEAST_TOKENS = 8;

/** A head of a model. */
export interface HeadPlace {
  readonly layer: number;
  readonly head: number;
}

/** What is asked for. */
export interface InspectWork {
  /** Whose maps are shown, if not those of the strongest heads: one head, or all of a layer. */
  readonly layer: number | undefined;
  readonly head: number | undefined;
  /** How many maps of the strongest heads. */
  readonly maps: number;
  /** The first token that maps show. */
  readonly from: number;
  /** Whether maps have all tokens, not only those that fit into lines. */
  readonly whole: boolean;
  readonly statistics: boolean;
  /** The first token refers to the second. */
  readonly pair: ReferencePair | undefined;
  readonly why: ReferencePair | undefined;
  /** How many next tokens. */
  readonly next: number;
  readonly without: readonly HeadPlace[];
  readonly cache: CacheFormat | undefined;
}

/** A head with the score by which it is sorted. */
export interface MeasuredHead extends RankedHead {
  readonly statistics: HeadStatistics | undefined;
}

/** Means over the queries of a head. */
interface HeadStatistics {
  readonly logSumExp: number;
  /** In nats. */
  readonly entropy: number;
  readonly largest: number;
  /** The weight on the first token. */
  readonly first: number;
  /** In tokens. */
  readonly distance: number;
}

/** The map of a head: weights [tokens, tokens] of the first tokens of the text. */
interface DrawnMap extends HeadPlace {
  readonly weights: Float32Array;
  readonly tokens: number;
}

/** A next token. */
interface ComparedToken {
  readonly id: number;
  readonly probability: number;
  /** Its probability without the heads that are left out. */
  readonly without: number | undefined;
}

/** What was found. */
export interface Inspection {
  readonly model: Model;
  /** What mixes the tokens of each layer. */
  readonly mixers: readonly string[];
  /** Sorted by what they do. */
  readonly heads: readonly MeasuredHead[];
  readonly maps: readonly DrawnMap[];
  readonly why: ScoreExplanation | undefined;
  readonly next: readonly ComparedToken[];
  readonly work: InspectWork;
  readonly records: readonly InspectionRecord[];
}

/** Runs what is asked for. `fits` is the number of tokens that lines have room for. */
export async function inspectModel(
  command: string,
  model: Model,
  ids: readonly number[],
  work: InspectWork,
  fits: number,
): Promise<Inspection> {
  const counts = headCounts(command, model);
  const mixers = layerMixers(model);
  checkWork(command, model, work, ids.length, counts, mixers);
  const { cache: format, layer, head, pair } = work;
  const records: InspectionRecord[] = [];
  const run = async <Name extends InspectionName>(name: Name, request: Inspections[Name]["request"]) => {
    const { results, record } = await inspect(model, name, request);
    records.push(record as InspectionRecord);
    return results;
  };

  const detected = await run("detectHeads", {
    texts: [pair ? { tokens: ids, pairs: [pair] } : ids],
    leastTokens: LEAST_TOKENS,
    copying: false,
  });
  const headed = [...counts.keys()];
  const measures = work.statistics || work.next > 0;
  const plain = measures
    ? await run("forward", { ids, format, ...(work.statistics && { statistics: { first: 1 } }) })
    : undefined;
  const heads = rankHeads(detected).map((ranked): MeasuredHead => {
    const measured = plain?.statistics?.[headed.indexOf(ranked.layer)];
    return { ...ranked, statistics: measured && meansOf(measured, ranked.head) };
  });

  const places = layer === undefined ? strongest(heads, work.maps) : placesOf(counts, layer, head);
  const end = work.whole ? ids.length : Math.min(ids.length, work.from + fits);
  const layers = [...new Set(places.map((place) => place.layer))];
  const patterns =
    layers.length > 0 ? (await run("forward", { ids: ids.slice(0, end), format, patterns: layers })).patterns : [];
  const maps = places.map((place): DrawnMap => {
    const { data } = patterns[layers.indexOf(place.layer)] as Tensor;
    return { ...place, weights: data.slice(place.head * end * end, (place.head + 1) * end * end), tokens: end };
  });

  const why =
    work.why && layer !== undefined && head !== undefined
      ? await run("explainScore", { ids, format, layer, head, ...work.why })
      : undefined;
  const edits = work.without.map((place): Edit => ({ at: "z", ...place, set: 0 }));
  const ablated = edits.length > 0 && work.next > 0 ? await run("forward", { ids, format, edits }) : undefined;
  const next = plain ? compareNext(plain.logits, ablated?.logits, work.next) : [];
  return { model, mixers, heads, maps, why, next, work, records };
}

/** Checks the tokens of a text, which came as the argument `name`. */
export function checkText(command: string, model: Model, name: string, ids: readonly number[]): void {
  const outside = ids.find((id) => id >= model.vocabSize);
  if (outside !== undefined)
    throw new UsageError(
      `${command}: ${name} expected ids below ${model.vocabSize}, those of the model, got ${outside}`,
    );
  const most = longestText(model);
  if (ids.length === 0 || ids.length > most)
    throw new UsageError(`${command}: ${name} expected 1 to ${most} tokens, got ${ids.length || "none"}`);
}

/** Checks what depends on the model and the length of the text. */
function checkWork(
  command: string,
  model: Model,
  work: InspectWork,
  tokens: number,
  counts: HeadCounts,
  mixers: readonly string[],
): void {
  const { layer, head, pair, why, from, without } = work;
  const within = (name: string, value: number, count: number) => {
    if (value >= count)
      throw new UsageError(`${command}: ${name} expected an integer from 0 to ${count - 1}, got ${value}`);
  };
  if (layer !== undefined) within("--layer", layer, model.layers);
  if (layer !== undefined && !counts.has(layer))
    throw new UsageError(
      `${command}: --layer expected a layer with heads of attention, got ${layer}: ${mixers[layer]}`,
    );
  if (layer !== undefined && head !== undefined) within("--head", head, counts.get(layer) as number);
  within("--from", from, tokens);
  for (const place of without) {
    const count = counts.get(place.layer) ?? 0;
    if (place.head < count) continue;
    const reason =
      place.layer < model.layers ? `layer ${place.layer} has ${count} heads` : `it has ${model.layers} layers`;
    throw new UsageError(
      `${command}: --without expected heads of the model, got ${place.layer}.${place.head}: ${reason}`,
    );
  }
  if (pair !== undefined) {
    within("--pair QUERY", pair.query, tokens);
    within("--pair KEY", pair.key, pair.query + 1);
  }
  if (why === undefined || layer === undefined) return;
  const { query, key } = why;
  within("--why QUERY", query, tokens);
  const least = Math.max(0, query - layerConfig(model, layer).window.left);
  if (key > query || key < least)
    throw new UsageError(`${command}: --why KEY expected a token that ${query} sees, ${least} to ${query}, got ${key}`);
}

/** The number of heads of each layer that has any. */
type HeadCounts = ReadonlyMap<number, number>;

function headCounts(command: string, model: Model): HeadCounts {
  try {
    const counts = new Map<number, number>();
    for (const { layer = 0, head = 0 } of sitesOf(model, "z")) counts.set(layer, head + 1);
    return counts;
  } catch (error) {
    throw error instanceof RangeError
      ? new UsageError(
          `${command}: MODEL expected one with heads of attention, got ${layerMixers(model)[0]} in all layers`,
        )
      : error;
  }
}

/** A head, or all of a layer. */
function placesOf(counts: HeadCounts, layer: number, head: number | undefined): HeadPlace[] {
  if (head !== undefined) return [{ layer, head }];
  return Array.from({ length: counts.get(layer) ?? 0 }, (_, each) => ({ layer, head: each }));
}

/** A kind that few tokens of a text can match. */
export interface ScarceKind {
  readonly name: string;
  readonly tokens: number;
}

/** The kinds that no head can have, because too few tokens of the text have anywhere to look. */
export function scarceKinds([head]: readonly DetectedHead[]): ScarceKind[] {
  const counts = Object.keys(HEAD_KINDS).map((name) => ({ name, tokens: head?.scores[name]?.tokens ?? 0 }));
  return counts.filter(({ tokens }) => tokens < LEAST_TOKENS);
}

function meansOf({ lse, entropy, topWeights, firstMass, distance }: AttentionStatistics, head: number): HeadStatistics {
  const mean = ({ data, shape }: AttentionStatistics["lse"]) => {
    const queries = shape[1] as number;
    return data.subarray(head * queries, (head + 1) * queries).reduce((sum, value) => sum + value, 0) / queries;
  };
  return {
    ...{ logSumExp: mean(lse), entropy: mean(entropy), largest: mean(topWeights) },
    ...{ first: mean(firstMass), distance: mean(distance) },
  };
}

/** The strongest head of each kind, and then the others, at most `count`. */
function strongest(heads: readonly MeasuredHead[], count: number): HeadPlace[] {
  const firsts = heads.filter(({ kind }, i) => kind !== "mixed" && heads[i - 1]?.kind !== kind);
  const others = heads.filter((head) => !firsts.includes(head));
  return [...firsts, ...others].slice(0, count).map(({ layer, head }) => ({ layer, head }));
}

/** The most probable tokens, with and without some heads; of both lists, sorted by the first. */
function compareNext(logits: Float32Array, ablated: Float32Array | undefined, count: number): ComparedToken[] {
  const most = [...nextTokens(logits, count), ...(ablated ? nextTokens(ablated, count) : [])];
  const ids = Array.from(new Set(most.map(({ id }) => id)));
  const others = ablated && nextTokens(ablated, ids);
  return nextTokens(logits, ids)
    .map(({ id, probability }, i): ComparedToken => ({ id, probability, without: others?.[i]?.probability }))
    .sort((a, b) => b.probability - a.probability || a.id - b.id);
}
