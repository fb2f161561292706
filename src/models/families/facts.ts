// What a file states of a model, read by name and kind, and the part of a model that a prefix names.

import { LARGEST_INT } from "../../base/util/arguments.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";

// The numbers that files state. Kernels take them as float32.

export const POSITIVE_RULE = "a finite float32 number > 0";

/** Whether `value` rounds to a finite float32 above 0. */
export function isPositive(value: unknown): value is number {
  return typeof value === "number" && Math.fround(value) > 0 && Math.fround(value) < Infinity;
}

/**
 * The most that a file may multiply or divide rows, scores or logits by. Known models have 0.001 to 256. Activations reach some
 * thousands, and scores are products of two rows and at most three such factors: float32, up to 3e38, holds them.
 */
const MOST_FACTOR = 1e6;

export const FACTOR_RULE = "a number from 1e-6 to 1e6";

/** Whether `value` is such a factor. */
export function isFactor(value: unknown): value is number {
  return typeof value === "number" && value >= 1 / MOST_FACTOR && value <= MOST_FACTOR;
}

/** The public function, for messages. */
export const WHERE = "fromHfConfig";

/** The file beside config.json that says how a model generates. */
export const GENERATION = "generation_config.json";

/** What is wrong with a field of config.json; `why` explains the value, `where` names the public function. */
export function refusal(name: string, rule: string, got: unknown, why = "", where: string = WHERE): HeadwiseError {
  return new HeadwiseError("BAD_FILE", `${where}: ${name} expected ${rule}, got ${describe(got)}${why}`);
}

/** What a file states: the fields of config.json, or the keys of a GGUF file that mean the same. Names are those of config.json. */
export interface Facts {
  /** The layer that these are about; undefined of config.json. */
  readonly layer?: number;
  raw(name: string): unknown;
  /** Whether the file states it, be it null (config.json), which counts as absent everywhere else. */
  has(name: string): boolean;
  /** An integer from 1 to `most`; `fallback` if it is absent; throws if that is absent, too. */
  count(name: string, fallback?: number, most?: number): number;
  /** A count, or `fallback` if it is absent, which like the count can be 0. Default 0. */
  countOrNone(name: string, fallback?: number): number;
  /** A number that is finite and > 0 in float32, or undefined. */
  number(name: string): number | undefined;
  /** A factor on rows, scores or logits, or a bound of these; or undefined. */
  factor(name: string): number | undefined;
  flag(name: string, fallback: boolean): boolean;
  list(name: string): readonly unknown[] | undefined;
  /** What the file states for the layer that these facts are of, where it states it for each; else the fact. */
  ofLayer(name: string): unknown;
  /** What is wrong with a fact, in the words of the function that reads the file. */
  refusal(name: string, rule: string, got: unknown, why?: string): HeadwiseError;
}

/** The fields of an object of config.json. Null counts as absent, as in the library that writes these files. */
export interface Fields extends Facts {
  fields(name: string): Fields | undefined;
  /** Throws unless the field is absent, null or one of `values`. */
  only(name: string, ...values: readonly unknown[]): void;
  /** The same fields, and these where the file lacks them. */
  or(absent: Readonly<Record<string, unknown>>): Fields;
  /** The fields that nobody has asked for, with values other than null. */
  unread(): readonly (readonly [name: string, value: unknown])[];
}

