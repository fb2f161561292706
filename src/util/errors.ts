import type { Global } from "./global.ts";

/**
 * Codes of HeadwiseError.
 * - `NO_SIMD`: the engine has no WebAssembly SIMD.
 * - `NO_CODEGEN`: the host forbids compiling WebAssembly from bytes.
 * - `NO_DECOMPRESSION`: the engine cannot decompress the inlined modules.
 * - `NO_QUANTIZED`: the kernels were loaded without the modules of this format.
 * - `NOT_WASM`: the bytes are not a WebAssembly module.
 * - `ABI_MISMATCH`: the module, or the script of a worker, is of another version of headwise, or another of its modules.
 * - `OUT_OF_MEMORY`: linear memory or an array cannot grow.
 * - `CACHE_FULL`: the tokens exceed `maxSeqLen`.
 * - `IN_USE`: a running asynchronous call excludes this one.
 * - `RELEASED`: the object, or one that it depends on, was released.
 * - `KERNEL_FAILED`: a kernel failed in a worker, a sign of damaged memory.
 * - `WORKER_LOST`: a worker ended or stopped answering.
 * - `BAD_FILE`: a file or an answer of a server cannot be read, or breaks its format.
 */
export type HeadwiseErrorCode =
  | "NO_SIMD"
  | "NO_CODEGEN"
  | "NO_DECOMPRESSION"
  | "NO_QUANTIZED"
  | "NOT_WASM"
  | "ABI_MISMATCH"
  | "OUT_OF_MEMORY"
  | "CACHE_FULL"
  | "IN_USE"
  | "RELEASED"
  | "KERNEL_FAILED"
  | "WORKER_LOST"
  | "BAD_FILE";

/**
 * A failure of the environment or of a resource: the engine, memory, a cache, a worker or a file. `code` tells which. Wrong
 * arguments throw TypeError or RangeError instead.
 * @example
 * import { HeadwiseError } from "headwise";
 * const error = new HeadwiseError("CACHE_FULL", "attend: past 4090 + qLen 8 exceeds maxSeqLen 4096");
 * console.log(error.code); // CACHE_FULL
 */
export class HeadwiseError extends Error {
  /** "HeadwiseError", also where a minifier renames the class. */
  static override readonly name = "HeadwiseError";
  /** The kind of failure. */
  readonly code: HeadwiseErrorCode;
  /** An error with a code; `options.cause` is the error behind it. */
  constructor(code: HeadwiseErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = "HeadwiseError";
    this.code = code;
  }
}

/** What loadKernels throws if the engine cannot allocate memory; `what` is its purpose. */
export function memoryRefused(what: string, cause: unknown): HeadwiseError {
  return new HeadwiseError("OUT_OF_MEMORY", `loadKernels: this engine refused memory ${what}`, { cause });
}

export const LARGEST_INT: number = 2 ** 31 - 1;

/**
 * The tag of a value, such as "Uint8Array". It also recognises objects of other realms (frames, test runners), which
 * `instanceof` does not.
 */
export function tagOf(value: unknown): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

/** A value as text for an error message: its content if that is short, else its type. */
export function describe(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") return "function";
  if (value === null || typeof value !== "object") return Object.is(value, -0) ? "-0" : String(value);
  return tagOf(value);
}

/** Bytes in hex. */
export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** Bytes as text for a message: quoted if they are printable ASCII, else in hex. */
export function showBytes(bytes: Uint8Array): string {
  if (bytes.length === 0) return "no bytes";
  const text = String.fromCharCode(...bytes);
  if (/^[\n\r -~]+$/.test(text)) return JSON.stringify(text);
  return hexOf(bytes);
}

/** Text without control characters, which a terminal would interpret: names come from files. */
export function plainText(text: string): string {
  return text.replace(/[\p{Cc}\p{Bidi_Control}]/gu, "\uFFFD");
}

/**
 * Returns `value` if it is an integer in [min, max]. Throws `RangeError` for other numbers and `TypeError` for other
 * types.
 */
export function expectInt(where: string, name: string, value: unknown, min = 1, max: number = LARGEST_INT): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) return value;
  const beyond = typeof value === "number" && value > max && value < Number.POSITIVE_INFINITY;
  const rule = max === LARGEST_INT && !beyond ? `an integer >= ${min}` : `an integer from ${min} to ${max}`;
  const text = `${where}: ${name} expected ${rule}, got ${describe(value)}`;
  throw typeof value === "number" ? new RangeError(text) : new TypeError(text);
}

/** Throws unless `value` is a finite number (and > 0 with `positive`). Returns it. */
export function expectFinite(where: string, name: string, value: unknown, positive = false): number {
  if (typeof value === "number" && Number.isFinite(value) && (!positive || value > 0)) return value;
  const text = `${where}: ${name} expected a finite number${positive ? " > 0" : ""}, got ${describe(value)}`;
  throw typeof value === "number" ? new RangeError(text) : new TypeError(text);
}

