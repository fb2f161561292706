// Tokenizers, made by the optional library.

import {
  expectFields,
  expectFlag,
  expectFunction,
  expectInt,
  expectRecord,
  LARGEST_INT,
} from "../base/util/arguments.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
import { reasonOf } from "../base/util/strings.ts";
import { readIds } from "../models/decoder/session.ts";
import type { LibraryTokenizer, Tokenizers } from "./libraries.ts";

// U+FEFF in vocabularies with tokens of bytes. The library decodes each run of these by a TextDecoder, which takes U+FEFF at the
// start of one for a byte order mark and drops it; a space behind it is then at the start of a text, and dropped too.

const MARK = ["<0xEF>", "<0xBB>", "<0xBF>"];
const BYTE = /^<0x[\dA-F]{2}>$/i;

/** Returns what writes U+FEFF twice where the library drops it: of two, it drops the first. `special` are tokens that may be skipped. */
function createMarkKeeper(
  made: LibraryTokenizer,
  special: ReadonlySet<unknown>,
): (ids: readonly number[], keepSpecial: boolean) => number[] {
  const mark = MARK.map((token) => made.token_to_id(token) ?? -1);
  const how = { skip_special_tokens: false, clean_up_tokenization_spaces: false };
  if (mark.includes(-1) || made.decode([...mark], how) !== "") return (ids) => [...ids];
  return (ids, keepSpecial) => {
    let isInRun = false;
    return ids.flatMap((id, i) => {
      const token = made.id_to_token(id) ?? "";
      if (!keepSpecial && special.has(token)) return [id];
      const isLost = !isInRun && mark.every((each, byte) => ids[i + byte] === each);
      isInRun = BYTE.test(token);
      return isLost ? [...mark, id] : [id];
    });
  };
}

/**
 * What makes ids of text, and text of ids. `loadTokenizer` and `readGgufTokenizer` make one; an object around any other library
 * will do as well.
 */
export interface Tokenizer {
  /**
   * The ids of a text. Without `addSpecial: false`, with the tokens that the model expects around a text, such as one that
   * begins it. The text of a special token stands for that token, unless `parseSpecial` is false, or `plain`, places in the text
   * (UTF-16 units, ascending), has that of one of its characters. Then it is text like any other.
   */
  encode(
    text: string,
    options?: {
      readonly addSpecial?: boolean;
      readonly parseSpecial?: boolean;
      readonly plain?: readonly number[];
    },
  ): readonly number[];
  /**
   * The text of ids, without special tokens unless `keepSpecial` is true. Bytes that are no whole character become U+FFFD. What
   * more ids add comes behind it, except in place of U+FFFD at its end.
   */
  decode(ids: readonly number[], options?: { readonly keepSpecial?: boolean }): string;
  /** Tokens of the vocabulary, not counting those that were added to it. A model with fewer is refused. */
  readonly vocabSize?: number | undefined;
  /** Ids that end a generation. */
  readonly endIds?: readonly number[] | undefined;
  /** The Jinja template of conversations. */
  readonly chatTemplate?: string | undefined;
  /**
   * Texts that `encode` takes for special tokens. With them, `chat` passes `plain`, so that they are text where they occur in
   * messages; without, they stand for the tokens there too.
   */
  readonly specialTexts?: readonly string[] | undefined;
  /** Texts of special tokens by the names that chat templates have for them, such as `bos_token`. */
  readonly specialTokens?: Readonly<Record<string, string>> | undefined;
  /** The tokenizer of the library, by which pairs of texts are encoded and tokens are found in their text (`token-places.ts`). @internal */
  readonly made?: MadeTokenizer | undefined;
}

/** A tokenizer of the library, and the file that it was made from. */
export interface MadeTokenizer {
  readonly library: LibraryTokenizer;
  readonly json: object;
  /** Whether texts that are too long are cut at their beginning (`truncation_side`). */
  readonly keepsEnd: boolean;
}

