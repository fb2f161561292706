// What `headwise inspect` prints.

import { HEAD_KINDS } from "../inspect/detection-texts.ts";
import type { Component } from "../inspect/parts.ts";
import { encodeRecord } from "../inspect/permalink.ts";
import type { InspectionRecord } from "../inspect/records.ts";
import { visible } from "../inspect/visible.ts";
import { plainText } from "../util/errors.ts";
import { type MapView, mapLines, scaleText } from "./heat-map.ts";
import { type Inspection, LEAST_TOKENS, type RankedHead, type ScarceKind, scarceKinds } from "./inspect-model.ts";
import { columnsText, sizeText, widthOf } from "./text.ts";

/** What was found, and in which text. */
export interface TextInspection extends Inspection {
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

function modelText({ model, records, ids, loadMs }: TextInspection): string {
  const { type, layers, bytes, kernels } = model;
  return [
    `model   ${plainText(type)}, ${layers} layers, ${sizeText(bytes)}, loaded in ${loadMs.toFixed(0)} ms`,
    `digest  ${records[0]?.model.slice(0, 16)}, weights ${records[0]?.formats}`,
    `build   ${kernels.build}: ${kernels.reason}`,
    `text    ${ids.length} ${ids.length === 1 ? "token" : "tokens"}`,
  ].join("\n");
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
function kindText({ kind, nearest, offset }: RankedHead): string {
  const name = nearest === "offset" ? `offset ${offset.by}` : nearest;
  return kind === "mixed" ? `mixed, nearest ${name}` : name;
}

/** A row for each head, and what the text is too short for. */
function headsText(heads: readonly RankedHead[]): string {
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
    const head = heads.find((each) => each.layer === place.layer && each.head === place.head) as RankedHead;
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
  const { model, heads, maps, why, next, records, text, ids, wordOf, loadMs, page } = found;
  const { type, layers, bytes, kernels } = model;
  const rows = (weights: Float32Array, tokens: number) =>
    Array.from({ length: tokens }, (_, i) => Array.from(weights.subarray(i * tokens, i * tokens + i + 1)));
  const facts = { type, layers, bytes, loadMs, build: kernels.build, digest: records[0]?.model };
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
