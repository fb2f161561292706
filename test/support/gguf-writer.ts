// Writes GGUF files for tests: valid ones, and ones that lie where a test says so.

/** The number of a type and a value of it; an array has the number of its elements' type and such values. */
export interface Typed {
  readonly type: number;
  readonly value: number | bigint | boolean | string | { readonly of: number; readonly items: readonly unknown[] };
}

export const u8 = (value: number): Typed => ({ type: 0, value });
export const i8 = (value: number): Typed => ({ type: 1, value });
export const u16 = (value: number): Typed => ({ type: 2, value });
export const i16 = (value: number): Typed => ({ type: 3, value });
export const u32 = (value: number): Typed => ({ type: 4, value });
export const i32 = (value: number): Typed => ({ type: 5, value });
export const f32 = (value: number): Typed => ({ type: 6, value });
export const bool = (value: boolean | number): Typed => ({ type: 7, value });
export const text = (value: string): Typed => ({ type: 8, value });
export const u64 = (value: bigint): Typed => ({ type: 10, value });
export const i64 = (value: bigint): Typed => ({ type: 11, value });
export const f64 = (value: number): Typed => ({ type: 12, value });
/** `of` is the number of the elements' type; elements that are arrays are `Typed` themselves. */
export const list = (of: number, items: readonly unknown[]): Typed => ({ type: 9, value: { of, items } });

/** A tensor with the shape that readers see, the innermost dimension last. */
export interface Written {
  readonly name: string;
  readonly type: number;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
  /** Another offset than where the bytes lie. */
  readonly offset?: number | bigint;
}

interface GgufParts {
  readonly version?: number;
  readonly metadata?: Readonly<Record<string, Typed>> | readonly (readonly [string, Typed])[];
  readonly tensors?: readonly Written[];
  /** Other counts than there are. */
  readonly tensorCount?: bigint;
  readonly keyCount?: bigint;
  /** That of the offsets; `general.alignment` is written where it is not 32. */
  readonly alignment?: number;
}

/** Bytes that grow. */
export class Bytes {
  #bytes = new Uint8Array(64);
  length = 0;
  #room(length: number): DataView {
    if (this.length + length > this.#bytes.length) {
      const grown = new Uint8Array(2 * (this.length + length));
      grown.set(this.#bytes);
      this.#bytes = grown;
    }
    const view = new DataView(this.#bytes.buffer, this.length, length);
    this.length += length;
    return view;
  }
  u32(value: number): this {
    this.#room(4).setUint32(0, value, true);
    return this;
  }
  u64(value: number | bigint): this {
    this.#room(8).setBigUint64(0, BigInt(value), true);
    return this;
  }
  raw(bytes: ArrayLike<number>): this {
    const { byteOffset, byteLength } = this.#room(bytes.length);
    new Uint8Array(this.#bytes.buffer, byteOffset, byteLength).set(bytes);
    return this;
  }
  text(value: string): this {
    const bytes = new TextEncoder().encode(value);
    return this.u64(bytes.length).raw(bytes);
  }
  value(type: number, value: unknown): this {
    const number = Number(value);
    if (type === 0 || type === 7) this.#room(1).setUint8(0, number);
    else if (type === 1) this.#room(1).setInt8(0, number);
    else if (type === 2) this.#room(2).setUint16(0, number, true);
    else if (type === 3) this.#room(2).setInt16(0, number, true);
    else if (type === 4) this.u32(number);
    else if (type === 5) this.#room(4).setInt32(0, number, true);
    else if (type === 6) this.#room(4).setFloat32(0, number, true);
    else if (type === 8) this.text(value as string);
    else if (type === 9) {
      const { of, items } = ((value as Typed).value ?? value) as { of: number; items: readonly unknown[] };
      this.u32(of).u64(items.length);
      for (const item of items) this.value(of, item);
    } else if (type === 10) this.u64(value as bigint);
    else if (type === 11) this.#room(8).setBigInt64(0, value as bigint, true);
    else this.#room(8).setFloat64(0, number, true);
    return this;
  }
  pad(alignment: number): this {
    return this.raw(new Uint8Array(-this.length & (alignment - 1)));
  }
  done(): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(0, this.length);
  }
}

export function writeGguf(parts: GgufParts): Uint8Array<ArrayBuffer> {
  const { version = 3, metadata = {}, tensors = [], alignment = 32 } = parts;
  const keys = Array.isArray(metadata) ? [...metadata] : Object.entries(metadata as Readonly<Record<string, Typed>>);
  if (alignment !== 32) keys.push(["general.alignment", u32(alignment)]);
  const out = new Bytes().raw(new TextEncoder().encode("GGUF")).u32(version);
  out.u64(parts.tensorCount ?? tensors.length).u64(parts.keyCount ?? keys.length);
  for (const [key, { type, value }] of keys) out.text(key).u32(type).value(type, value);
  const data = new Bytes();
  for (const { name, type, shape, bytes, offset } of tensors) {
    data.pad(alignment);
    out.text(name).u32(shape.length);
    for (const length of [...shape].reverse()) out.u64(length);
    out.u32(type).u64(offset ?? data.length);
    data.raw(bytes);
  }
  return tensors.length === 0 ? out.done() : out.pad(alignment).raw(data.done()).done();
}

export const bytesOf = (data: Float32Array): Uint8Array =>
  new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

/** Float32 to the nearest float16, ties to even; for values whose float16 is finite. */
export function toF16(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  const exponent = Math.max(-14, Math.floor(Math.log2(size || 1)));
  const step = 2 ** (exponent - 10);
  let steps = size / step;
  const below = Math.floor(steps);
  steps = steps - below > 0.5 || (steps - below === 0.5 && below % 2 === 1) ? below + 1 : below;
  return sign | (size * 2 ** 14 < 1 ? steps : ((exponent + 14) << 10) + steps);
}

/** Rows of floats as Q8_0 blocks: d = max|w| / 127 as float16, q = round(w / d). */
export function toQ8_0(data: Float32Array): Uint8Array {
  const out = new Uint8Array((data.length / 32) * 34);
  for (let block = 0; block < data.length / 32; block++) {
    const weights = data.subarray(block * 32, block * 32 + 32);
    const d = weights.reduce((most, w) => Math.max(most, Math.abs(w)), 0) / 127;
    const scale = toF16(d);
    out.set(
      [scale & 255, scale >> 8, ...weights.map((w) => Math.round(w / (d || 1)))].map((byte) => byte & 255),
      block * 34,
    );
  }
  return out;
}

/** Rows of floats as Q4_0 blocks: d = (the weight of the largest size) / -8 as float16, nibble = w / d + 8. */
export function toQ4_0(data: Float32Array): Uint8Array {
  const out = new Uint8Array((data.length / 32) * 18);
  for (let block = 0; block < data.length / 32; block++) {
    const weights = data.subarray(block * 32, block * 32 + 32);
    const d = weights.reduce((most, w) => (Math.abs(w) > Math.abs(most) ? w : most), 0) / -8;
    const scale = toF16(d);
    const nibbles = Array.from(weights, (w) => Math.min(15, Math.round(w / (d || 1)) + 8));
    out.set([scale & 255, scale >> 8], block * 18);
    for (let j = 0; j < 16; j++) out[block * 18 + 2 + j] = nibbles[j]! | (nibbles[j + 16]! << 4);
  }
  return out;
}