/** Throws unless `tokenizer` has the two functions, and what else it has is of the right type. */
export function expectTokenizer(where: string, tokenizer: Tokenizer): void {
  expectRecord(where, "tokenizer", tokenizer);
  expectFunction(where, "tokenizer.encode", tokenizer.encode);
  expectFunction(where, "tokenizer.decode", tokenizer.decode);
  const { vocabSize, endIds, specialTexts } = tokenizer;
  if (vocabSize !== undefined) expectInt(where, "tokenizer.vocabSize", vocabSize, 0);
  if (endIds !== undefined) readIds(where, "tokenizer.endIds", endIds, LARGEST_INT + 1, Infinity);
  if (specialTexts !== undefined && !(Array.isArray(specialTexts) && specialTexts.every(isText))) {
    const rule = "a list of texts of 1 or more characters";
    throw new TypeError(`${where}: tokenizer.specialTexts expected ${rule}, got ${describe(specialTexts)}`);
  }
}

const isText = (text: unknown) => typeof text === "string" && text !== "";

/** What a tokenizer is made from, in the form of tokenizer.json and tokenizer_config.json. */
export interface TokenizerFiles {
  readonly json: object;
  readonly config: object;
  readonly vocabSize: number;
  /** Ids that end a generation, or their tokens. */
  readonly ends: readonly (number | string)[];
  readonly chatTemplate: string | undefined;
  readonly specialTokens: Readonly<Record<string, string>>;
}

/** What runs a function of the library on the file `what`: on some parts of it, the library fails only when it comes to them. */
function attemptOn(what: string): <T>(from: string, run: () => T, length?: number) => T {
  return (from, run, length) => {
    try {
      return run();
    } catch (cause) {
      if (length !== undefined && isOverflow(cause)) {
        const rule = "one that @huggingface/tokenizers encodes before the stack overflows";
        throw new RangeError(`${from}: text expected ${rule}, got ${length} characters`, { cause });
      }
      const text = `${from}: ${what} expected a tokenizer that @huggingface/tokenizers reads, got ${reasonOf(cause)}`;
      throw new HeadwiseError("BAD_FILE", text, { cause });
    }
  };
}

/** Makes a tokenizer by the library; `what` names the file in messages. */
export function makeTokenizer(
  where: string,
  what: string,
  library: Tokenizers,
  { json, config, vocabSize, ends, chatTemplate, specialTokens }: TokenizerFiles,
): Tokenizer {
  const attempt = attemptOn(what);
  const made = attempt(where, () => new library.Tokenizer(json, config));
  divideLongTexts(made, json);
  keepWholeWords(made);
  const endIds = ends
    .map((end) => (typeof end === "string" ? made.token_to_id(end) : end))
    .filter((id) => id !== undefined);
  const specials = specialsOf(json, config, endIds, Object.values(specialTokens));
  const keepMarks = attempt(where, () => createMarkKeeper(made, new Set(specials.skipped)));
  return Object.freeze<Tokenizer>({
    encode(text, options = {}) {
      if (typeof text !== "string") throw new TypeError(`encode: text expected a string, got ${describe(text)}`);
      expectFields("encode", "options", options, ["addSpecial", "parseSpecial", "plain"]);
      const { addSpecial = true, parseSpecial = true, plain } = options;
      const add_special_tokens = expectFlag("encode", "options.addSpecial", addSpecial);
      const isPlain = !expectFlag("encode", "options.parseSpecial", parseSpecial);
      if (plain !== undefined) expectPlaces(plain, text);
      const run = (marked: string) =>
        attempt("encode", () => made.encode(marked, { add_special_tokens }).ids, text.length);
      const isWhole = !isPlain && plain === undefined;
      const ids = isWhole ? run(text) : encodePlain(made, specials, text, isPlain || (plain ?? []), run);
      if (ids.every((id) => typeof id === "number")) return ids;
      throw new RangeError(
        `encode: text expected characters that the vocabulary has tokens for, got ${describe(text)}`,
      );
    },
    decode(ids, options = {}) {
      expectFields("decode", "options", options, ["keepSpecial"]);
      const keepSpecial = expectFlag("decode", "options.keepSpecial", options.keepSpecial);
      const unknown = ids.find((id) => made.id_to_token(id) === undefined);
      if (unknown !== undefined)
        throw new RangeError(
          `decode: ids expected ids of the vocabulary (${vocabSize} tokens), got ${describe(unknown)}`,
        );
      // The library refuses to decode nothing. Cleaned up, the space before a mark would vanish when the mark comes.
      if (ids.length === 0) return "";
      const how = { skip_special_tokens: !keepSpecial, clean_up_tokenization_spaces: false };
      return attempt("decode", () => made.decode(keepMarks(ids, keepSpecial), how));
    },
    vocabSize,
    endIds: [...new Set(endIds)],
    ...(chatTemplate === undefined ? {} : { chatTemplate }),
    specialTexts: specials.texts,
    specialTokens,
    made: { library: made, json, keepsEnd: Object(config).truncation_side === "left" },
  });
}

