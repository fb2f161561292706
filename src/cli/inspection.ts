// What `headwise inspect` asks of a model, and prints of it: tables, and heat maps of heads. Every result is that of a recorded
// inspection, so that others can repeat it.

import type { CacheFormat, Tensor } from "../entries/core.ts";
import {
  type AttentionStatistics,
  type Colour,
  type Component,
  type DetectedHead,
  type Edit,
  encodeRecord,
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
  rampColour,
  rankHeads,
  type ScoreExplanation,
  sitesOf,
} from "../entries/inspect.ts";
import type { Model } from "../entries/models.ts";
import { UsageError } from "./args.ts";
import { type Colours, columnsText, fitText, plainText, sizeText, widthOf } from "./terminal.ts";

/** Tokens of the longest text: no model has a longer one. */
export const MOST_TOKENS = 16_384;
/** How many tokens a score must rest on to make a kind. */
const LEAST_TOKENS = 8;

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
interface MeasuredHead extends RankedHead {
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
interface Inspection {
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
interface ScarceKind {
  readonly name: string;
  readonly tokens: number;
}

/** The kinds that no head can have, because too few tokens of the text have anywhere to look. */
function scarceKinds([head]: readonly DetectedHead[]): ScarceKind[] {
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

// Heat maps of heads as lines of text: two queries a line in colours, one in characters.

/** How maps are shown. */
interface MapView {
  /** What stands before the row of each token. */
  readonly labels: readonly string[];
  /** Of a line. */
  readonly columns: number;
  readonly colours: Colours;
}

/** Characters for weights of 0, 0.1, … 0.9 and more, from light to dark. */
const RAMP = " .:-=+*#%@";
const RESET = "\x1b[0m";
/** Upper and lower half of a cell in the colour of text. */
const [UPPER, LOWER] = ["▀", "▄"];
/** Columns of a label, and of the space behind it. */
const [LONGEST_LABEL, GAP] = [12, 1];

/** How wide the labels of rows are. Where two queries share a line, each has one. */
function sizesOf({ labels, columns, colours }: MapView) {
  const count = colours === "none" ? 1 : 2;
  const most = Math.min(LONGEST_LABEL, Math.floor(columns / (3 * count)));
  const width = Math.min(most, Math.max(...labels.map(widthOf)));
  return { count, width, all: count * (width + GAP) };
}

/** How many keys fit into a line. */
export function keysThatFit(view: MapView): number {
  return view.columns - sizesOf(view).all;
}

/**
 * The map of a head with weights [tokens, tokens], from the token `begin` on: a row for each query, a column for each key. Keys
 * behind a query, which it does not see, are empty.
 */
export function mapLines(weights: Float32Array, tokens: number, begin: number, view: MapView): string[] {
  const { labels, colours } = view;
  const { count, width, all } = sizesOf(view);
  const weight = (query: number, key: number) => {
    return query < tokens && key <= query ? (weights[query * tokens + key] as number) : undefined;
  };
  const shown = Array.from({ length: tokens - begin }, (_, i) => begin + i);
  const lines = shown
    .filter((_, i) => i % count === 0)
    .map((query) => {
      const label = (token: number) => fitText(token < tokens ? (labels[token] as string) : "", width);
      const names = Array.from({ length: count }, (_, i) => label(query + i) + " ".repeat(GAP));
      const cells = shown.map((key) => cellText(weight(query, key), weight(query + 1, key), colours));
      return (names.join("") + cells.join("")).trimEnd();
    });
  return [...keyNumbers(begin, tokens).map((line) => " ".repeat(all) + line), ...lines];
}

/** The numbers of keys: a line with each tenth, if there is any, and one with the last digits. */
function keyNumbers(begin: number, end: number): string[] {
  let tens = "";
  let units = "";
  for (let key = begin; key < end; key++) {
    if (key % 10 === 0 && key > 0) tens = tens.padEnd(units.length) + String(key);
    units += String(key % 10);
  }
  return tens === "" ? [units] : [tens, units];
}

/** A key of one query, or with colours of this and of the next one; undefined is what a query does not see. */
function cellText(upper: number | undefined, lower: number | undefined, colours: Colours): string {
  if (colours === "none") return upper === undefined ? " " : characterOf(upper);
  if (upper !== undefined && lower !== undefined)
    return `${paintCode(38, upper, colours)}${paintCode(48, lower, colours)}${UPPER}${RESET}`;
  if (upper !== undefined) return `${paintCode(38, upper, colours)}${UPPER}${RESET}`;
  return lower === undefined ? " " : `${paintCode(38, lower, colours)}${LOWER}${RESET}`;
}

const characterOf = (weight: number): string =>
  RAMP[Math.min(RAMP.length - 1, Math.floor(weight * RAMP.length))] ?? " ";

/** The scale of a map, from 0 to 1. */
export function scaleText(colours: Colours): string {
  if (colours === "none") return `weights from 0 to 1: "${RAMP}", a tenth each`;
  const steps = Array.from({ length: 20 }, (_, i) => `${paintCode(48, i / 19, colours)} `);
  return `weights from 0 ${steps.join("")}${RESET} to 1`;
}

/** The escape sequence of a weight's colour: `layer` is 38 for text, 48 for what is behind it. */
function paintCode(layer: 38 | 48, weight: number, colours: Exclude<Colours, "none">): string {
  const rgb = rampColour(weight);
  return colours === "truecolor" ? `\x1b[${layer};2;${rgb.join(";")}m` : `\x1b[${layer};5;${colourIndex(rgb)}m`;
}

/** Levels of a channel in the cube of 216 colours, those from 16 on, that terminals of 256 have alike. */
const LEVELS = [0, 95, 135, 175, 215, 255];

/** The nearest colour of the cube. */
export function colourIndex(rgb: Colour): number {
  const [red = 0, green = 0, blue = 0] = rgb.map((value) => {
    const away = LEVELS.map((level) => Math.abs(level - value));
    return away.indexOf(Math.min(...away));
  });
  return 16 + 36 * red + 6 * green + blue;
}

// What `headwise inspect` prints.

/** What was found, and in which text. */
interface TextInspection extends Inspection {
  /** Undefined where tokens were given. */
  readonly text: string | undefined;
  readonly ids: readonly number[];
  readonly wordOf: (id: number) => string;
  readonly loadMs: number;
  /** The address of the same view on the site; undefined where tokens were given. */
  readonly page: string | undefined;
}

/** Parts of a score that are listed, the others being one together; and heads that a column names. */
const [PARTS, NAMED] = [8, 4];

/** A token as one sees it: a space before a word, tabs, line ends and an empty token have signs. */
function visible(word: string): string {
  const shown = word.replace(/^ /, "·").replaceAll("\t", "⇥");
  return plainText(shown.replace(/\r\n?|\n/g, "⏎")) || "∅";
}

/** Tokens with their positions. */
export function labelsOf(words: readonly string[]): string[] {
  const digits = String(words.length - 1).length;
  return words.map((word, i) => `${String(i).padStart(digits)} ${visible(word)}`);
}

/** All that was asked for, as text. */
export function inspectionText(found: TextInspection, view: MapView, link: boolean): string {
  const { heads, why, next } = found;
  return [
    modelText(found),
    wrapped(
      view.labels.map((label) => label.trimStart()),
      view.columns,
    ),
    headsText(heads),
    ...(found.maps.length > 0 ? [mapsText(found, view)] : []),
    ...(why ? [whyText(found)] : []),
    ...(next.length > 0 ? [nextText(found)] : []),
    ...(link ? [linksText(found)] : []),
  ].join("\n\n");
}

function modelText({ model, mixers, heads, records, ids, loadMs }: TextInspection): string {
  const { type, layers, bytes, kernels } = model;
  return [
    `model   ${plainText(type)}, ${layers} layers, ${sizeText(bytes)}, loaded in ${loadMs.toFixed(0)} ms`,
    ...headlessText(mixers, heads),
    `digest  ${records[0]?.model.slice(0, 16)}, weights ${records[0]?.formats}`,
    `build   ${kernels.build}: ${kernels.reason}`,
    `text    ${ids.length} ${ids.length === 1 ? "token" : "tokens"}`,
  ].join("\n");
}

/** The layers that have no heads, by what mixes their tokens. */
function headlessText(mixers: readonly string[], heads: readonly MeasuredHead[]): string[] {
  const others = [...mixers.keys()].filter((layer) => !heads.some((head) => head.layer === layer));
  const names = [...new Set(others.map((layer) => mixers[layer] as string))];
  return names.map(
    (name) => `        without heads: ${others.filter((layer) => mixers[layer] === name).join(", ")}: ${name}`,
  );
}

/** Words in lines of so many columns. */
function wrapped(words: readonly string[], columns: number): string {
  const lines: string[] = [];
  let [line, width] = ["", 0];
  for (const word of words) {
    const own = widthOf(word);
    if (line !== "" && width + 2 + own > columns) {
      lines.push(line);
      [line, width] = ["", 0];
    }
    [line, width] = line === "" ? [word, own] : [`${line}  ${word}`, width + 2 + own];
  }
  return [...lines, line].join("\n");
}

const placeText = ({ layer, head }: { readonly layer: number; readonly head: number }) => `${layer}.${head}`;

/** What a head does: its kind, or "mixed" with the pattern that is nearest. */
function kindText({ kind, nearest, offset }: MeasuredHead): string {
  const name = nearest === "offset" ? `offset ${offset.by}` : nearest;
  return kind === "mixed" ? `mixed, nearest ${name}` : name;
}

/** A row for each head, and what the text is too short for. */
function headsText(heads: readonly MeasuredHead[]): string {
  const measured = heads[0]?.statistics ? ["log-sum-exp", "entropy", "largest", "first", "distance"] : [];
  const rows = heads.map((each) => {
    const { score, statistics } = each;
    const means = statistics ? Object.values(statistics) : [];
    const numbers = [score.score, score.baseline].map((value) => value.toFixed(2));
    return [placeText(each), kindText(each), ...numbers, `${score.tokens}`, ...means.map((mean) => mean.toFixed(2))];
  });
  const table = columnsText([["head", "kind", "score", "baseline", "tokens", ...measured], ...rows], 2);
  const remark = shortText(scarceKinds(heads));
  return remark === "" ? table : `${table}\n\n${remark}`;
}

/** What the text is too short for. */
function shortText(scarce: readonly ScarceKind[]): string {
  if (scarce.length === 0) return "";
  const isAll = scarce.length === Object.keys(HEAD_KINDS).length;
  const names = scarce.map(({ name, tokens }) => `${name} (${tokens})`).join(" or ");
  const what = isAll ? "what heads do" : `which heads are ${names}`;
  return `The text is too short to say ${what}: a kind needs ${LEAST_TOKENS} tokens that have anywhere to look.`;
}

function mapsText({ maps, heads, ids, work: { from } }: TextInspection, view: MapView): string {
  const drawn = maps.map(({ weights, tokens, ...place }) => {
    const head = heads.find((each) => each.layer === place.layer && each.head === place.head) as MeasuredHead;
    return [`head ${placeText(place)}: ${kindText(head)}`, ...mapLines(weights, tokens, from, view)].join("\n");
  });
  const end = maps[0]?.tokens ?? 0;
  const rest = `Maps have the tokens ${from} to ${end - 1} of ${ids.length}, as many as ${view.columns} columns have room for.`;
  const all = end - from === ids.length ? [] : [end < ids.length ? `${rest} --from ${end} shows the next ones.` : rest];
  return [...drawn, [scaleText(view.colours), ...all].join("\n")].join("\n\n");
}

/** A component by the words of the library: "head 0.3", "mlp 1", "bias 0 attnOut". */
function componentText({ kind, layer, head, at }: Component): string {
  const place = head === undefined ? layer : placeText({ layer: layer as number, head });
  return [kind, place, at].filter((part) => part !== undefined).join(" ");
}

/** A number with two digits behind the point; what rounds to 0 has no sign. */
const decimal = (value: number): string => value.toFixed(2).replace(/^-(?=[0.]+$)/, "");

/** A score by what wrote to both tokens. */
function whyText({ why, work, ids, wordOf }: TextInspection): string {
  if (!why || !work.why) return "";
  const { score, softcap, alibi, components, byQuery, byKey } = why;
  const { query, key } = work.why;
  const word = (token: number) => `${token} ${JSON.stringify(visible(wordOf(ids[token] as number)))}`;
  const extras = Object.entries({ softcap, alibi }).filter(([, part]) => part !== 0);
  const list = (title: string, names: readonly Component[], parts: Float64Array) =>
    columnsText([[title, "part"], ...largestParts(names, parts)], 1);
  const place = `head ${work.layer}.${work.head}`;
  return [
    `${place} at ${word(query)} gives ${word(key)} the score ${decimal(score)}, before the softmax. It is a sum, split in two ways:`,
    list("what wrote to the key", components.key, byKey),
    list("what wrote to the query", components.query, byQuery),
    ...extras.map(([name, part]) => `${name} adds ${decimal(part)} to either sum`),
  ].join("\n\n");
}

/** The largest parts, and the sum of the others. */
function largestParts(components: readonly Component[], parts: Float64Array): string[][] {
  const order = [...components.keys()].sort((a, b) => Math.abs(parts[b]!) - Math.abs(parts[a]!));
  const kept = order.length > PARTS + 1 ? order.slice(0, PARTS) : order;
  const others = order.slice(kept.length);
  const rest = others.reduce((sum, i) => sum + parts[i]!, 0);
  return [
    ...kept.map((i) => [componentText(components[i] as Component), decimal(parts[i]!)]),
    ...(others.length > 0 ? [[`${others.length} others`, decimal(rest)]] : []),
  ];
}

function nextText({ next, wordOf, text, work: { without } }: TextInspection): string {
  const names = without.length > NAMED ? `${without.length} heads` : without.map(placeText).join(", ");
  const percent = (share: number) => `${(100 * share).toFixed(2)} %`;
  const left = without.length > 0 ? [`without ${names}`] : [];
  const head = [...(text === undefined ? [] : ["next"]), "id", "probability", ...left];
  const rows = next.map(({ id, probability, without: other }) => [
    ...(text === undefined ? [] : [visible(wordOf(id))]),
    ...[String(id), percent(probability)],
    ...(other === undefined ? [] : [percent(other)]),
  ]);
  return columnsText([head, ...rows], text === undefined ? 0 : 1);
}

/** A function, and what it was asked besides the text. */
function titleOf({ inspect, request }: InspectionRecord): string {
  const asked = ["patterns", "statistics", "edits"].filter((name) => (request as Record<string, unknown>)[name]);
  return [inspect, ...asked].join(" ");
}

/** The same on the site, what repeats each result, and how to use both. */
function linksText({ page, records }: TextInspection): string {
  const links = records.map((record) => `${titleOf(record)}  ${encodeRecord(record)}`);
  return [
    ...(page === undefined ? [] : [`page  ${page}`]),
    ...links,
    "",
    ...(page === undefined
      ? []
      : ["The page is in the folder of the site, which npm run site makes in headwise's repository."]),
    "headwise inspect MODEL --replay LINK repeats a result.",
  ].join("\n");
}

/** All that was asked for, as JSON. */
export function inspectionJson(found: TextInspection): string {
  const { model, mixers, heads, maps, why, next, records, text, ids, wordOf, loadMs, page } = found;
  const { type, layers, bytes, kernels } = model;
  const rows = (weights: Float32Array, tokens: number) =>
    Array.from({ length: tokens }, (_, i) => Array.from(weights.subarray(i * tokens, i * tokens + i + 1)));
  const facts = { type, layers, mixers, bytes, loadMs, build: kernels.build, digest: records[0]?.model };
  return JSON.stringify(
    {
      ...facts,
      ...{ text, ids, words: ids.map(wordOf), heads: heads.map(({ score: _, ...head }) => head) },
      ...(maps.length > 0 && {
        maps: maps.map(({ layer, head, weights, tokens }) => ({ layer, head, weights: rows(weights, tokens) })),
      }),
      ...(why && { why: { ...why, parts: [...why.parts], byQuery: [...why.byQuery], byKey: [...why.byKey] } }),
      ...(next.length > 0 && { next: next.map((each) => ({ ...each, word: wordOf(each.id) })) }),
      page,
      records: records.map((record) => ({ ...record, link: encodeRecord(record) })),
    },
    null,
    2,
  );
}
