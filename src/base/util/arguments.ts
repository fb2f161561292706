// Reads and checks arguments, and the limits of numbers that callers give.

import { describe, tagOf } from "./errors.ts";

/** The largest integer that kernels take. */
export const LARGEST_INT: number = 2 ** 31 - 1;

/** The error of a value that breaks a rule: RangeError if it has the right type, else TypeError. */
export function wrongValue(where: string, name: string, rule: string, value: unknown, type = "number"): Error {
  const Wrong = typeof value === type ? RangeError : TypeError;
  return new Wrong(`${where}: ${name} expected ${rule}, got ${describe(value)}`);
}

/** The TypeError of a value of a wrong type. */
export function wrongType(where: string, name: string, rule: string, value: unknown): Error {
  return wrongValue(where, name, rule, value, "none");
}

/**
 * Returns `value` if it is an integer in [min, max]. Throws `RangeError` for other numbers and `TypeError` for other
 * types.
 */
export function expectInt(where: string, name: string, value: unknown, min = 1, max: number = LARGEST_INT): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) return value;
  const beyond = typeof value === "number" && value > max && value < Infinity;
  const rule = max === LARGEST_INT && !beyond ? `an integer >= ${min}` : `an integer from ${min} to ${max}`;
  throw wrongValue(where, name, rule, value);
}

/** Throws unless `value` is an even integer >= 2. Returns it. */
export function expectEven(where: string, name: string, value: unknown): number {
  if (expectInt(where, name, value) % 2 === 0) return value as number;
  throw wrongValue(where, name, "an even number", value);
}

/** Throws unless `value` is a finite number (and > 0 with `positive`). Returns it. */
export function expectFinite(where: string, name: string, value: unknown, positive = false): number {
  if (typeof value === "number" && Number.isFinite(value) && (!positive || value > 0)) return value;
  throw wrongValue(where, name, `a finite number${positive ? " > 0" : ""}`, value);
}

/** Throws unless `value` rounds to a finite float32 other than 0 (> 0 with `positive`). Returns it. */
export function expectFloat32(where: string, name: string, value: unknown, positive = false): number {
  const held = typeof value === "number" ? Math.fround(value) : NaN;
  if (Number.isFinite(held) && (positive ? held > 0 : held !== 0)) return value as number;
  throw wrongValue(where, name, `a finite float32 number ${positive ? "> 0" : "other than 0"}`, value);
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
  throw wrongValue(where, name, rule, value, typeof choices[0]);
}

/** Throws `TypeError` unless `value` is a boolean or undefined. Returns it, false when undefined. */
export function expectFlag(where: string, name: string, value: unknown): boolean {
  if (value === undefined || typeof value === "boolean") return value ?? false;
  throw wrongType(where, name, "true or false", value);
}

/**
 * The prototype of all kinds of typed arrays. Fields are read by its getters, which are right for arrays of any realm and run
 * no code of the caller's: a subclass, an own field or a Proxy could give anything.
 */
const ARRAYS = Object.getPrototypeOf(Uint8Array.prototype) as Uint8Array;
const getterOf = <T>(field: PropertyKey): ((array: unknown) => T) => {
  const { get } = Object.getOwnPropertyDescriptor(ARRAYS, field) as PropertyDescriptor;
  return (array) => get?.call(array) as T;
};
/** The kind of a typed array, such as "Float32Array"; undefined for other values. */
const kindOf = getterOf<string | undefined>(Symbol.toStringTag);
const bufferOf = getterOf<ArrayBuffer>("buffer");
const offsetOf = getterOf<number>("byteOffset");
const lengthOf = getterOf<number>("length");

/** A view of an array of this kind, whose fields are its class's own. Throws `TypeError` for others, and for detached ones. */
function viewOf<Kind extends Float32ArrayConstructor | Uint8ArrayConstructor>(
  where: string,
  name: string,
  value: unknown,
  Kind: Kind,
  rule: string,
): InstanceType<Kind> {
  let got: string | undefined;
  try {
    if (kindOf(value) !== Kind.name) got = describe(value) + hintFor(value, Kind.name);
    // Only an array of length 0 can be detached, or beyond the end of a buffer that shrank: this refuses both.
    else if (lengthOf(value) === 0) ARRAYS.keys.call(value as Uint8Array);
  } catch {
    got = DETACHED;
  }
  if (got !== undefined) throw new TypeError(`${where}: ${name} expected ${rule}, got ${got}`);
  return new Kind(bufferOf(value), offsetOf(value), lengthOf(value)) as InstanceType<Kind>;
}

