// The header of safetensors: scanned, checked and written.

import { BITS, type PlainDtype, shapeText } from "../../base/tensor/dtypes.ts";
import { describe, HeadwiseError, showBytes, tagOf } from "../../base/util/errors.ts";
import { otherKind } from "../tensor-file.ts";

/** The limit of the format, in bytes: a longer header is an attack rather than a model. */
const LARGEST_HEADER = 100_000_000;
const LARGEST_U64 = 2n ** 64n - 1n;

/** The names of all dtypes, each as one string, however many tensors of a header state it. */
const DTYPES: ReadonlyMap<string, PlainDtype> = new Map(
  (Object.keys(BITS) as PlainDtype[]).map((dtype) => [dtype, dtype]),
);

/** The length of the header, stated in the first 8 bytes of a file of `size` bytes; undefined if it cannot be that long. */
export function headerLength(head: Uint8Array, size: number): number | undefined {
  if (head.length < 8) return undefined;
  const length = new DataView(head.buffer, head.byteOffset, 8).getBigUint64(0, true);
  return length <= LARGEST_HEADER && length <= size - 8 ? Number(length) : undefined;
}

/**
 * Throws if the first KIND_BYTES of a file show that it is of another format, or state a length that no header can have.
 * For a file whose header does not begin with a brace; `argument` is the name of what was given.
 */
export function checkStart(where: string, argument: string, head: Uint8Array, size: number): void {
  const other = otherKind(where, argument, "a safetensors file", head);
  if (other !== undefined) throw other;
  if (head.length < 8) throw refusal(where, `${argument} expected an 8-byte header length`, `${head.length} bytes`);
  const length = new DataView(head.buffer, head.byteOffset, 8).getBigUint64(0, true);
  const got = `${length} (the file begins with ${showBytes(head.subarray(0, 8))})`;
  if (length > LARGEST_HEADER) throw refusal(where, `header length expected <= ${LARGEST_HEADER} bytes`, got);
  if (length > size - 8) throw refusal(where, `header length expected <= ${size - 8}, the bytes after it`, `${length}`);
}

/** Whether a header begins as it must. */
export function hasBrace(header: Uint8Array): boolean {
  return header[0] === 0x7b;
}

/** Makes the record of a tensor with bytes [begin, end) of the data. */
export type CreateEntry<Entry> = (
  name: string,
  dtype: PlainDtype,
  shape: readonly number[],
  begin: number,
  end: number,
) => Entry;

/**
 * Reads a header and checks it against itself and against the length of the data. A header may state a million tensors:
 * nothing is made for each but its record and the two ends of its range. `note` is why the data may be too short.
 */
export function readHeader<Entry>(
  where: string,
  bytes: Uint8Array,
  dataLength: number,
  create: CreateEntry<Entry>,
  note: string,
): { metadata: ReadonlyMap<string, string>; tensors: Map<string, Entry> } {
  const tensors = new Map<string, Entry>();
  const begins: number[] = [];
  const ends: number[] = [];
  const metadata = scanHeader(where, decode(where, bytes), (name, word, shape, begin, end) => {
    const dtype = DTYPES.get(word);
    if (dtype === undefined)
      throw refusal(where, `tensor ${describe(name)} dtype expected ${Object.keys(BITS).join(", ")}`, describe(word));
    const fault = faultOf(dtype, shape, begin, end, dataLength, note);
    if (fault !== undefined) throw refusal(where, `tensor ${describe(name)} ${fault.rule}`, fault.got);
    begins.push(begin);
    ends.push(end);
    tensors.set(name, create(name, dtype, shape, begin, end));
    // A name that was there already did not make the map larger. Looking it up first would take a second search of the map.
    return tensors.size === begins.length;
  });

  // In order of their offsets, ranges must follow each other without overlap or hole, and cover the data.
  const order = Array.from(begins.keys());
  order.sort((a, b) => begins[a]! - begins[b]! || ends[a]! - ends[b]!);
  let covered = 0;
  for (const index of order) {
    if (begins[index] !== covered) {
      const name = describe(Array.from(tensors.keys())[index]);
      const got = `[${begins[index]}, ${ends[index]}]`;
      throw refusal(where, `tensor ${name} data_offsets expected to begin at ${covered}`, got);
    }
    covered = ends[index]!;
  }
  if (covered !== dataLength)
    throw refusal(where, `data expected ${covered} bytes, as the tensors cover`, `${dataLength}`);
  return { metadata, tensors };
}

/** What is wrong with a tensor whose entry gives bytes [begin, end) of the data; undefined if nothing is. */
function faultOf(
  dtype: PlainDtype,
  shape: readonly number[],
  begin: number,
  end: number,
  dataLength: number,
  note: string,
): { readonly rule: string; readonly got: string } | undefined {
  const bits = bitsOf(shape, BITS[dtype]);
  const bytes = typeof bits === "bigint" ? bits / 8n : (bits ?? 0) / 8;
  // A size that takes a bigint is larger than any range.
  if (end <= dataLength && end - begin === bytes && bits !== undefined) return undefined;
  const tensor = `${dtype} ${shapeText(shape)}`;
  if (bits === undefined) return { rule: "expected a size below 2^64 bits", got: tensor };
  if (typeof bytes === "number" && !Number.isInteger(bytes))
    return { rule: "expected to end on a whole byte", got: tensor };
  const range = `[${begin}, ${end}]`;
  if (end > dataLength) return { rule: `data_offsets expected to end within ${dataLength} bytes${note}`, got: range };
  return { rule: `expected ${bytes} bytes for ${tensor}`, got: `data_offsets ${range}` };
}

