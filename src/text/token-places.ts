// Where the tokens of a text lie in it, and what special tokens stand around one text or two: what the library does not tell.

import { describe } from "../base/util/errors.ts";
import type { MadeTokenizer, Tokenizer } from "./tokenizer.ts";

/** A place around texts: a special token, or the tokens of the first or second text. */
export interface FramePart {
  /** The id of a special token; undefined where a text is. */
  readonly id: number | undefined;
  /** Which text is here. */
  readonly text: 0 | 1 | undefined;
  /** The type of its tokens. */
  readonly type: number;
}

/** Texts that no vocabulary has, in place of tokens. */
const PLACES = ["\0first", "\0second"] as const;

/** What stands around one text, or around two. */
export function frameOf({ library }: MadeTokenizer, texts: 1 | 2): FramePart[] {
  const [first, second] = PLACES;
  const run = library.post_processor;
  const { tokens, token_type_ids: types } = run?.([first], texts === 2 ? [second] : null, true) ?? { tokens: [first] };
  const parts = tokens.map((token, i): FramePart => {
    const text = PLACES.indexOf(token as typeof first);
    return {
      id: text < 0 ? library.token_to_id(token) : undefined,
      text: text < 0 ? undefined : (text as 0 | 1),
      type: types?.[i] ?? 0,
    };
  });
  // Some of the library's processors leave the second text out.
  const isWhole = texts === 1 || parts.some(({ text }) => text === 1);
  return isWhole ? parts : [...parts, { id: undefined, text: 1, type: 0 }];
}

// The first tokens of a text, of which the rest is not encoded.

/** Characters for each token that is wanted, beyond which a text is encoded in part. */
const PART = 16;
/** Characters in which a place to divide a text is looked for. */
const SEARCHED = 2 ** 12;
/** What divides texts between two letters. */
const MARKS = [" ", "\n", "\u3002", "\u3001"] as const;
const MARKS_OF = new WeakMap<MadeTokenizer, readonly string[]>();

/**
 * The ids of a text without special tokens around it: all, or at least the first `most`, with the part of the text that has them. The
 * ids are those of the whole text. It is divided between a letter and a mark before another letter, where no token of the
 * vocabulary has both: what is before does not depend on what is behind. Without such a place, and where texts are cut at their
 * beginning, all of a text is encoded.
 */
export function firstTokens(
  { encode, made }: Tokenizer,
  text: string,
  most: number,
): { readonly ids: readonly number[]; readonly text: string } {
  const idsOf = (part: string) => ({ ids: encode(part, { addSpecial: false }), text: part });
  if (made === undefined || made.keepsEnd) return idsOf(text);
  for (let length = PART * Math.max(most, PART); length < text.length; length *= 4) {
    const marks = MARKS_OF.get(made) ?? MARKS.filter((mark) => divides(made, mark));
    MARKS_OF.set(made, marks);
    const at = placeOf(text, marks, length);
    const part = at > 0 ? idsOf(text.slice(0, at)) : undefined;
    if (part && part.ids.length >= most) return part;
  }
  return idsOf(text);
}

/** The last place up to `end` of a mark between two letters; 0 where there is none near. */
function placeOf(text: string, marks: readonly string[], end: number): number {
  const isLetter = (at: number) => /\p{L}/u.test(text[at] ?? "");
  let at = end;
  while (at > 0 && at > end - SEARCHED && !(marks.includes(text[at] as string) && isLetter(at - 1) && isLetter(at + 1)))
    at--;
  return at > end - SEARCHED ? Math.max(0, at) : 0;
}

