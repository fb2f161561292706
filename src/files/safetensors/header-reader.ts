import { BITS, isDtype, type PlainDtype, shapeText } from "../../tensor/dtypes.ts";
import { describe, HeadwiseError, showBytes } from "../../util/errors.ts";

/** A tensor as the header states it; `begin` and `end` are byte offsets in the data. */
interface HeaderEntry {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
}

/** The content of the header, before its numbers are compared with each other and with the data. */
interface Header {
  readonly metadata: ReadonlyMap<string, string>;
  readonly entries: ReadonlyMap<string, HeaderEntry>;
}

/** The limit of the format, in bytes: a longer header is an attack rather than a model. */
export const LARGEST_HEADER = 100_000_000;
const LARGEST_U64 = 2n ** 64n - 1n;
/** The largest integer of the format: 48 bits, all of which a number represents exactly. */
const LARGEST = 2 ** 48 - 1;

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

const isSpace = (code: number): boolean => code === 0x20 || code === 0x09 || code === 0x0a || code === 0x0d;
const isDigit = (code: number): boolean => code >= 0x30 && code <= 0x39;
/** Whether a character needs no escape in a string: no control character below space, no quote, no backslash. */
const isPlain = (code: number): boolean => code >= 0x20 && code !== 0x22 && code !== 0x5c;

/**
 * Reads a header's text. A header has one form and a depth of three, and this scanner accepts that form only. It stops
 * at the first character of duplicate keys, unknown fields, fractions, lone surrogates and deep nesting, which
 * JSON.parse accepts, or overflows the stack on.
 */
function readHeader(text: string, where: string): Header {
  let at = 0;
  /** The tensor being read, for messages. */
  let tensor: string | undefined;

  const fail = (rule: string, from: number = at): never => {
    const inside = tensor === undefined ? "" : ` of tensor ${describe(tensor)}`;
    const got = from < text.length ? describe(text.slice(from, from + 24)) : "the end of the header";
    throw new HeadwiseError("BAD_FILE", `${where}: header${inside} expected ${rule} at character ${from}, got ${got}`);
  };
  /** Skips the characters for which `is` returns true. A loop, because a regular expression may overflow the stack. */
  const pass = (is: (code: number) => boolean): void => {
    while (is(text.charCodeAt(at))) at++;
  };
  const next = (char: string): boolean => {
    pass(isSpace);
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
    let value = "";
    for (;;) {
      const from = at;
      pass(isPlain);
      value += text.slice(from, at);
      if (text[at] === '"') break;
      const [, letter, hex] = /^\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))/.exec(text.slice(at, at + 6)) ?? [];
      if (letter !== undefined) value += ESCAPES[letter];
      else if (hex !== undefined) value += String.fromCharCode(Number.parseInt(hex, 16));
      else fail("a string of valid characters and escapes");
      at += letter !== undefined ? 2 : 6;
    }
    at++;
    // Only an escape can produce a lone surrogate: the bytes are valid UTF-8.
    if (/\p{Cs}/u.test(value)) fail("no lone surrogate in a string", begin);
    return value;
  };

  const readMembers = (read: (key: string, from: number) => void): void => {
    take("{", "an object");
    if (next("}")) return;
    const seen = new Set<string>();
    do {
      pass(isSpace);
      const from = at;
      const key = readString("a quoted key");
      if (seen.has(key)) fail("no duplicate key", from);
      seen.add(key);
      take(":", '":"');
      read(key, from);
    } while (next(","));
    take("}", '"," or "}"');
  };

  const readIntegers = (rule: string): number[] => {
    const values: number[] = [];
    take("[", rule);
    if (next("]")) return values;
    do {
      pass(isSpace);
      const from = at;
      pass(isDigit);
      const value = Number(text.slice(from, at));
      if (at === from || (text[from] === "0" && at > from + 1)) fail(rule, from);
      if (value > LARGEST) fail(`integers <= ${LARGEST}`, from);
      values.push(value);
    } while (next(","));
    take("]", rule);
    return values;
  };

  const readEntry = (): HeaderEntry => {
    const start = at;
    let dtype: string | undefined;
    let shape: number[] | undefined;
    let offsets: number[] | undefined;
    readMembers((field, from) => {
      if (field === "dtype") dtype = readString("dtype as a string");
      else if (field === "shape") shape = readIntegers("shape as an array of integers >= 0");
      else if (field === "data_offsets") offsets = readIntegers("data_offsets as two integers >= 0");
      else fail("dtype, shape and data_offsets only", from);
    });
    if (dtype === undefined || shape === undefined || offsets === undefined)
      return fail("dtype, shape and data_offsets", start);
    const [begin, end, more] = offsets as number[];
    if (begin === undefined || end === undefined || more !== undefined)
      return fail("data_offsets as [begin, end]", start);
    return { dtype, shape, begin, end };
  };

  const metadata = new Map<string, string>();
  const entries = new Map<string, HeaderEntry>();
  if (text[0] !== "{") fail('"{"');
  readMembers((name) => {
    if (name === "__metadata__")
      readMembers((key) => void metadata.set(key, readString("__metadata__ values as strings")));
    else {
      tensor = name;
      entries.set(name, readEntry());
      tensor = undefined;
    }
  });
  pass((code) => code === 0x20);
  if (at < text.length) fail("only spaces after the closing brace");
  return { metadata, entries };
}

