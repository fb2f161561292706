// What detectors look for, and the texts in which they do.

import { readIds, type TokenIds } from "../decoder/forward.ts";
import type { Model } from "../decoder/model.ts";
import { expectTensor, type Tensor } from "../tensor/tensor.ts";
import { expectInt, expectRecord, readFields, readList } from "../util/arguments.ts";
import { type HeadKind, type Look, lookOf, MOST_TOKENS } from "./detectors.ts";

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
  current: Object.freeze({ offset: 0 }),
  first: "first",
  duplicate: "duplicate",
  induction: "induction",
  local: Object.freeze({ window: 4 }),
  uniform: "uniform",
});

/** The kind of labelled texts. */
export const REFERENCE = "reference";

/** Names that kinds of one's own cannot have, because heads have them for other reasons. */
const RESERVED: readonly string[] = [REFERENCE, "offset", "name mover", "mixed"];

/** A text that was checked. */
export interface CheckedText {
  readonly ids: readonly number[];
  readonly pairs: readonly ReferencePair[];
}

/** Checks the kinds of a call. Their values are checked with each text. */
export function readKinds(
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
export function readTexts(
  where: string,
  texts: readonly (TokenIds | LabelledText)[],
  { vocabSize }: Model,
): CheckedText[] {
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
export function looksIn(
  where: string,
  { ids, pairs }: CheckedText,
  kinds: readonly [name: string, detector: HeadDetector][],
): Look[] {
  const n = ids.length;
  const looks = kinds.map(([name, detector]): Look => {
    if (typeof detector !== "function") return lookOf(where, `options.kinds.${name}`, detector, ids);
    const { data, shape } = expectTensor(where, `options.kinds.${name}(…)`, detector([...ids]), [2]);
    if (shape[0] !== n || shape[1] !== n)
      throw new RangeError(`${where}: options.kinds.${name}(…) expected shape [${n}, ${n}], got [${shape.join(", ")}]`);
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