/** Throws unless these are places in a text, ascending. */
function expectPlaces(plain: readonly number[], text: string): void {
  const isPlace = (at: unknown, i: number) =>
    Number.isInteger(at) && (at as number) > (plain[i - 1] ?? -1) && (at as number) < text.length;
  if (Array.isArray(plain) && plain.every(isPlace)) return;
  const rule = `ascending places of the text, below ${text.length}`;
  const wrong = Array.isArray(plain) ? plain.find((at, i) => !isPlace(at, i)) : plain;
  throw new (Array.isArray(plain) ? RangeError : TypeError)(
    `encode: options.plain expected ${rule}, got ${describe(wrong)}`,
  );
}

/** Whether the stack overflowed, which engines say in different ways. */
const isOverflow = (cause: unknown) => /stack|recursion|too many (function )?arguments/i.test(reasonOf(cause));

// Special tokens within given texts, which stay text, and texts that are too long for the library at once.

// Where a rendered text has characters that came with the messages, and not from the template.

/** A text, and the places (UTF-16 units, ascending) of those of its characters that are no part of a special token. */
export interface MarkedText {
  readonly text: string;
  readonly plain: readonly number[];
}

/** What marks given values before they are rendered, and finds the marks in the text. */
interface Marks {
  mark(value: unknown): unknown;
  /** The character that a mark stands for; others stand for themselves. */
  original(character: string): string;
  restore(rendered: string): MarkedText;
}

/**
 * Marks for values that a template renders. Special tokens begin and end with few characters, such as "<" and ">". Wherever these
 * occur in a string that was given, a private character stands for them while the template runs, which may trim the string, divide
 * it or write it as JSON. So a special token that has a given character at its beginning or end can be told from one that the
 * template wrote, also if it comes from two strings that the template joins.
 *
 * What the template itself looks for in strings (`literals`, such as "</think>") stays as it is, unless it could be a part of a
 * special token.
 */
export function createMarks(
  where: string,
  specials: readonly string[],
  literals: readonly string[],
  given: unknown,
): Marks {
  const keys = new Set(specials.flatMap(keysOf));
  // Special tokens of letters alone are marked where they stand as a whole.
  const words = specials.filter((special) => keysOf(special).length === 0);
  const hasKey = (text: string) => Array.from(text).some((character) => keys.has(character));
  const strings = textsOf(given);
  const looked = literals.filter(
    (text) =>
      hasKey(text) &&
      strings.some((each) => each.includes(text)) &&
      !specials.some((special) => overlap(text, special)),
  );
  const firsts = words.map((word) => Array.from(word)[0] as string);
  const all = [...new Set([...keys, ...firsts])];
  const free = findFree(where, [...strings, ...literals].join(""), all.length);
  const marks = new Map(all.map((character, i) => [character, free[i] as string]));
  const originals = new Map(all.map((character, i) => [free[i] as string, character]));
  const markText = (text: string): string => {
    const isLeft = new Set<number>();
    for (const literal of looked)
      for (const at of placesOf(text, literal)) for (let i = 0; i < literal.length; i++) isLeft.add(at + i);
    const isWord = new Set(words.flatMap((word) => placesOf(text, word)));
    let [marked, at] = ["", 0];
    for (const character of text) {
      const isMarked = (keys.has(character) && !isLeft.has(at)) || isWord.has(at);
      marked += isMarked ? marks.get(character) : character;
      at += character.length;
    }
    return marked;
  };
  const isConcerned = (text: string) => hasKey(text) || words.some((word) => text.includes(word));
  const mark = (value: unknown): unknown => {
    if (typeof value === "string") return isConcerned(value) ? markText(value) : value;
    if (Array.isArray(value)) return value.map(mark);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [mark(key), mark(each)]));
  };
  const original = (character: string) => originals.get(character) ?? character;
  return { mark, original, restore: (rendered) => restoreMarks(rendered, originals) };
}

