// The layout of cache pages in memory, and the option that says their formats. Only this file knows the codes of formats, the sizes
// in bytes, and which kernels read and write pages.

import {
  FORMAT_F16,
  FORMAT_F32,
  FORMAT_Q4,
  FORMAT_Q8,
  LATENT_PAGES,
  PAGE,
  PANEL,
  QUAD,
} from "../../../assembly/layout.ts";
import { expectInt, expectOneOf, readFields, wrongType, wrongValue } from "../../base/util/arguments.ts";
import { aligned } from "../../wasm/memory.ts";
import { expectFormatLoaded, wholePanels } from "../linear/formats.ts";

/** Floats of 32 or 16 bits, or integers of 8 or 4 bits with one scale for each token and head. */
export type CacheFormat = "f32" | "f16" | "q8" | "q4";

/** The formats of a cache's keys and of its values. */
export interface CacheFormats {
  /** Format of keys. "q8" and "q4" need a headDim of at most 2048. */
  readonly keys: CacheFormat;
  /** Format of values. */
  readonly values: CacheFormat;
}

/** The formats in the order of their codes in the kernels, from more to fewer bits. */
export const CACHE_FORMATS: readonly CacheFormat[] = ["f32", "f16", "q8", "q4"];

/** The formats of a page as a number: keys in bits 0 and 1, values in bits 2 and 3. */
export type PageCode = number;

const keyCode = (code: PageCode) => code & 3;
const valueCode = (code: PageCode) => (code >> 2) & 3;

function encodeFormats({ keys, values }: CacheFormats): PageCode {
  return CACHE_FORMATS.indexOf(keys) | (CACHE_FORMATS.indexOf(values) << 2);
}

function decodeFormats(code: PageCode): CacheFormats {
  return { keys: CACHE_FORMATS[keyCode(code)] as CacheFormat, values: CACHE_FORMATS[valueCode(code)] as CacheFormat };
}

/** An entry of a page table: the page's address, whose low bits are free because pages are aligned, and its code. */
const CODE_BITS = 15;

export const entryOf = (address: number, code: PageCode): number => address + code;
export const addressIn = (entry: number): number => (entry & ~CODE_BITS) >>> 0;
export const codeIn = (entry: number): PageCode => entry & CODE_BITS;

/** The formats of pages of some age, and how many pages have that age. */
export interface Stage {
  readonly code: PageCode;
  readonly pages: number;
}

/** The sizes that pages depend on, and what they hold: keys and values of heads where it is undefined. */
export interface PageShape {
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly kind?: PageKind | undefined;
}

/** Everything that depends on the sizes and formats of pages; made once for each cache. */
export interface PageLayout extends PageShape {
  /** The stages of a page from new to old; one if pages keep their format. */
  readonly stages: readonly Stage[];
  /** All formats of the stages, as in AttentionShape: bit f for keys, bit 4 + f for values. */
  readonly formats: number;
  readonly kernels: PageKernels;
}

const FLOAT_KERNELS = {
  append: "append_f32",
  gather: "gather_f32",
  attention: "attention_f32",
  scores: "scores_f32",
} as const;
const FORMAT_KERNELS = {
  append: "append_pages",
  gather: "gather_pages",
  attention: "attention_pages",
  scores: "scores_pages",
} as const;

/** The names of the kernels that work on pages: those for float32, those for any formats, or those of a kind of pages. */
type PageKernels = typeof FLOAT_KERNELS | typeof FORMAT_KERNELS | PageKind["kernels"];

/** Pages that hold something else than keys and values of heads: `PageShape.kind`. */
export interface PageKind {
  /** Set in the formats of the layout, for the kernels. */
  readonly flag: number;
  readonly kernels: {
    readonly append: "append_latents";
    readonly gather: "gather_latents";
    readonly attention: "attention_latents";
    readonly scores: "scores_f32";
  };
  /** Components of a key that take room in a page. */
  keyComponents(headDim: number): number;
  /** Throws for stages that these pages cannot have. */
  checkStages(where: string, path: string): void;
  /** Throws for formats that these pages cannot have. */
  checkFormats(where: string, path: string, formats: CacheFormats, shape: PageShape): void;
}

const FLOATS = /* @__PURE__ */ encodeFormats({ keys: "f32", values: "f32" });

