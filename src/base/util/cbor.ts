// Plain data as bytes: CBOR (RFC 8949) of null, booleans, numbers, strings, typed arrays (RFC 8746), arrays and objects, in its
// deterministic form, but without floats of 16 bits. Equal values have equal bytes, and other bytes than those are refused. Numbers
// keep all of their bits, except those of NaN.

import { describe, tagOf } from "./errors.ts";

/** Levels of arrays and objects in each other. */
const MOST_LEVELS = 32;

/** Kinds of items, the first three bits of each. */
const [UNSIGNED, NEGATIVE, BYTES, TEXT, LIST, RECORD, TAG, SIMPLE] = [0, 1, 2, 3, 4, 5, 6, 7];
const [FALSE, TRUE, NULL, FLOAT32, FLOAT64] = [20, 21, 22, 26, 27];

/** Tags of typed arrays: of little-endian numbers. */
const ARRAYS = [
  [64, Uint8Array],
  [69, Uint16Array],
  [70, Uint32Array],
  [72, Int8Array],
  [77, Int16Array],
  [78, Int32Array],
  [85, Float32Array],
  [86, Float64Array],
] as const;

/** The bytes of a value, in parts: those of typed arrays are views of them. Fields that are undefined are left out. */
export function* encodeParts(
  where: string,
  name: string,
  value: unknown,
  level = 0,
): Generator<Uint8Array, void, void> {
  if (level > MOST_LEVELS) throw new RangeError(`${where}: ${name} expected at most ${MOST_LEVELS} levels, got more`);
  if (value === null) yield head(SIMPLE, NULL);
  else if (typeof value === "boolean") yield head(SIMPLE, value ? TRUE : FALSE);
  else if (typeof value === "number") yield numberBytes(value);
  else if (typeof value === "string") {
    const bytes = new TextEncoder().encode(value);
    yield head(TEXT, bytes.length);
    yield bytes;
  } else if (ArrayBuffer.isView(value)) {
    const found = ARRAYS.find(([, { name: kind }]) => kind === tagOf(value));
    if (!found) throw new TypeError(`${where}: ${name} expected plain data, got ${describe(value)}`);
    yield head(TAG, found[0]);
    yield head(BYTES, value.byteLength);
    yield new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  } else if (Array.isArray(value)) {
    yield head(LIST, value.length);
    for (const [i, each] of value.entries()) yield* encodeParts(where, `${name}[${i}]`, each, level + 1);
  } else if (tagOf(value) === "Object") {
    const fields = Object.entries(value as object).filter(([, each]) => each !== undefined);
    fields.sort(([a], [b]) => a.length - b.length || (a < b ? -1 : 1));
    yield head(RECORD, fields.length);
    for (const [key, each] of fields) {
      yield* encodeParts(where, name, key, level + 1);
      yield* encodeParts(where, `${name}.${key}`, each, level + 1);
    }
  } else throw new TypeError(`${where}: ${name} expected plain data, got ${describe(value)}`);
}

/** Numbers below these are written as 1, 2, 4 and 8 bytes. */
const LIMITS = [0x100, 0x1_0000, 0x1_0000_0000, Infinity];

/** The first byte of an item, and its number in as few bytes as hold it. */
function head(kind: number, value: number): Uint8Array {
  const first = kind << 5;
  if (value < 24) return Uint8Array.of(first | value);
  const power = LIMITS.findIndex((limit) => value < limit);
  const size = 1 << power;
  const bytes = new Uint8Array(1 + size);
  bytes[0] = first | (24 + power);
  for (let i = size, rest = value; i > 0; i--, rest = Math.floor(rest / 256)) bytes[i] = rest % 256;
  return bytes;
}

/** An integer that is exact, else the shorter float that is. */
function numberBytes(value: number): Uint8Array {
  if (Number.isSafeInteger(value) && !Object.is(value, -0))
    return value < 0 ? head(NEGATIVE, -1 - value) : head(UNSIGNED, value);
  const isShort = Object.is(Math.fround(value), value);
  const bytes = new Uint8Array(isShort ? 5 : 9);
  bytes[0] = (SIMPLE << 5) | (isShort ? FLOAT32 : FLOAT64);
  const view = new DataView(bytes.buffer, 1);
  if (isShort) view.setFloat32(0, value);
  else view.setFloat64(0, value);
  return bytes;
}