/** A rendered text with its marks as the characters that they stand for, and where these are. */
function restoreMarks(rendered: string, originals: ReadonlyMap<string, string>): MarkedText {
  // JSON in ASCII has a mark as the number of its character.
  const escaped = (character: string) => `\\\\u${character.charCodeAt(0).toString(16)}`;
  const pattern = new RegExp([...originals.keys()].flatMap((each) => [each, escaped(each)]).join("|") || "(?!)", "g");
  const plain: number[] = [];
  let [text, end] = ["", 0];
  for (const { 0: found, index } of rendered.matchAll(pattern)) {
    text += rendered.slice(end, index);
    plain.push(text.length);
    const character = found.length === 1 ? found : String.fromCharCode(Number.parseInt(found.slice(2), 16));
    text += originals.get(character);
    end = index + found.length;
  }
  return { text: text + rendered.slice(end), plain };
}

/** The first and last character of a special token unless it is a letter, digit or space; if both are, those within that are none. */
function keysOf(special: string): string[] {
  const isKey = (character: string) => !/[\p{L}\p{M}\p{N}\s_]/u.test(character);
  const characters = Array.from(special);
  const ends = [characters[0], characters.at(-1)].filter((each) => each !== undefined).filter(isKey);
  return ends.length > 0 ? ends : characters.filter(isKey);
}

/** Whether two texts can have characters in common where both stand in one. */
function overlap(a: string, b: string): boolean {
  if (a.includes(b) || b.includes(a)) return true;
  for (let n = 1; n < Math.min(a.length, b.length); n++)
    if (a.endsWith(b.slice(0, n)) || a.startsWith(b.slice(-n))) return true;
  return false;
}

/** Where a text has another, also where these overlap. */
function placesOf(text: string, part: string): number[] {
  const places: number[] = [];
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + 1)) places.push(at);
  return places;
}

/** All strings of a value. */
function textsOf(value: unknown): string[] {
  if (typeof value === "string") return [value];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, each]) => [key, ...textsOf(each)]);
}

/** Characters for private use that `text` has neither as they are nor as an escape of JSON, such as "\ue000": `count` of them. */
function findFree(where: string, text: string, count: number): [string, ...string[]] {
  // Templates may change the case of an escape, or join its parts: what is behind the backslash counts.
  const escaped = text.match(/u(e[\da-f]{3}|f[0-8][\da-f]{2})/gi) ?? [];
  const used = new Set([
    ...(text.match(/[\uE000-\uF8FF]/g) ?? []),
    ...escaped.map((found) => String.fromCharCode(Number.parseInt(found.slice(1), 16))),
  ]);
  const free: string[] = [];
  for (let code = 0xe000; code <= 0xf8ff && free.length < count; code++)
    if (!used.has(String.fromCharCode(code))) free.push(String.fromCharCode(code));
  if (free.length === count) return free as [string, ...string[]];
  const rule = `at most ${6400 - count} of the 6400 characters for private use, as they are or as escapes`;
  throw new RangeError(`${where}: text expected ${rule}, got ${used.size}`);
}

// Encoding by the library where it needs help: texts of special tokens that are to stay text, and texts that are very long.

