import { describe, HeadwiseError } from "../../util/errors.ts";

/**
 * Takes a tensor as the header states it, before its numbers are compared with each other and with the data. Returns whether
 * it is the first of that name.
 */
type TakeTensor = (name: string, dtype: string, shape: readonly number[], begin: number, end: number) => boolean;

/** The largest integer of the format: 48 bits, all of which a number represents exactly. */
export const LARGEST_INTEGER: number = 2 ** 48 - 1;
const [SPACE, QUOTE, ZERO] = [0x20, 0x22, 0x30];

const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};

const isSpace = (code: number): boolean => code === SPACE || code === 0x09 || code === 0x0a || code === 0x0d;
const isDigit = (code: number): boolean => code >= ZERO && code <= 0x39;
/** Whether a character needs no escape in a string: no control character below space, no quote, no backslash. */
const isPlain = (code: number): boolean => code >= SPACE && code !== QUOTE && code !== 0x5c;

/**
 * Scans a header's text, hands each tensor to `takeTensor` and returns the metadata. A header has one form and a depth of
 * three, and this scanner accepts that form only. It stops at the first character of duplicate keys, unknown fields,
 * fractions, lone surrogates and deep nesting, which JSON.parse accepts, or overflows the stack on. A header may state a
 * million tensors, so the scan makes little for each: its name, and its shape if it is not that of the tensor before.
 */
export function scanHeader(where: string, text: string, takeTensor: TakeTensor): ReadonlyMap<string, string> {
  let at = 0;
  /** The tensor being read, for messages, and its fields. */
  let tensor: string | undefined;
  let dtype: string | undefined;
  let shape: readonly number[] | undefined;
  let offsets: number | undefined;
  let begin = 0;
  let end = 0;
  let metadata: Map<string, string> | undefined;
  /** The integers that were read last, and possibly more. */
  const integers: number[] = [];
  let lastShape: readonly number[] = [];

  const fail = (rule: string, from: number = at): never => {
    const inside = tensor === undefined ? "" : ` of tensor ${describe(tensor)}`;
    const got = from < text.length ? describe(text.slice(from, from + 24)) : "the end of the header";
    throw new HeadwiseError("BAD_FILE", `${where}: header${inside} expected ${rule} at character ${from}, got ${got}`);
  };
  // Loops, because a regular expression may overflow the stack.
  const passSpace = (): void => {
    while (isSpace(text.charCodeAt(at))) at++;
  };
  const passPlain = (): void => {
    while (isPlain(text.charCodeAt(at))) at++;
  };
  const next = (char: string): boolean => {
    passSpace();
    if (text[at] !== char) return false;
    at++;
    return true;
  };
  const take = (char: string, rule: string): void => {
    if (!next(char)) fail(rule);
  };

  const readString = (rule: string): string => {
    take('"', rule);
    const begin = at;
    passPlain();
    // Only an escape can produce a lone surrogate: the bytes are valid UTF-8.
    return text.charCodeAt(at) === QUOTE ? text.slice(begin, at++) : readEscaped(begin);
  };
  /** The string that begins at `begin`, from its first escape on. */
  const readEscaped = (begin: number): string => {
    let value = text.slice(begin, at);
    while (text.charCodeAt(at) !== QUOTE) {
      const [, letter, hex] = /^\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))/.exec(text.slice(at, at + 6)) ?? [];
      if (letter !== undefined) value += ESCAPES[letter];
      else if (hex !== undefined) value += String.fromCharCode(Number.parseInt(hex, 16));
      else fail("a string of valid characters and escapes");
      at += letter !== undefined ? 2 : 6;
      const from = at;
      passPlain();
      value += text.slice(from, at);
    }
    at++;
    if (/\p{Cs}/u.test(value)) fail("no lone surrogate in a string", begin);
    return value;
  };

  const readMembers = (isSeen: (key: string) => boolean, read: (key: string, from: number) => void): void => {
    take("{", "an object");
    if (next("}")) return;
    do {
      passSpace();
      const from = at;
      const key = readString("a quoted key");
      if (isSeen(key)) fail("no duplicate key", from);
      take(":", '":"');
      read(key, from);
    } while (next(","));
    take("}", '"," or "}"');
  };

  /** Reads into `integers`, and returns how many there are. */
  const readIntegers = (rule: string): number => {
    let count = 0;
    take("[", rule);
    if (next("]")) return count;
    do {
      passSpace();
      const from = at;
      let value = 0;
      for (let code = text.charCodeAt(at); isDigit(code); code = text.charCodeAt(++at))
        value = 10 * value + code - ZERO;
      if (at === from || (text.charCodeAt(from) === ZERO && at > from + 1)) fail(rule, from);
      if (value > LARGEST_INTEGER) fail(`integers <= ${LARGEST_INTEGER}`, from);
      integers[count++] = value;
    } while (next(","));
    take("]", rule);
    return count;
  };
  const readShape = (): readonly number[] => {
    const rank = readIntegers("shape as an array of integers >= 0");
    let axis = 0;
    while (axis < rank && integers[axis] === lastShape[axis]) axis++;
    if (axis < rank || rank !== lastShape.length) lastShape = integers.slice(0, rank);
    return lastShape;
  };

  const hasField = (field: string): boolean =>
    (field === "dtype" && dtype !== undefined) ||
    (field === "shape" && shape !== undefined) ||
    (field === "data_offsets" && offsets !== undefined);
  const readField = (field: string, from: number): void => {
    if (field === "dtype") dtype = readString("dtype as a string");
    else if (field === "shape") shape = readShape();
    else if (field === "data_offsets") {
      offsets = readIntegers("data_offsets as two integers >= 0");
      begin = integers[0] as number;
      end = integers[1] as number;
    } else fail("dtype, shape and data_offsets only", from);
  };
  const readTensor = (name: string, from: number): void => {
    const start = at;
    tensor = name;
    dtype = undefined;
    shape = undefined;
    offsets = undefined;
    readMembers(hasField, readField);
    if (dtype === undefined || shape === undefined || offsets === undefined)
      throw fail("dtype, shape and data_offsets", start);
    if (offsets !== 2) fail("data_offsets as [begin, end]", start);
    tensor = undefined;
    if (!takeTensor(name, dtype, shape, begin, end)) fail("no duplicate key", from);
  };
  const readMetadata = (): void => {
    const texts = new Map<string, string>();
    metadata = texts;
    const read = (key: string) => void texts.set(key, readString("__metadata__ values as strings"));
    readMembers((key) => texts.has(key), read);
  };

  if (text[0] !== "{") fail('"{"');
  readMembers(
    (name) => name === "__metadata__" && metadata !== undefined,
    (name, from) => (name === "__metadata__" ? readMetadata() : readTensor(name, from)),
  );
  while (text.charCodeAt(at) === SPACE) at++;
  if (at < text.length) fail("only spaces after the closing brace");
  return metadata ?? new Map();
}