/** Whether no token of the vocabulary has the mark behind a letter, and no added one beside a letter. */
function divides({ library, json }: MadeTokenizer, mark: string): boolean {
  const { normalizer, pre_tokenizer, added_tokens_map: added } = library;
  const between = normalizer ? normalizer(`a${mark}a`) : `a${mark}a`;
  const normal = between.slice(between.indexOf("a") + 1, between.lastIndexOf("a"));
  const beside = new RegExp(`\\p{L}${mark}|${mark}\\p{L}`, "u");
  if (normal === "" || [...added.keys()].some((content) => beside.test(content))) return false;
  const { type, vocab, end_of_word_suffix: suffix } = (json as { model: Json }).model;
  // Others take a piece as a whole, and so does what marks its end.
  const isByParts = (type === "BPE" && !suffix) || type === "Unigram";
  if (!isByParts && (pre_tokenizer?.(between, { section_index: 0 }) ?? []).length < 2) return false;
  const { bytes } = kindOf(json);
  const characters = new Map(Array.from(BYTES, ([character, byte]) => [byte, character]));
  const asBytes = (text: string) => Array.from(encoder.encode(text), (byte) => characters.get(byte)).join("");
  const forms = new Set([mark, normal, normal.replaceAll(" ", SPACE)].map((form) => (bytes ? asBytes(form) : form)));
  const tokens: unknown[] = Array.isArray(vocab) ? vocab.map((entry) => Object(entry)[0]) : Object.keys(Object(vocab));
  // The bytes before it may be a part of a letter.
  const endsInLetter = (before: string) =>
    /[\p{L}\p{M}\uFFFD]$/u.test(bytes ? new TextDecoder().decode(bytesIn(before)) : before);
  return !tokens.some((token) =>
    [...forms].some((form) => {
      for (let at = String(token).indexOf(form, 1); at > 0; at = String(token).indexOf(form, at + 1))
        if (endsInLetter(String(token).slice(0, at))) return true;
      return false;
    }),
  );
}

/** A token of a text, and the characters (UTF-16 units) that it stands for. */
export interface PlacedToken {
  readonly token: string;
  readonly begin: number;
  readonly end: number;
}

/** A text whose characters came from others: `begins` and `ends` are the places of each of its UTF-16 units in the source. */
interface Traced {
  readonly text: string;
  readonly begins: readonly number[];
  readonly ends: readonly number[];
}

/** Where the tokens of a text lie that have these ids: the first of its tokens, or the last if those are kept, or all. Throws if they are others. */
export function placeIds(where: string, made: MadeTokenizer, text: string, ids: readonly number[]): PlacedToken[] {
  const { library } = made;
  const unknown = library.token_to_id(unknownOf(made) ?? "");
  const all = placeTokens(made, text);
  const placed = made.keepsEnd ? all.slice(Math.max(0, all.length - ids.length)) : all;
  const wrong = ids.findIndex((id, i) => (library.token_to_id(placed[i]?.token ?? "") ?? unknown) !== id);
  if (wrong < 0) return placed;
  const got = `${describe(placed[wrong]?.token)} in place of id ${ids[wrong]}`;
  throw new RangeError(`${where}: text expected tokens that can be found in it again, got ${got}`);
}

/** The tokens of a text in order, without special ones around it, and where they lie. */
function placeTokens({ library, json }: MadeTokenizer, text: string): PlacedToken[] {
  const { splitter_unnormalized, splitter_normalized, added_tokens_map: added } = library;
  const kind = kindOf(json);
  const placed: PlacedToken[] = [];
  for (const [index, { part: section, at: offset }] of dividedBy(splitter_unnormalized, added, text).entries()) {
    if (added.has(section)) {
      placed.push({ token: section, begin: offset, end: offset + section.length });
      continue;
    }
    const whole = trace(section, library.normalizer);
    for (const { part, at } of dividedBy(splitter_normalized, added, whole.text)) {
      const placesOf = (places: readonly number[]) => places.slice(at, at + part.length).map((place) => place + offset);
      const traced = { text: part, begins: placesOf(whole.begins), ends: placesOf(whole.ends) };
      const known = added.get(part);
      const [begin = offset, end = offset] = [traced.begins[0], traced.ends.at(-1)];
      if (known) placed.push({ token: known.content, begin, end });
      else placed.push(...placePart(library, kind, traced, index));
    }
  }
  const { trims } = kind;
  return trims ? placed.map((token, i) => trimmed(token, trims.prefixed && (i === 0 || token.begin === 0))) : placed;
}