/** How SentencePiece writes a space. */
const SPACE = "\u2581";
/** Characters of a piece beyond which the library's unigrams overflow its stack, with room: it passes tokens as arguments. */
const LONGEST_PIECE = 2 ** 14;

interface Added {
  readonly id?: unknown;
  readonly content?: unknown;
  readonly special?: unknown;
  readonly normalized?: unknown;
}

/** What tokenizer.json says of added tokens and of the model, as far as it is looked at. */
interface Json {
  readonly added_tokens?: readonly Added[];
  readonly model?: { readonly type?: unknown; readonly vocab?: unknown };
}

/** The texts of special tokens. */
interface Specials {
  readonly texts: readonly string[];
  /** Those that are looked for in normalized text. */
  readonly normalized: readonly string[];
  /** Those that tokenizer.json calls special, which the library leaves out of text. */
  readonly skipped: readonly string[];
}

/**
 * The special tokens: those that the files call special, those that look like it, such as "<|im_start|>", which some files do not call
 * so, and those that end a generation or have a name such as `eos_token` (`named`).
 */
function specialsOf(json: object, config: object, endIds: readonly unknown[], named: readonly string[]): Specials {
  const { added_tokens: added } = json as Json;
  const { added_tokens_decoder: decoder } = config as { readonly added_tokens_decoder?: unknown };
  const isCalled = (token: unknown): token is Added => Object(token).special === true;
  const called = Object.values(Object(decoder)).filter(isCalled);
  const known = new Set([...named, ...called.map(({ content }) => content), ...endIds]);
  const tokens = (Array.isArray(added) ? (added as readonly Added[]) : []).filter(
    ({ content }) => typeof content === "string",
  );
  const isSpecial = ({ id, content, special }: Added) =>
    special === true || known.has(content) || known.has(id) || /^<[|\uFF5C].*[|\uFF5C]>$/s.test(content as string);
  const specials = tokens.filter((token) => isSpecial(token) && (token.content as string).length > 1);
  const textsOf = (some: readonly Added[]) => [...new Set(some.map(({ content }) => content as string))];
  const isNormalized = ({ normalized, special }: Added) => normalized ?? !special;
  return {
    texts: textsOf(specials),
    normalized: textsOf(specials.filter(isNormalized)),
    skipped: textsOf(tokens.filter(({ special }) => special)),
  };
}

/**
 * Has the library's unigrams take long texts in pieces that begin with a space. The ids are those of the whole if no token has a space
 * behind another character. Without a space to divide it at, a long text fails.
 */
function divideLongTexts(made: LibraryTokenizer, json: object): void {
  const { vocab } = (json as Json).model ?? {};
  if (!Array.isArray(vocab)) return;
  const inner = new RegExp(`[^${SPACE}]${SPACE}`, "u");
  if (vocab.some((entry) => inner.test(String(Object(entry)[0])))) return;
  const divide = (piece: string): string[] => {
    const pieces: string[] = [];
    let begin = 0;
    while (piece.length - begin > LONGEST_PIECE) {
      let end = piece.lastIndexOf(SPACE, begin + LONGEST_PIECE);
      while (end > begin && piece[end - 1] === SPACE) end--;
      if (end <= begin) break;
      pieces.push(piece.slice(begin, end));
      begin = end;
    }
    return [...pieces, piece.slice(begin)];
  };
  const { pre_tokenizer: before } = made;
  made.pre_tokenizer = (text, options) => (before ? before(text, options) : [text]).flatMap(divide);
}

/** Leaves added tokens that stand for whole words alone within other words, as the library does not. */
function keepWholeWords(made: LibraryTokenizer): void {
  const added = made.added_tokens_map;
  if (![...added.values()].some(({ single_word }) => single_word)) return;
  for (const splitter of [made.splitter_unnormalized, made.splitter_normalized]) {
    const divide = splitter.split.bind(splitter);
    splitter.split = (text) => {
      const parts: string[] = [];
      let [at, isOpen] = [0, false];
      for (const part of divide(text)) {
        const end = at + part.length;
        const isWithin = () =>
          WORD_END.test(text.slice(Math.max(0, at - 2), at)) || WORD_START.test(text.slice(end, end + 2));
        const token = added.get(part);
        const isText = token === undefined || (token.single_word && isWithin());
        parts.push(isText && isOpen ? `${parts.pop()}${part}` : part);
        [at, isOpen] = [end, isText];
      }
      return parts;
    };
  }
}

