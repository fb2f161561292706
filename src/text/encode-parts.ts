// Encoding by the library where it needs help: texts of special tokens that are to stay text, and texts that are very long.

import { findFree } from "./given-text.ts";
import type { LibraryTokenizer } from "./libraries.ts";

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
export interface Specials {
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
export function specialsOf(
  json: object,
  config: object,
  endIds: readonly unknown[],
  named: readonly string[],
): Specials {
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
export function divideLongTexts(made: LibraryTokenizer, json: object): void {
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

/**
 * Encodes a text in which special tokens are text where they have one of the characters at `plain`, or everywhere, and where they come
 * about only when the text is normalized.
 */
export function encodePlain(
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