/** Float32 pages, which keep their format. */
const FLOAT_STAGES: readonly Stage[] = [{ code: FLOATS, pages: Infinity }];

/** The formats of a page as one bit each, as in `PageLayout.formats`. */
const formatBits = (code: PageCode) => (1 << keyCode(code)) | (16 << valueCode(code));

export function createPageLayout(shape: PageShape, stages: readonly Stage[] = FLOAT_STAGES): PageLayout {
  const { numKvHeads, headDim, valueDim } = shape;
  const kind = shape.kind;
  const formats = stages.reduce((bits, { code }) => bits | formatBits(code), kind ? kind.flag : 0);
  const kernels = kind ? kind.kernels : kernelsFor(formats);
  return { numKvHeads, headDim, valueDim, kind, stages, formats, kernels };
}

/** The kernels for pages of keys and values of these formats, with bits as in PageLayout. */
export function kernelsFor(formats: number): typeof FLOAT_KERNELS | typeof FORMAT_KERNELS {
  return (formats & ~formatBits(FLOATS)) === 0 ? FLOAT_KERNELS : FORMAT_KERNELS;
}

const isInteger = (format: number) => format === FORMAT_Q8 || format === FORMAT_Q4;
const wholeQuads = (components: number) => QUAD * Math.ceil(components / QUAD);

/** Bytes of the keys, or of the values, of one kv head in a page. */
function partBytes(format: number, components: number): number {
  if (!isInteger(format)) return PAGE * components * (format === FORMAT_F32 ? 4 : 2);
  return (PAGE * wholeQuads(components)) / (format === FORMAT_Q8 ? 1 : 2) + 4 * PAGE;
}

/** Bytes of a head's keys and of its values, which follow them. */
function headBytes(shape: PageShape, code: PageCode): { keys: number; values: number } {
  const { headDim, valueDim } = shape;
  const components = shape.kind?.keyComponents(headDim) ?? headDim;
  return { keys: partBytes(keyCode(code), components), values: partBytes(valueCode(code), wholePanels(valueDim)) };
}

/** Bytes of a page: all heads, one after the other. */
export function pageBytes(shape: PageShape, code: PageCode): number {
  const { keys, values } = headBytes(shape, code);
  return aligned(shape.numKvHeads * (keys + values));
}