/** A letter, digit or mark beside a token. */
const [WORD_END, WORD_START] = [/[\p{L}\p{M}\p{N}_]$/u, /^[\p{L}\p{M}\p{N}_]/u];

/**
 * Encodes a text in which special tokens are text where they have one of the characters at `plain`, or everywhere, and where they come
 * about only when the text is normalized.
 */
function encodePlain(
  made: LibraryTokenizer,
  { texts, normalized }: Specials,
  text: string,
  plain: readonly number[] | true,
  run: (text: string) => readonly number[],
): readonly number[] {
  const breaks = breaksOf(texts, text, plain);
  if (breaks.length === 0 && !made.normalizer) return run(text);
  const [mark] = findFree("encode", text, 1);
  let marked = "";
  for (const [i, at] of breaks.entries()) marked += text.slice(breaks[i - 1] ?? 0, at) + mark;
  marked += text.slice(breaks.at(-1) ?? 0);
  const { normalizer, pre_tokenizer: before, model } = made;
  const restore = (piece: string) => piece.replaceAll(mark, "");
  const all = new Set(texts);
  // Unigrams have special tokens in their vocabulary, where they are found again.
  const dissolve = (token: string): string[] => {
    const [first = "", ...rest] = Array.from(token);
    if (!all.has(token) || token === model.unk_token || rest.length === 0) return [token];
    return [first, rest.join("")].flatMap((part) => model([part]).flatMap(dissolve));
  };
  const normalize = normalizer ?? ((given: string) => given);
  const normal = normalized.map((special) => [special, normalize(special)] as const);
  const breakAgain = (given: string): string =>
    normal.reduce((result, [special, now]) => {
      if (now.length < 2 || count(result, now) <= count(given, special)) return result;
      return result.replaceAll(now, now.slice(0, 1) + mark + now.slice(1));
    }, normalize(given));
  try {
    if (normalizer) made.normalizer = breakAgain;
    made.pre_tokenizer = (piece, options) => (before ? before(restore(piece), options) : [restore(piece)]);
    const encode = (pieces: string[]) => model(pieces).flatMap(dissolve);
    made.model = Object.setPrototypeOf(encode, model);
    return run(marked);
  } finally {
    Object.assign(made, { normalizer, pre_tokenizer: before, model });
  }
}

/** Texts by their characters, one after the other. */
interface Tree {
  readonly next: Map<string, Tree>;
  isEnd: boolean;
}

/** Places in a text that divide each special token that is to stay text. */
function breaksOf(specials: readonly string[], text: string, plain: readonly number[] | true): number[] {
  const root: Tree = { next: new Map(), isEnd: false };
  for (const special of specials) {
    let tree = root;
    for (const unit of special.split("")) {
      const next = tree.next.get(unit) ?? { next: new Map(), isEnd: false };
      tree.next.set(unit, next);
      tree = next;
    }
    tree.isEnd = true;
  }
  const breaks = new Set<number>();
  let next = 0;
  for (let at = 0; at < text.length; at++) {
    if (plain !== true) while (next < plain.length && (plain[next] as number) < at) next++;
    const place = plain === true ? at : (plain[next] ?? text.length);
    let tree: Tree | undefined = root;
    for (let end = at; tree !== undefined; end++) {
      if (tree.isEnd && place < end) breaks.add(Math.max(place, at + 1));
      tree = tree.next.get(text[end] ?? "");
    }
  }
  return [...breaks].sort((a, b) => a - b);
}

const count = (text: string, part: string) => text.split(part).length - 1;