/** The parts of a text at added tokens, and where they begin; of a text between these, without the spaces that they take. */
function dividedBy(
  splitter: MadeTokenizer["library"]["splitter_normalized"],
  added: MadeTokenizer["library"]["added_tokens_map"],
  text: string,
): { readonly part: string; readonly at: number }[] {
  const parts = splitter.split(text);
  let next = 0;
  return parts.map((part, i) => {
    const begin = next;
    next += part.length;
    if (added.has(part)) return { part, at: begin };
    const left = added.get(parts[i - 1] ?? "")?.rstrip ? part.trimStart() : part;
    const own = added.get(parts[i + 1] ?? "")?.lstrip ? left.trimEnd() : left;
    return { part: own, at: begin + part.length - left.length };
  });
}

/** How tokens are written. */
interface Kind {
  /** Bytes as characters, as in byte-level BPE. */
  readonly bytes: boolean;
  /** What begins tokens that continue a word. */
  readonly prefix: string;
  /** The token that stands for what has none. */
  readonly unknown: string | undefined;
  /** Where places leave spaces at the ends of tokens out: whether a text was given a space that is none of its own. */
  readonly trims: { readonly prefixed: boolean } | undefined;
}

type Json = Readonly<Record<string, unknown>>;

/** All records of a step and the steps within it. */
const stepsOf = (step: unknown): Json[] => {
  if (typeof step !== "object" || step === null) return [];
  const { pretokenizers = [], processors = [] } = step as { pretokenizers?: unknown[]; processors?: unknown[] };
  return [step as Json, ...[...pretokenizers, ...processors].flatMap(stepsOf)];
};

function kindOf(json: object): Kind {
  const { model, pre_tokenizer, post_processor } = json as {
    model: Json;
    pre_tokenizer: unknown;
    post_processor: unknown;
  };
  const { continuing_subword_prefix: prefix, unk_token, unk_id, vocab } = model;
  const listed = Array.isArray(vocab) && typeof unk_id === "number" ? vocab[unk_id]?.[0] : undefined;
  const trimming = stepsOf(post_processor).find(
    ({ type, trim_offsets }) => /^(ByteLevel|RobertaProcessing)$/.test(String(type)) && trim_offsets !== false,
  );
  return {
    bytes: stepsOf(pre_tokenizer).some(({ type }) => type === "ByteLevel"),
    prefix: typeof prefix === "string" ? prefix : "",
    unknown: typeof unk_token === "string" ? unk_token : (listed as string | undefined),
    trims: trimming && { prefixed: trimming.add_prefix_space !== false },
  };
}

/** What begins tokens that continue a word; "" in vocabularies without. */
export const continuationOf = ({ json }: MadeTokenizer): string => kindOf(json).prefix;

/** The text that tokens write, or words that were written before. */
export function writeTokens({ library, json }: MadeTokenizer, tokens: readonly string[]): string {
  if (!kindOf(json).bytes) return library.decoder?.(withWholeBytes(tokens)) ?? tokens.join(" ");
  return new TextDecoder().decode(Uint8Array.from(tokens.flatMap((token) => Array.from(bytesIn(token)))));
}

/** Tokens of bytes that make no text together stand for U+FFFD, each of them. */
function withWholeBytes(tokens: readonly string[]): string[] {
  let end = 0;
  return tokens.flatMap((token, begin) => {
    if (begin < end) return [];
    end = begin + 1;
    if (!BYTE.test(token)) return [token];
    while (BYTE.test(tokens[end] ?? "")) end++;
    const run = tokens.slice(begin, end);
    const text = new TextDecoder().decode(Uint8Array.from(run, (byte) => Number.parseInt(byte.slice(3, 5), 16)));
    return text.includes("\uFFFD") ? run.map(() => "\uFFFD") : run;
  });
}

/** The bytes that a token writes; those of its text where it is no token of bytes. */
function bytesIn(token: string): Uint8Array {
  const own = Array.from(token, (character) => BYTES.get(character));
  return own.includes(undefined) ? encoder.encode(token) : Uint8Array.from(own as number[]);
}