/** What to do where an object was given instead of the array in it. */
function hintFor(value: unknown, kind: string): string {
  const data = Object.getOwnPropertyDescriptor(Object(value), "data")?.value;
  return kindOf(data) === kind ? ": pass its data" : "";
}

/** Arrays and buffers without memory, as the value in messages. */
export const DETACHED = "a detached one";

/**
 * Throws `TypeError` unless `value` is a Float32Array (of any realm) whose memory is there. Returns a view of it whose
 * fields are those of Float32Array, whatever class or fields `value` has. It runs no code of the caller's, unless it throws.
 */
export function expectFloats(where: string, name: string, value: unknown): Float32Array {
  return viewOf(where, name, value, Float32Array, "Float32Array");
}

/** `expectFloats` for Uint8Array; a Buffer of Node is one. */
export function expectUint8Array(where: string, name: string, value: unknown, rule = "Uint8Array"): Uint8Array {
  return viewOf(where, name, value, Uint8Array, rule);
}

/** Throws `TypeError` unless `value` is bytes (of any realm) whose memory is there. Returns a view of them. */
export function expectBytes(where: string, name: string, value: unknown): Uint8Array {
  const rule = "Uint8Array or ArrayBuffer";
  if (!/^(Shared)?ArrayBuffer$/.test(tagOf(value))) return viewOf(where, name, value, Uint8Array, rule);
  try {
    return new Uint8Array(value as ArrayBuffer);
  } catch {
    throw new TypeError(`${where}: ${name} expected ${rule}, got ${DETACHED}`);
  }
}

/** Throws `TypeError` unless `signal` is an AbortSignal (of any realm). */
export function expectSignal(where: string, signal: Global<"AbortSignal">): void {
  if (typeof signal !== "object" || signal === null || typeof signal.throwIfAborted !== "function")
    throw wrongType(where, "signal", "an AbortSignal", signal);
}

/** Throws `TypeError` unless `value` is a function. */
export function expectFunction(where: string, name: string, value: unknown): void {
  if (typeof value !== "function") throw wrongType(where, name, "a function", value);
}

/**
 * The elements of an array-like object, each checked by `check`. The length and each element are read once, because reading
 * may run code of the caller's. Throws `TypeError` unless it has an integer `length` >= 0. A list of more than `most` elements
 * is too long for its caller: of such a list, the result has the length only.
 */
export function readList<T = unknown>(
  where: string,
  name: string,
  value: unknown,
  most: number,
  check: (element: unknown, index: number) => T = (element) => element as T,
): ArrayLike<T> {
  const length = value !== null && typeof value === "object" ? (value as ArrayLike<unknown>).length : undefined;
  if (typeof length !== "number" || !Number.isInteger(length) || length < 0)
    throw wrongType(where, name, "an array", value);
  if (length > most) return { length };
  const elements: T[] = [];
  for (let i = 0; i < length; i++) elements.push(check((value as ArrayLike<unknown>)[i], i));
  return elements;
}

/** Throws unless a list has `count` elements, which `rule` names: one for each of what is counted. */
export function expectEach(where: string, name: string, list: ArrayLike<unknown>, count: number, rule: string): void {
  if (list.length !== count) throw wrongValue(where, name, `${rule} (${count})`, list.length);
}

/** Throws unless `value` is undefined: it must not be given as `rule` says. */
export function expectNone(where: string, name: string, value: unknown, rule: string): void {
  if (value !== undefined) throw wrongValue(where, name, `none ${rule}`, value, typeof value);
}

/** Throws `TypeError` unless `value` is an object (not null, not an array, typed or not). */
export function expectRecord(where: string, name: string, value: unknown): void {
  if (value !== null && typeof value === "object" && !Array.isArray(value) && !ArrayBuffer.isView(value)) return;
  throw wrongType(where, name, "an object", value);
}

/**
 * Throws `TypeError` unless `value` is an object whose own fields are all `known`: misspelt options must not be
 * ignored.
 */