/**
 * Bits of a tensor, as a bigint if a number does not hold them exactly; undefined if a partial product exceeds 64 bits, even
 * if a later dimension is 0.
 */
function bitsOf(shape: readonly number[], elementBits: number): number | bigint | undefined {
  let bits = 1;
  for (const length of shape) {
    bits *= length;
    if (bits > Number.MAX_SAFE_INTEGER) return exactBitsOf(shape, elementBits);
  }
  bits *= elementBits;
  return bits > Number.MAX_SAFE_INTEGER ? exactBitsOf(shape, elementBits) : bits;
}

function exactBitsOf(shape: readonly number[], elementBits: number): number | bigint | undefined {
  let bits = 1n;
  for (const length of [...shape, elementBits]) {
    bits *= BigInt(length);
    if (bits > LARGEST_U64) return undefined;
  }
  return bits > Number.MAX_SAFE_INTEGER ? bits : Number(bits);
}

function decode(where: string, bytes: Uint8Array): string {
  const { buffer } = bytes;
  // A TextDecoder may refuse memory that is shared or that can be resized. Other headers are not copied.
  const isPlain = tagOf(buffer) === "ArrayBuffer" && !(buffer as { readonly resizable?: boolean }).resizable;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(isPlain ? bytes : bytes.slice());
  } catch (cause) {
    throw new HeadwiseError("BAD_FILE", `${where}: header expected valid UTF-8, got other bytes`, { cause });
  }
}

function refusal(where: string, rule: string, got: string): HeadwiseError {
  return new HeadwiseError("BAD_FILE", `${where}: ${rule}, got ${got}`);
}

/**
 * Takes a tensor as the header states it, before its numbers are compared with each other and with the data. Returns whether
 * it is the first of that name.
 */
type TakeTensor = (name: string, dtype: string, shape: readonly number[], begin: number, end: number) => boolean;

/** The largest integer of the format: 48 bits, all of which a number represents exactly. */
const LARGEST_INTEGER: number = 2 ** 48 - 1;
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
function scanHeader(where: string, text: string, takeTensor: TakeTensor): ReadonlyMap<string, string> {
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

/** A tensor of a file to be written. */
export interface HeaderLine {
  readonly name: string;
  readonly dtype: PlainDtype;
  readonly shape: readonly number[];
  /** Bytes of the tensor. */
  readonly size: number;
}

/**
 * The order in which tensors are written: by decreasing size of elements, so that every tensor is aligned, then by
 * name. Not by localeCompare, because the order must not depend on the host's language.
 */
export function compareLines(a: Omit<HeaderLine, "size">, b: Omit<HeaderLine, "size">): number {
  return BITS[b.dtype] - BITS[a.dtype] || (a.name < b.name ? -1 : 1);
}

/** Everything before the data of a file whose tensors follow each other, padded to a multiple of 8 bytes. */
export function headerText(
  where: string,
  lines: readonly HeaderLine[],
  metadata: Iterable<readonly [string, string]>,
): Uint8Array {
  const notes = Array.from(metadata, ([key, value]) => {
    if (typeof value !== "string")
      throw new TypeError(`${where}: metadata ${describe(key)} expected a string, got ${describe(value)}`);
    return `${quote(where, key)}:${quote(where, value)}`;
  });
  const members = notes.length > 0 ? [`"__metadata__":{${notes.join(",")}}`] : [];
  let end = 0;
  for (const { name, dtype, shape, size } of lines) {
    const begin = end;
    end += size;
    if (shape.some((length) => length > LARGEST_INTEGER))
      throw new RangeError(
        `${where}: tensor ${describe(name)} expected dimensions <= ${LARGEST_INTEGER}, got ${shapeText(shape)}`,
      );
    members.push(
      `${quote(where, name)}:{"dtype":"${dtype}","shape":[${shape.join(",")}],"data_offsets":[${begin},${end}]}`,
    );
  }
  const text = new TextEncoder().encode(`{${members.join(",")}}`);
  const length = Math.ceil(text.length / 8) * 8;
  if (length > LARGEST_HEADER)
    throw new RangeError(`${where}: header expected <= ${LARGEST_HEADER} bytes, got ${length}`);
  const header = new Uint8Array(8 + length).fill(0x20);
  new DataView(header.buffer).setBigUint64(0, BigInt(length), true);
  header.set(text, 8);
  return header;
}

function quote(where: string, word: string): string {
  if (typeof word !== "string") throw new TypeError(`${where}: name expected a string, got ${describe(word)}`);
  if (/\p{Cs}/u.test(word)) throw new RangeError(`${where}: name expected no lone surrogate, got ${describe(word)}`);
  return JSON.stringify(word);
}