/** The length of the header, stated in the first 8 bytes of a file of `size` bytes. */
export function headerLength(where: string, bytes: Uint8Array, size: number): number {
  if (bytes.length < 8) throw refusal(where, "bytes expected an 8-byte header length", `${bytes.length} bytes`);
  const length = new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true);
  if (length > LARGEST_HEADER) {
    const start = bytes.subarray(0, 8);
    // For files of another format, their first bytes show which.
    const kind = String.fromCharCode(...start.subarray(0, 4)) === "GGUF" ? ", a GGUF file: openGguf reads those" : "";
    const got = `${length} (the file begins with ${showBytes(start)}${kind})`;
    throw refusal(where, `header length expected <= ${LARGEST_HEADER} bytes`, got);
  }
  if (length > size - 8) throw refusal(where, `header length expected <= ${size - 8}, the bytes after it`, `${length}`);
  return Number(length);
}

/** An entry with a known dtype, whose range has the size of its shape and lies in the data. */
type CheckedEntry = HeaderEntry & { readonly dtype: PlainDtype };

/** Reads a header and checks it against itself and against the length of the data. */
export function checkHeader(
  where: string,
  bytes: Uint8Array,
  dataLength: number,
): { metadata: ReadonlyMap<string, string>; entries: ReadonlyMap<string, CheckedEntry> } {
  let text = "";
  try {
    // A copy, since a TextDecoder may refuse shared memory.
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.slice());
  } catch (cause) {
    throw new HeadwiseError("BAD_FILE", `${where}: header expected valid UTF-8, got other bytes`, { cause });
  }
  const { metadata, entries } = readHeader(text, where);
  const checked = new Map<string, CheckedEntry>();
  for (const [name, entry] of entries) {
    const { dtype, shape, begin, end } = entry;
    const refuse = (rule: string, got: string) => refusal(where, `tensor ${describe(name)} ${rule}`, got);
    if (!isDtype(dtype)) throw refuse(`dtype expected ${Object.keys(BITS).join(", ")}`, describe(dtype));
    const bits = bitsOf(shape, BITS[dtype]);
    if (bits === undefined) throw refuse("expected a size below 2^64 bits", `${dtype} ${shapeText(shape)}`);
    if (bits % 8n !== 0n) throw refuse("expected to end on a whole byte", `${dtype} ${shapeText(shape)}`);
    if (end > dataLength) throw refuse(`data_offsets expected to end within ${dataLength} bytes`, `[${begin}, ${end}]`);
    if (BigInt(end - begin) !== bits / 8n)
      throw refuse(`expected ${bits / 8n} bytes for ${dtype} ${shapeText(shape)}`, `data_offsets [${begin}, ${end}]`);
    checked.set(name, { dtype, shape, begin, end });
  }

  // In order of their offsets, ranges must follow each other without overlap or hole, and cover the data.
  let covered = 0;
  for (const [name, { begin, end }] of [...entries].sort(([, a], [, b]) => a.begin - b.begin || a.end - b.end)) {
    const rule = `tensor ${describe(name)} data_offsets expected to begin at ${covered}`;
    if (begin !== covered) throw refusal(where, rule, `[${begin}, ${end}]`);
    covered = end;
  }
  if (covered !== dataLength)
    throw refusal(where, `data expected ${covered} bytes, as the tensors cover`, `${dataLength}`);
  return { metadata, entries: checked };
}

function refusal(where: string, rule: string, got: string): HeadwiseError {
  return new HeadwiseError("BAD_FILE", `${where}: ${rule}, got ${got}`);
}

/** Bits of a tensor; undefined if a partial product exceeds 64 bits, even if a later dimension is 0. */
function bitsOf(shape: readonly number[], elementBits: number): bigint | undefined {
  let bits = 1n;
  for (const length of [...shape, elementBits]) {
    bits *= BigInt(length);
    if (bits > LARGEST_U64) return undefined;
  }
  return bits;
}
