import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Mask, Tensor } from "../../src/entries/core.ts";

/** Numbers with a shape: what an operator takes or gives. */
export interface Values {
  readonly data: ArrayLike<number>;
  readonly shape: readonly number[];
}

/** |got - want| <= atol + rtol·|want|; both zero asks for a copy of the same bits. */
export interface Tolerance {
  readonly atol: number;
  readonly rtol: number;
}

/** One entry of `index.json`. Only the fields that the runner reads; those from `verdict` on are of LoadSafetensors. */
export interface Entry {
  readonly name: string;
  readonly set: string;
  readonly file: string;
  /** Of a whole model: where its files lie. */
  readonly folder?: string;
  readonly op: string;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly outputs?: Readonly<Record<string, unknown>>;
  readonly tolerance?: Readonly<Record<string, Tolerance>>;
  readonly sha256?: string;
  readonly verdict?: "accept" | "reject";
  readonly lenient_ok?: boolean;
  /** The tensors of an accepted file, or a sample of its `tensor_count`. */
  readonly tensors?: readonly ListedTensor[];
  readonly tensor_count?: number;
  readonly metadata?: readonly (readonly [string, string])[];
  readonly loader?: { readonly expect: "accept" | "reject" | "either"; readonly module: string };
}

export interface ListedTensor {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly nbytes: number;
  /** Of the bytes, or the bytes themselves: one of the two, or none if there are no bytes. */
  readonly sha256?: string;
  readonly hex?: string;
}

/** What an adapter gives back: named results to compare, or what is wrong with them in words. */
export interface Outcome {
  readonly outputs?: Readonly<Record<string, Values>>;
  readonly problems?: readonly string[];
  /** What an element of an output may differ beyond the tolerance, for a reason that the adapter gives. */
  readonly slack?: Readonly<Record<string, (element: number) => number>>;
  /**
   * Rows (of the last dimension, counted over all others) without an allowed key, an output each: the expected NaN
   * stand where this package gives zeros.
   */
  readonly maskedRows?: Readonly<Record<string, (row: number) => boolean>>;
}

/** The cases that a conformance folder lists. */
export function readIndex(folder: string): Entry[] {
  const index = JSON.parse(readFileSync(join(folder, "index.json"), "utf8")) as { cases?: Entry[] };
  if (!Array.isArray(index.cases)) throw new TypeError(`${folder}: index.json expected a list "cases"`);
  return index.cases;
}

export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

export const product = (shape: readonly number[]): number => shape.reduce((size, length) => size * length, 1);

/** Elements of a stored tensor by dtype. All of them fit a double except large I64 and U64, which no case has. */
const ELEMENTS: Readonly<Record<string, { bytes: number; read(view: DataView, at: number): number }>> = {
  BOOL: { bytes: 1, read: (view, at) => view.getUint8(at) },
  U8: { bytes: 1, read: (view, at) => view.getUint8(at) },
  I8: { bytes: 1, read: (view, at) => view.getInt8(at) },
  U16: { bytes: 2, read: (view, at) => view.getUint16(at, true) },
  U32: { bytes: 4, read: (view, at) => view.getUint32(at, true) },
  U64: { bytes: 8, read: (view, at) => Number(view.getBigUint64(at, true)) },
  I16: { bytes: 2, read: (view, at) => view.getInt16(at, true) },
  I32: { bytes: 4, read: (view, at) => view.getInt32(at, true) },
  I64: { bytes: 8, read: (view, at) => Number(view.getBigInt64(at, true)) },
  F16: { bytes: 2, read: (view, at) => half(view.getUint16(at, true)) },
  BF16: { bytes: 2, read: (view, at) => new Float32Array(Uint32Array.of(view.getUint16(at, true) << 16).buffer)[0]! },
  F32: { bytes: 4, read: (view, at) => view.getFloat32(at, true) },
  F64: { bytes: 8, read: (view, at) => view.getFloat64(at, true) },
};

function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return exponent ? sign * (1 + fraction / 1024) * 2 ** (exponent - 15) : sign * fraction * 2 ** -24;
}

interface Stored {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

/**
 * One case with its file. The container is read here, not by the package, so that a fault in the package's own reader
 * cannot hide in the inputs of every other case.
 */
export class Case {
  /** The conformance folder. */
  readonly folder: string;
  readonly entry: Entry;
  readonly bytes: Uint8Array;
  readonly #stored: Map<string, Stored>;

  constructor(folder: string, entry: Entry) {
    this.folder = folder;
    this.entry = entry;
    this.bytes = new Uint8Array(readFileSync(join(folder, entry.file)));
    if (entry.sha256 !== undefined && sha256(this.bytes) !== entry.sha256)
      throw new Error(`${entry.file} is not the file that index.json describes (sha256)`);
    // A file of LoadSafetensors may be broken on purpose.
    this.#stored = entry.op === "LoadSafetensors" ? new Map() : readStored(this.bytes);
  }

  has(name: string): boolean {
    return this.#stored.has(name);
  }

  /** A stored tensor with its elements widened to doubles. */
  values(name: string): Stored {
    const stored = this.#stored.get(name);
    if (!stored) throw new Error(`${this.entry.file}: no tensor ${name}`);
    return stored;
  }

  shape(name: string): readonly number[] {
    return this.values(name).shape;
  }

  /** A stored tensor as float32. Exact for F16, BF16 and F32. */
  floats(name: string): Tensor {
    const { data, shape } = this.values(name);
    return { data: Float32Array.from(data), shape };
  }

  floatsIfAny(name: string): Tensor | undefined {
    return this.has(name) ? this.floats(name) : undefined;
  }

  integers(name: string): number[] {
    return [...this.values(name).data];
  }

  isBoolean(name: string): boolean {
    return this.values(name).dtype === "BOOL";
  }

  /** A stored tensor as booleans: 1 where it is not 0. */
  booleans(name: string): Mask & { readonly data: Uint8Array } {
    const { data, shape } = this.values(name);
    return { data: Uint8Array.from(data, (value) => (value === 0 ? 0 : 1)), shape };
  }

  /** A numeric attribute; undefined when absent or null. */
  number(attribute: string): number | undefined {
    const value = this.entry.attributes[attribute] ?? undefined;
    if (value === undefined || typeof value === "number") return value;
    throw new TypeError(`${this.entry.name}: attribute ${attribute} expected a number`);
  }

  /** The first of several numeric attributes that is there. */
  someNumber(...attributes: string[]): number {
    for (const attribute of attributes) {
      const value = this.number(attribute);
      if (value !== undefined) return value;
    }
    throw new TypeError(`${this.entry.name}: expected an attribute ${attributes.join(" or ")}`);
  }

  /** A boolean attribute, also one written as 0 or 1; the operator's default when absent or null. */
  flag(attribute: string, otherwise = false): boolean {
    const value = this.entry.attributes[attribute] ?? otherwise;
    return value === true || value === 1;
  }

  /** A text attribute; empty when absent. */
  text(attribute: string): string {
    return String(this.entry.attributes[attribute] ?? "");
  }
}

function readStored(bytes: Uint8Array): Map<string, Stored> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const start = 8 + Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, start))) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  const stored = new Map<string, Stored>();
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const element = ELEMENTS[dtype];
    if (!element) throw new TypeError(`${name}: dtype ${dtype} is not one of ${Object.keys(ELEMENTS).join(" ")}`);
    const data = Float64Array.from({ length: product(shape) }, (_, i) =>
      element.read(view, start + data_offsets[0] + i * element.bytes),
    );
    stored.set(name, { dtype, shape, data });
  }
  return stored;
}