/** Throws unless `value` rounds to a finite float32 other than 0 (> 0 with `positive`). Returns it. */
export function expectFloat32(where: string, name: string, value: unknown, positive = false): number {
  const held = typeof value === "number" ? Math.fround(value) : Number.NaN;
  if (Number.isFinite(held) && (positive ? held > 0 : held !== 0)) return value as number;
  const rule = `a finite float32 number ${positive ? "> 0" : "other than 0"}`;
  const text = `${where}: ${name} expected ${rule}, got ${describe(value)}`;
  throw typeof value === "number" ? new RangeError(text) : new TypeError(text);
}

/** Throws unless `value` is one of `choices`. Returns it. */
export function expectOneOf<T extends string | number>(
  where: string,
  name: string,
  value: unknown,
  choices: readonly T[],
): T {
  if ((choices as readonly unknown[]).includes(value)) return value as T;
  const rule = choices.map((choice) => JSON.stringify(choice)).join(" or ");
  const text = `${where}: ${name} expected ${rule}, got ${describe(value)}`;
  throw typeof value === typeof choices[0] ? new RangeError(text) : new TypeError(text);
}

/** Throws `TypeError` unless `value` is a boolean or undefined. Returns it, false when undefined. */
export function expectFlag(where: string, name: string, value: unknown): boolean {
  if (value === undefined || typeof value === "boolean") return value ?? false;
  throw new TypeError(`${where}: ${name} expected true or false, got ${describe(value)}`);
}

/** Throws `TypeError` unless `value` is a Float32Array (of any realm). Returns it. */
export function expectFloats(where: string, name: string, value: unknown): Float32Array {
  const isView = ArrayBuffer.isView(value);
  if (isView && (value instanceof Float32Array || tagOf(value) === "Float32Array")) return value as Float32Array;
  throw new TypeError(`${where}: ${name} expected Float32Array, got ${describe(value)}`);
}

/** Throws `TypeError` unless `value` is a Uint8Array (of any realm). Returns it. */
export function expectUint8Array(where: string, name: string, value: unknown): Uint8Array {
  if (!ArrayBuffer.isView(value) || tagOf(value) !== "Uint8Array")
    throw new TypeError(`${where}: ${name} expected Uint8Array, got ${describe(value)}`);
  expectBytes(where, name, value);
  return value as Uint8Array;
}

/**
 * Throws `TypeError` unless `value` is bytes (of any realm). Returns a Uint8Array, because `slice` of a Buffer does not
 * copy.
 */
export function expectBytes(where: string, name: string, value: unknown): Uint8Array {
  const tag = tagOf(value);
  try {
    if (tag === "ArrayBuffer" || tag === "SharedArrayBuffer") return new Uint8Array(value as ArrayBuffer);
    if (ArrayBuffer.isView(value) && tag === "Uint8Array")
      return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  } catch {
    // The memory was transferred elsewhere: no view of it can be made.
    throw new TypeError(`${where}: ${name} expected Uint8Array or ArrayBuffer, got a detached one`);
  }
  throw new TypeError(`${where}: ${name} expected Uint8Array or ArrayBuffer, got ${describe(value)}`);
}

/** Throws `TypeError` unless `signal` is an AbortSignal (of any realm). */
export function expectSignal(where: string, signal: Global<"AbortSignal">): void {
  if (typeof signal !== "object" || signal === null || typeof signal.throwIfAborted !== "function")
    throw new TypeError(`${where}: signal expected an AbortSignal, got ${describe(signal)}`);
}

/** Throws `TypeError` unless `value` is a function. */
export function expectFunction(where: string, name: string, value: unknown): void {
  if (typeof value !== "function") throw new TypeError(`${where}: ${name} expected a function, got ${describe(value)}`);
}

/** Throws `TypeError` unless `value` is array-like: an object with an integer `length` >= 0. Returns it. */
export function expectList(where: string, name: string, value: unknown): ArrayLike<unknown> {
  if (value !== null && typeof value === "object" && "length" in value) {
    const { length } = value;
    if (typeof length === "number" && Number.isInteger(length) && length >= 0) return value as ArrayLike<unknown>;
  }
  throw new TypeError(`${where}: ${name} expected an array of integers, got ${describe(value)}`);
}

/** Throws `TypeError` unless `value` is an object (not null, not an array, typed or not). */
export function expectRecord(where: string, name: string, value: unknown): void {
  if (value !== null && typeof value === "object" && !Array.isArray(value) && !ArrayBuffer.isView(value)) return;
  throw new TypeError(`${where}: ${name} expected an object, got ${describe(value)}`);
}

/**
 * Throws `TypeError` unless `value` is an object whose own fields are all `known`: misspelt options must not be
 * ignored.
 */
export function expectFields(where: string, name: string, value: unknown, known: readonly string[]): void {
  expectRecord(where, name, value);
  const unknown = Object.keys(value as object).find((field) => !known.includes(field));
  if (unknown !== undefined)
    throw new TypeError(`${where}: ${name} expected only ${known.join(", ")}, got ${describe(unknown)}`);
}