/** The value that `encodeParts` gives these bytes for. Throws RangeError for all others. */
export function decodeCbor(where: string, name: string, bytes: Uint8Array): unknown {
  const reader = new Reader(
    bytes,
    (got) => new RangeError(`${where}: ${name} expected the encoding of a record, got ${got}`),
  );
  const value = reader.item(0);
  const [again, given] = [encodeParts(where, name, value), bytes];
  let at = 0;
  for (const part of again)
    for (const byte of part) if (given[at++] !== byte) throw reader.refuse(`another form of it at byte ${at - 1}`);
  if (at < given.length) throw reader.refuse(`${given.length - at} bytes more`);
  return value;
}

/** Reads items one after the other. What it allocates is at most a small multiple of the bytes. */
class Reader {
  readonly #bytes: Uint8Array;
  readonly refuse: (got: string) => RangeError;
  #at = 0;

  constructor(bytes: Uint8Array, refuse: (got: string) => RangeError) {
    // Of a Buffer of Node, slices would be views.
    this.#bytes = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
    this.refuse = refuse;
  }

  #take(count: number): Uint8Array<ArrayBuffer> {
    if (count > this.#bytes.length - this.#at) throw this.refuse("one that ends early");
    this.#at += count;
    return this.#bytes.slice(this.#at - count, this.#at);
  }

  /** The kind of the next item, and its number, or its bytes if it is a float. */
  #head(): { readonly kind: number; readonly value: number; readonly bytes: Uint8Array<ArrayBuffer> } {
    const [first] = this.#take(1) as Uint8Array & [number];
    const [kind, short] = [first >> 5, first & 31];
    if (short > 27) throw this.refuse(`an item of kind ${kind} without a length`);
    const bytes = this.#take(short < 24 ? 0 : 1 << (short - 24));
    if (kind === SIMPLE) return { kind, value: short, bytes };
    return { kind, value: short < 24 ? short : bytes.reduce((sum, byte) => sum * 256 + byte, 0), bytes };
  }

  item(level: number): unknown {
    if (level > MOST_LEVELS) throw this.refuse(`more than ${MOST_LEVELS} levels`);
    const { kind, value, bytes } = this.#head();
    const all = <T>(read: () => T): T[] => {
      const items: T[] = [];
      for (let i = 0; i < value; i++) items.push(read());
      return items;
    };
    switch (kind) {
      case UNSIGNED:
        return value;
      case NEGATIVE:
        return -1 - value;
      case TEXT:
        return this.#text(value);
      case LIST:
        return all(() => this.item(level + 1));
      case RECORD:
        // By fromEntries, which makes a field even of "__proto__".
        return Object.fromEntries(all(() => [this.#key(), this.item(level + 1)] as const));
      case TAG:
        return this.#array(value);
      case SIMPLE:
        return this.#simple(value, bytes);
      default:
        throw this.refuse("bytes without a type");
    }
  }

  #text(length: number): string {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.#take(length));
    } catch (cause) {
      throw cause instanceof TypeError ? this.refuse("text that is not UTF-8") : cause;
    }
  }

  #key(): string {
    const { kind, value } = this.#head();
    if (kind !== TEXT) throw this.refuse("a field without a name");
    return this.#text(value);
  }

  #array(tag: number): unknown {
    const found = ARRAYS.find(([known]) => known === tag);
    const { kind, value } = this.#head();
    if (!found || kind !== BYTES) throw this.refuse(`an unknown tag ${tag}`);
    const [, Kind] = found;
    if (value % Kind.BYTES_PER_ELEMENT !== 0) throw this.refuse(`${value} bytes as ${Kind.name}`);
    return new Kind(this.#take(value).buffer);
  }

  #simple(value: number, bytes: Uint8Array<ArrayBuffer>): unknown {
    const view = new DataView(bytes.buffer);
    switch (value) {
      case FALSE:
        return false;
      case TRUE:
        return true;
      case NULL:
        return null;
      case FLOAT32:
        return view.getFloat32(0);
      case FLOAT64:
        return view.getFloat64(0);
      default:
        throw this.refuse(`an unknown value ${value}`);
    }
  }
}