/** Reads each own field of `value`, and each element of an array in it, once: reading may run code of the caller's. */
export function fieldsOf(title: string, value: unknown, where: string = WHERE): Fields {
  const wrong: Fields["refusal"] = (name, rule, got, why) => refusal(name, rule, got, why, where);
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw wrong(title, "an object", value);
  const own = new Map<string, unknown>(
    Object.entries(value).map(([name, each]) => [name, Array.isArray(each) ? each.slice() : each]),
  );
  const read = new Set<string>();
  const inner = new Map<string, Fields>();
  const raw = (name: string): unknown => {
    read.add(name);
    return own.get(name) ?? undefined;
  };
  return {
    raw,
    refusal: wrong,
    has: (name) => own.has(name),
    count: (name, fallback, most = LARGEST_INT) => {
      const found = raw(name) ?? fallback;
      if (typeof found === "number" && Number.isInteger(found) && found >= 1 && found <= most) return found;
      const beyond = typeof found === "number" && found > most;
      throw wrong(name, beyond ? `an integer from 1 to ${most}` : "an integer >= 1", found);
    },
    countOrNone: (name, fallback = 0) => {
      const found = raw(name) ?? fallback;
      if (typeof found === "number" && Number.isInteger(found) && found >= 0 && found <= LARGEST_INT) return found;
      throw wrong(name, "an integer >= 0", found);
    },
    number: (name) => {
      const found = raw(name);
      if (found === undefined || isPositive(found)) return found;
      throw wrong(name, POSITIVE_RULE, found);
    },
    factor: (name) => {
      const found = raw(name);
      if (found === undefined || isFactor(found)) return found;
      throw wrong(name, FACTOR_RULE, found);
    },
    flag: (name, fallback) => {
      const found = raw(name) ?? fallback;
      if (typeof found !== "boolean") throw wrong(name, "true or false", found);
      return found;
    },
    ofLayer: raw,
    list: (name) => {
      const found = raw(name);
      if (found === undefined || Array.isArray(found)) return found;
      throw wrong(name, "an array", found);
    },
    fields: (name) => {
      const found = raw(name);
      if (found === undefined) return undefined;
      const known = inner.get(name) ?? fieldsOf(name, found, where);
      inner.set(name, known);
      return known;
    },
    only: (name, ...values) => {
      const found = raw(name);
      if (found === undefined || values.includes(found)) return;
      const rule = values.length === 0 ? "null" : values.map((each) => JSON.stringify(each)).join(" or ");
      throw wrong(name, `${rule}, since others are unsupported`, found);
    },
    or: (absent) => fieldsOf(title, { ...absent, ...Object.fromEntries(own) }, where),
    unread: () => [...own].filter(([name, each]) => each !== null && !read.has(name)),
  };
}

/**
 * Runs the checks of `createAttention` or `createLatentAttention` on a configuration from a file. An error names what the file
 * calls the field: `nameOf` gives that for the name of ours, if there is one.
 */
export function checkFileConfig(where: string, check: () => void, nameOf: (ours: string) => string | undefined): void {
  try {
    check();
  } catch (cause) {
    const { message } = cause as Error;
    const [, ours = "", rest = ""] = /^\w+: (.+?)( expected .*)$/s.exec(message) ?? [];
    const theirs = nameOf(ours);
    const name = theirs === undefined ? ours : `${theirs} (${ours})`;
    throw new HeadwiseError("BAD_FILE", `${where}: ${name}${rest}`, { cause });
  }
}

/** The fields that have a value: a layer without biases has no fields for them. */
export function present<T extends object>(fields: T): T {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;
}

/** An attention of an encoder-decoder model: self-attention of the encoder or decoder, or the decoder's cross-attention. */
export type HfPart = "encoder" | "decoder" | "cross";

export const PARTS = ["encoder", "decoder", "cross"] as const;

/** Modules of cross-attention, as models name them. */
const CROSS =
  /^(encoder_attn|encoder_attention|EncDecAttention|crossattention|cross_attn|cross_attention|encoder_decoder_attention|multihead_attn)$/;

/** The part that the names of tensors with this prefix belong to, if the prefix names one. */
export function partOfPrefix(prefix: string): HfPart | undefined {
  const modules = prefix.split(".");
  if (modules.some((name) => CROSS.test(name))) return "cross";
  return modules.find((name): name is "encoder" | "decoder" => name === "encoder" || name === "decoder");
}

/** The index of the layer in a prefix: its first number, as in "decoder.block.3.layer.1.". */
export function layerOfPrefix(prefix: string): number | undefined {
  const number = prefix.split(".").find((name) => /^\d+$/.test(name));
  return number === undefined ? undefined : Number(number);
}

/** The tower of a model of several modalities that a prefix names. */
export function towerOfPrefix(prefix: string): "text" | "vision" | undefined {
  for (const name of prefix.split(".")) {
    if (/^(text|language)(_model)?$/.test(name)) return "text";
    if (/^(vision|visual|image)(_|$)/.test(name)) return "vision";
  }
  return undefined;
}