/** The token that stands for what has none. */
export const unknownOf = ({ json }: MadeTokenizer): string | undefined => kindOf(json).unknown;

/** The place of a token without the spaces at its ends; a single one at the beginning of a text may be none of its own. */
function trimmed({ token, begin, end }: PlacedToken, isFirst: boolean): PlacedToken {
  const [before, behind] = [/^\u0120*/, /\u0120*$/].map((spaces) => spaces.exec(token)?.[0].length ?? 0) as [
    number,
    number,
  ];
  const first = Math.min(end, begin + (isFirst && before === 1 ? 0 : before));
  return { token, begin: first, end: Math.max(first, end - behind) };
}

/**
 * Normalises a text and keeps where its characters came from. Each letter with its marks is normalised alone, between two letters that
 * stay as they are, and found again in the whole: what normalisers remove or add only there does not matter.
 */
function trace(text: string, normalizer: ((text: string) => string) | null): Traced {
  const units = text.match(/[\u1100-\u11FF]+|\P{M}\p{M}*|\p{M}+/gu) ?? [];
  const whole = normalizer ? normalizer(text) : text;
  const alone = (unit: string) => {
    if (!normalizer || unit === "a") return unit;
    const between = normalizer(`a${unit}a`);
    return between.slice(between.indexOf("a") + 1, between.lastIndexOf("a"));
  };
  const joined: { unit: string; begin: number; end: number }[] = [];
  let at = 0;
  for (const unit of units) {
    const [own, made] = [Array.from(unit), Array.from(alone(unit))];
    // A letter with its marks becomes as many characters, or the letter is where they come from.
    const isDivided = own.length > 1 && /^\P{M}\p{M}+$/u.test(unit);
    let begin = at;
    for (const [i, character] of made.entries()) {
      const length = own[i]?.length ?? 0;
      joined.push({ unit: character, begin, end: isDivided && length > 0 ? begin + length : at + unit.length });
      if (isDivided && i + 1 < own.length) begin += length;
    }
    at += unit.length;
  }
  const [begins, ends]: [number[], number[]] = [[], []];
  let next = 0;
  const characters = Array.from(whole);
  const isSameLength = characters.length === joined.length;
  for (const [i, character] of characters.entries()) {
    let found = next;
    if (!isSameLength && joined[next]?.unit !== character) {
      // What is added stands before what comes next; what is removed is a few characters at most.
      const isAdded = joined[next]?.unit === characters[i + 1];
      const end = Math.min(joined.length, next + MOST_REMOVED);
      while (found < end && joined[found]?.unit !== character) found++;
      if (isAdded || found === end) found = joined.length;
    }
    // Of characters that become one, the last is where it is.
    while (!isSameLength && joined[found + 1]?.unit === character && characters[i + 1] !== character) found++;
    const isFound = found < joined.length;
    // What the normaliser added stands before what follows; at the beginning it is where that is.
    const { begin, end } = (isFound ? joined[found] : undefined) ?? {
      begin: joined[next]?.begin ?? text.length,
      end: (i === 0 ? joined[next]?.end : joined[next]?.begin) ?? text.length,
    };
    if (isFound) next = found + 1;
    for (let unit = 0; unit < character.length; unit++) {
      begins.push(begin);
      ends.push(end);
    }
  }
  return { text: whole, begins, ends };
}

/** Characters that a normaliser removes beside each other. */
const MOST_REMOVED = 64;

/** The bytes that byte-level vocabularies write as other characters, by these. */
const BYTES: ReadonlyMap<string, number> = /* @__PURE__ */ (() => {
  const isShown = (byte: number) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173);
  let next = 256;
  return new Map(
    Array.from({ length: 256 }, (_, byte) => [String.fromCodePoint(isShown(byte) ? byte : next++), byte] as const),
  );
})();