/** A part that has the same format in two pages: its offset in each, and its bytes. */
interface SharedPart {
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

/** The keys and the values of each head whose format is the same in a page of code `from` and one of code `to`. */
export function* sharedParts(shape: PageShape, from: PageCode, to: PageCode): Generator<SharedPart, void, void> {
  const [source, target] = [headBytes(shape, from), headBytes(shape, to)];
  for (let head = 0; head < shape.numKvHeads; head++) {
    const [a, b] = [head * (source.keys + source.values), head * (target.keys + target.values)];
    if (keyCode(from) === keyCode(to)) yield { from: a, to: b, bytes: target.keys };
    if (valueCode(from) === valueCode(to)) yield { from: a + source.keys, to: b + target.keys, bytes: target.values };
  }
}

/**
 * Bytes of the attention kernel's scratch for pages of these formats, besides what all formats need: `query` for each
 * of its rows, and `page` for a head of a page.
 */
export function formatScratch({
  headDim,
  valueDim,
  formats,
}: Pick<PageLayout, "headDim" | "valueDim" | "formats">): Record<"query" | "page", number> {
  const has = (format: number) => (formats & (1 << format)) !== 0;
  const widened = (shift: number, components: number) => {
    if (has(shift + FORMAT_F16)) return 4 * PAGE * components;
    return has(shift + FORMAT_Q4) ? PAGE * wholeQuads(components) : 0;
  };
  const page = formats & LATENT_PAGES ? 4 * PAGE * PANEL : widened(4, wholePanels(valueDim));
  return {
    query: has(FORMAT_Q8) || has(FORMAT_Q4) ? 2 * wholeQuads(headDim) : 0,
    page: widened(0, headDim) + page,
  };
}

// The option `format` of a cache.

/** One of the stages that the tokens of a cache go through as they age. */
export interface CacheStage extends CacheFormats {
  /** How many tokens the stage covers, a multiple of 128. The last stage covers all older tokens and has no number. */
  readonly tokens?: number | undefined;
}

/** The most components of a key for which sums of 14-bit by 8-bit products fit in 32 bits. */
const MOST_INTEGER_DIM = 2048;

/** Throws for an integer format of keys of `dim` components, which the caller knows as `of`, if these are too many. */
export function expectIntegerDim(where: string, path: string, of: string, dim: number, format: CacheFormat): void {
  if (dim > MOST_INTEGER_DIM && (format === "q8" || format === "q4"))
    throw wrongValue(where, path, `"f32" or "f16" for ${of} above ${MOST_INTEGER_DIM}`, format, "string");
}

/**
 * Checks the option `format` of a cache, named `path` in errors, and returns the stages of its pages, from new to old.
 */
export function checkCacheFormat(where: string, path: string, format: unknown, shape: PageShape): readonly Stage[] {
  if (format === undefined) return checkCacheFormat(where, path, "f32", shape);
  if (typeof format === "string") {
    const name = expectOneOf(where, path, format, CACHE_FORMATS);
    return checkCacheFormat(where, path, { keys: name, values: name }, shape);
  }
  if (format === null || typeof format !== "object" || ArrayBuffer.isView(format))
    throw wrongType(where, path, "a format's name, { keys, values } or an array of stages", format);
  if (!Array.isArray(format)) return [checkStage(where, path, format as CacheStage, shape, ["keys", "values"])];
  const { length } = format;
  shape.kind?.checkStages(where, path);
  if (length === 0) throw new RangeError(`${where}: ${path} expected one stage or more, got none`);
  const stages: Stage[] = [];
  for (let i = 0; i < length; i++) {
    const fields = i === length - 1 ? (["keys", "values"] as const) : (["keys", "values", "tokens"] as const);
    stages.push(checkStage(where, `${path}[${i}]`, format[i], shape, fields));
  }
  for (const [i, { code }] of stages.slice(1).entries()) {
    const before = (stages[i] as Stage).code;
    const at = `${path}[${i + 1}]`;
    if (before === code)
      throw new RangeError(`${where}: ${at} expected other formats than the stage before, got the same`);
    const [was, is] = [decodeFormats(before), decodeFormats(code)];
    for (const name of ["keys", "values"] as const)
      if (CACHE_FORMATS.indexOf(is[name]) < CACHE_FORMATS.indexOf(was[name]))
        throw wrongValue(where, `${at}.${name}`, `no more bits than before ("${was[name]}")`, is[name], "string");
  }
  return stages;
}

function checkStage(
  where: string,
  name: string,
  given: CacheStage,
  shape: PageShape,
  fields: readonly (keyof CacheStage)[],
): Stage {
  const stage = readFields(where, name, given, fields);
  const keys = expectOneOf(where, `${name}.keys`, stage.keys, CACHE_FORMATS);
  const values = expectOneOf(where, `${name}.values`, stage.values, CACHE_FORMATS);
  if (shape.kind) shape.kind.checkFormats(where, name, { keys, values }, shape);
  else expectIntegerDim(where, `${name}.keys`, "headDim", shape.headDim, keys);
  const code = encodeFormats({ keys, values });
  if (!fields.includes("tokens")) return { code, pages: Infinity };
  const tokens = expectInt(where, `${name}.tokens`, stage.tokens, PAGE);
  if (tokens % PAGE !== 0) throw wrongValue(where, `${name}.tokens`, `a multiple of ${PAGE}`, tokens);
  return { code, pages: tokens / PAGE };
}

/** Throws NO_QUANTIZED for formats other than float32 if their kernels are not loaded. */
export function expectStagesLoaded(where: string, quantized: boolean, stages: readonly Stage[]): void {
  for (const { code } of stages)
    for (const [name, format] of Object.entries(decodeFormats(code)))
      expectFormatLoaded(where, quantized, name, format);
}

/** The stages in the form of CacheOptions, frozen. */
export function describeStages(stages: readonly Stage[]): readonly CacheStage[] {
  return Object.freeze(
    stages.map(({ code, pages }) =>
      Object.freeze({
        ...decodeFormats(code),
        ...(pages === Infinity ? {} : { tokens: pages * PAGE }),
      }),
    ),
  );
}

/** The formats of a page as text. */
export function describeFormats(code: PageCode): string {
  const { keys, values } = decodeFormats(code);
  return `keys "${keys}" and values "${values}"`;
}