export function expectFields(where: string, name: string, value: unknown, known: readonly string[]): void {
  expectRecord(where, name, value);
  const plain = (text: string) => text.replace(/_/g, "").toLowerCase();
  for (const field of Object.keys(value as object)) {
    if (known.includes(field)) continue;
    const given = plain(field);
    // Whether 1 keeps or drops a key, the names of masks do not say.
    const masks = known.includes("drop") && given.includes("mask") && "keep or drop";
    const ours = masks || known.find((each) => plain(each) === given);
    throw new TypeError(
      `${where}: ${name} expected only ${known.join(", ")}, got ${describe(field)}${ours ? `: use ${ours}` : ""}`,
    );
  }
}

/** The names of all fields of a type, of each of a union. */
type FieldOf<T> = T extends unknown ? keyof T & string : never;

/** A list of names that has each field of T and no other; other lists have no type that fits. */
export type AllFieldsOf<T, Name extends string> = string extends Name
  ? { readonly expected: "names, not strings" }
  : [Exclude<FieldOf<T>, Name> | Exclude<Name, FieldOf<T>>] extends [never]
    ? readonly Name[]
    : { readonly missing: Exclude<FieldOf<T>, Name>; readonly unknown: Exclude<Name, FieldOf<T>> };

/**
 * `expectFields`, for a list of all fields of T: a list that lacks one, or has another, does not compile. Returns a copy of the known
 * fields, each read once, because reading may run code of the caller's.
 */
export function readFields<T extends object, const Name extends string>(
  where: string,
  name: string,
  value: T,
  known: readonly Name[] & AllFieldsOf<T, Name>,
): T {
  expectFields(where, name, value, known);
  // A class may inherit fields. Most options are literals, of which few fields are set.
  const isLiteral = Object.getPrototypeOf(value) === Object.prototype;
  return copyFields(value, isLiteral ? Object.keys(value) : known) as T;
}

/** A copy of those of the fields that are not undefined, each read once. */
export function copyFields(value: object, names: readonly string[]): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const name of names) {
    const field = (value as Readonly<Record<string, unknown>>)[name];
    if (field !== undefined) fields[name] = field;
  }
  return fields;
}

// Limits of numbers that callers give. No model reaches those of counts: they keep a wrong number from occupying the host.

/** The most heads of a layer or a rank-4 tensor. */
export const MOST_HEADS: number = 2 ** 16;

/** The most sequences of a call or cache. */
export const MOST_SEQUENCES: number = 2 ** 20;

/** Throws unless a tensor has 1 to MOST_HEADS heads, and these have components. */
export function expectHeads(where: string, name: string, heads: number, dim: number): void {
  if (heads >= 1 && heads <= MOST_HEADS && dim >= 1) return;
  throw new RangeError(`${where}: ${name} expected 1 to ${MOST_HEADS} heads and dim >= 1, got ${heads} and ${dim}`);
}

/**
 * What `new globalThis[Name]()` gives, where a program is compiled with the type of that global, else any object. Programs
 * have the types of the DOM, of web workers, of Node, or none of these, so declarations must not name them.
 */
export type Global<Name extends string> = typeof globalThis extends { readonly [N in Name]: { prototype: infer T } }
  ? T
  : object;

// Options under the names that other libraries have for them.

/** By our names: those of other libraries, without case and underscores. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  maxTokens: "maxnewtokens maxlength maxoutputtokens maxcompletiontokens numpredict npredict",
  temperature: "dosample temp",
  stopIds: "eostokenid eostokenids stoptokenids stoptokens",
  stop: "stopsequences stopstrings stopwords",
  repetitionPenalty: "repeatpenalty",
  seed: "randomseed",
  maxSeqLen: "nctx numctx contextlength maxlength maxmodellen maxpositionembeddings maxseqlength",
  weights: "dtype torchdtype quantization quantize",
  format: "cachetype cacheformat kvcachetype",
  store: "cachedir",
  signal: "abortsignal",
  onProgress: "progresscallback",
  normalize: "normalizeembeddings",
  pooling: "poolingmode",
};

/** `readFields` of options, whose error names ours where it is given under a usual name of another library. */
export function readOptions<T extends object, const Name extends string>(
  where: string,
  options: T,
  known: readonly Name[] & AllFieldsOf<T, Name>,
): T {
  const names: readonly string[] = known;
  for (const field of Object.keys(Object(options))) {
    if (names.includes(field)) continue;
    const plain = field.replace(/_/g, "").toLowerCase();
    const ours = names.find((each) => OTHER_NAMES[each]?.split(" ").includes(plain));
    if (ours !== undefined) throw new TypeError(`${where}: options expected ${ours} instead, got ${describe(field)}`);
  }
  return readFields(where, "options", options, known);
}