const SPACE = "\u2581";
/** A token that stands for a byte of a character without one. */
const BYTE = /^<0x[\dA-F]{2}>$/i;
const encoder = /* @__PURE__ */ new TextEncoder();

/** The tokens of a part without added ones. */
function placePart(
  { pre_tokenizer, model }: MadeTokenizer["library"],
  kind: Kind,
  part: Traced,
  section_index: number,
): PlacedToken[] {
  const pieces = pre_tokenizer ? pre_tokenizer(part.text, { section_index }) : [part.text];
  const units = kind.bytes ? bytesOf(part) : { ...part, text: part.text.replaceAll(SPACE, " ") };
  const placed: PlacedToken[] = [];
  let at = 0;
  /** Bytes of the character at `at` that have no token yet. */
  let left = 0;
  const push = (token: string, from: number, to: number) => {
    const begin = units.begins[from] ?? units.ends.at(-1) ?? 0;
    placed.push({ token, begin, end: to > from ? (units.ends[to - 1] as number) : begin });
    at = to;
  };
  for (const piece of pieces) {
    const tokens = model([piece]);
    const written = tokens.map((token, i) => writtenOf(token, i, kind));
    // Where the piece ends: unknown tokens take what is left of it.
    const own = kind.bytes ? written.join("") : piece.replaceAll(SPACE, " ");
    const start = Math.max(at, units.text.indexOf(own.trimStart(), at));
    const end = Math.max(start, Math.min(units.text.length, start + own.trimStart().length));
    for (const [i, token] of tokens.entries()) {
      const text = written[i] as string;
      if (token === kind.unknown) {
        const from = skipSpaces(units.text, at);
        const following = written.slice(i + 1).find((each, j) => tokens[i + 1 + j] !== kind.unknown && each !== "");
        const found = following === undefined ? -1 : units.text.indexOf(following, from + 1);
        push(token, from, found < 0 || found > end ? Math.max(from, end) : found);
        continue;
      }
      if (!kind.bytes && BYTE.test(token)) {
        const character = String.fromCodePoint(units.text.codePointAt(at) ?? 0);
        left = (left || encoder.encode(character).length) - 1;
        push(token, at, at + character.length);
        if (left > 0) at -= character.length;
        continue;
      }
      const exact = units.text.startsWith(text, at) ? at : -1;
      if (exact >= 0) push(token, exact, exact + text.length);
      else {
        // The tokenizer puts a space before the first word, and leaves others out between words.
        const inner = text.trimStart();
        if (inner === "" && at < units.text.length) {
          placed.push({ token, begin: units.begins[at] as number, end: units.ends[at] as number });
          continue;
        }
        const found = inner === "" ? at : units.text.indexOf(inner, at);
        const from = found < 0 ? at : found;
        push(token, from, Math.min(units.text.length, from + inner.length));
      }
    }
  }
  return placed;
}

/** What a token stands for in the normalised text; bytes as characters of their codes. */
function writtenOf(token: string, index: number, { bytes, prefix }: Kind): string {
  if (bytes) return Array.from(token, (character) => String.fromCharCode(BYTES.get(character) ?? 0)).join("");
  if (BYTE.test(token)) return "";
  const own = index > 0 && prefix !== "" && token.startsWith(prefix) ? token.slice(prefix.length) : token;
  return own.replaceAll(SPACE, " ");
}

const skipSpaces = (text: string, at: number): number => {
  let next = at;
  while (/\s/.test(text[next] ?? "")) next++;
  return next;
};

/** A text as the bytes of UTF-8, each a character, which lie where their character does. */
function bytesOf({ text, begins, ends }: Traced): Traced {
  const all: { readonly byte: number; readonly unit: number }[] = [];
  let unit = 0;
  for (const character of text) {
    for (const byte of encoder.encode(character)) all.push({ byte, unit });
    unit += character.length;
  }
  return {
    text: all.map(({ byte }) => String.fromCharCode(byte)).join(""),
    begins: all.map(({ unit }) => begins[unit] as number),
    ends: all.map(({ unit }) => ends[unit] as number),
  };
}
