// Cache pages: their layout in memory, and the tables by which kernels reach them.

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
import { CHUNK_ROWS } from "../../base/util/rows.ts";
import { CACHE_SHAPE_BYTES, type PagesPtr } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { aligned, Layout, pointer } from "../../wasm/memory.ts";
import { wholePanels } from "../linear/formats/format.ts";

// The layout of cache pages in memory. Only this file knows the codes of formats, the sizes in bytes, and which kernels
// read and write pages.

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

export function encodeFormats({ keys, values }: CacheFormats): PageCode {
  return CACHE_FORMATS.indexOf(keys) | (CACHE_FORMATS.indexOf(values) << 2);
}

export function decodeFormats(code: PageCode): CacheFormats {
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

/** Float32 pages, which keep their format. */
const FLOAT_STAGES: readonly Stage[] = [
  { code: encodeFormats({ keys: "f32", values: "f32" }), pages: Number.POSITIVE_INFINITY },
];

export function createPageLayout(shape: PageShape, stages: readonly Stage[] = FLOAT_STAGES): PageLayout {
  const { numKvHeads, headDim, valueDim } = shape;
  const kind = shape.kind;
  const formats = stages.reduce(
    (bits, { code }) => bits | (1 << keyCode(code)) | (16 << valueCode(code)),
    kind ? kind.flag : 0,
  );
  const kernels = kind ? kind.kernels : kernelsFor(formats);
  return { numKvHeads, headDim, valueDim, kind, stages, formats, kernels };
}

/** The kernels for pages of keys and values of these formats, with bits as in PageLayout. */
export function kernelsFor(formats: number): typeof FLOAT_KERNELS | typeof FORMAT_KERNELS {
  const floats = (1 << FORMAT_F32) | (16 << FORMAT_F32);
  return (formats & ~floats) === 0 ? FLOAT_KERNELS : FORMAT_KERNELS;
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

/**
 * Keys and values of `batch` sequences in pages of 128 absolute positions, laid out as assembly/cache/page.ts
 * describes. One block: the tables of addresses, then the pages.
 */
export interface Pages {
  readonly at: number;
  readonly batch: number;
  readonly pagesPerRow: number;
  readonly layout: PageLayout;
  readonly retention: Retention;
  /** Defined if pages change their format with age, or are dropped behind the window. */
  readonly aging: Aging | undefined;
}

/** What is kept of a sequence: the keys before the query's own that a window covers, for `truncatable` tokens back. */
export interface Retention {
  readonly left: number;
  readonly truncatable: number;
}

/** Every key is kept. */
const ALL: Retention = { left: Number.POSITIVE_INFINITY, truncatable: Number.POSITIVE_INFINITY };

/** A page before uncommitted calls changed it: its table entry, and its bytes. */
interface OldPage {
  readonly batchRow: number;
  readonly page: number;
  readonly entry: number;
  readonly bytes: Uint8Array;
}

/** The state of pages that age. Table entries are 0 where no slot is taken; slots are taken from those of a stage. */
export interface Aging {
  /** How many of the last tokens are kept: those of the window, and `truncatable` more; Infinity if none is dropped. */
  readonly span: number;
  /** For each stage, the age in pages at which a page leaves it: for the next one, or, from the last one, dropped. */
  readonly limits: readonly number[];
  /** Free slots, by sequence and by stage. */
  readonly free: readonly number[][][];
  /** Pages that changed since the last commit, in order. */
  readonly old: OldPage[];
  /** For each sequence, the query's page that determined the current age of its pages. */
  readonly at: number[];
  /** For each sequence, the page after the last one that has had a slot. */
  readonly end: number[];
  /** The first committed token that is kept. It only grows, until nothing is held. */
  start: number;
  /** Addresses of room for AGED_TOKENS tokens while their format changes, and for their strides and tables. */
  readonly staging: { readonly key: number; readonly value: number; readonly shape: number; readonly table: number };
}

/** Tokens that are re-encoded at a time: a panel of keys. */
export const AGED_TOKENS: number = PANEL;

/** Pages, besides the first, that the keys of a chunk take, which are appended before its queries are computed. */
const AHEAD = CHUNK_ROWS / PAGE;

function tableBytes(pagesPerRow: number): number {
  return aligned(pagesPerRow * 4);
}

const spanOf = ({ left, truncatable }: Retention) => left + truncatable;

/**
 * The age in pages at which a page is dropped; Infinity if that frees nothing. At the first query of a page, no older
 * page is needed any more, neither by it nor after the truncation of `truncatable` tokens.
 */
function droppedAge(retention: Retention, pagesPerRow: number): number {
  const age = 1 + Math.ceil(spanOf(retention) / PAGE);
  return age + AHEAD < pagesPerRow ? age : Number.POSITIVE_INFINITY;
}

/** The `limits` of Aging. */
function limitsOf(stages: readonly Stage[], dropped: number): number[] {
  let limit = 1;
  return stages.map(({ pages }) => {
    limit += pages;
    return Math.min(limit, dropped);
  });
}

/** Slots of each stage that a sequence of up to `pagesPerRow` pages needs at once. */
function slotsOf(limits: readonly number[], pagesPerRow: number): number[] {
  let younger = 0;
  return limits.map((limit, i) => {
    const slots = Math.min(pagesPerRow - younger, limit - younger + (i === 0 ? AHEAD : 0));
    younger = Math.min(pagesPerRow, limit);
    return slots;
  });
}

/** The offsets of tables, staging memory and slots in the block. */
function placePages(pageLayout: PageLayout, batch: number, maxSeqLen: number, retention: Retention) {
  const { numKvHeads, headDim, valueDim, stages } = pageLayout;
  const pagesPerRow = Math.ceil(maxSeqLen / PAGE);
  const limits = limitsOf(stages, droppedAge(retention, pagesPerRow));
  const layout = new Layout();
  layout.take(batch * tableBytes(pagesPerRow));
  const tokens = stages.length > 1 ? AGED_TOKENS : 0;
  const staging = {
    key: layout.floats(tokens * numKvHeads * headDim),
    value: layout.floats(tokens * numKvHeads * valueDim),
    shape: layout.take(tokens && CACHE_SHAPE_BYTES),
    table: layout.take(tokens && 8),
  };
  const slots = slotsOf(limits, pagesPerRow).map((count, i) => {
    const bytes = pageBytes(pageLayout, (stages[i] as Stage).code);
    return { at: layout.take(batch * count * bytes), count, bytes };
  });
  return { pagesPerRow, limits, staging, slots, bytes: layout.bytes };
}

/** Bytes that `allocatePages` takes. */
export function pagesBytes(layout: PageLayout, batch: number, maxSeqLen: number, retention: Retention = ALL): number {
  return placePages(layout, batch, maxSeqLen, retention).bytes;
}

/**
 * Allocates pages for `batch` sequences of up to `maxSeqLen` tokens. Their content is unspecified, and never attended.
 */
export function allocatePages(
  where: string,
  kernels: Kernels,
  layout: PageLayout,
  batch: number,
  maxSeqLen: number,
  retention: Retention = ALL,
): Pages {
  const at = kernels.memory.allocate(where, pagesBytes(layout, batch, maxSeqLen, retention));
  return pagesAt(kernels, at, layout, batch, maxSeqLen, retention);
}

/** The same in a block that the caller has allocated, of `pagesBytes`. */
export function pagesAt(
  { memory }: Kernels,
  at: number,
  layout: PageLayout,
  batch: number,
  maxSeqLen: number,
  retention: Retention = ALL,
): Pages {
  const { pagesPerRow, limits, staging, slots } = placePages(layout, batch, maxSeqLen, retention);
  const rows = Array.from({ length: batch }, (_, b) => b);
  const aging = (limits[0] as number) < Number.POSITIVE_INFINITY && {
    span: (limits.at(-1) as number) < Number.POSITIVE_INFINITY ? spanOf(retention) : Number.POSITIVE_INFINITY,
    limits,
    free: rows.map((b) =>
      slots.map((slot) =>
        // The last is taken first: neighbouring pages are then neighbours in memory, which CPUs read faster.
        Array.from({ length: slot.count }, (_, i) => at + slot.at + ((b + 1) * slot.count - 1 - i) * slot.bytes),
      ),
    ),
    old: [],
    at: rows.map(() => 0),
    end: rows.map(() => 0),
    start: 0,
    staging: {
      key: at + staging.key,
      value: at + staging.value,
      shape: at + staging.shape,
      table: at + staging.table,
    },
  };
  const pages: Pages = { at, batch, pagesPerRow, layout, retention, aging: aging || undefined };
  const [first] = slots as [(typeof slots)[number]];
  const { code } = layout.stages[0] as Stage;
  for (const b of rows) {
    const table = memory.u32(pageTable(pages, b), pagesPerRow);
    for (let p = 0; p < pagesPerRow; p++)
      table[p] = aging ? 0 : entryOf(at + first.at + (b * pagesPerRow + p) * first.bytes, code);
  }
  return pages;
}

/** The page table of one sequence. */
export function pageTable({ at, pagesPerRow }: Pages, batchRow: number): PagesPtr {
  return pointer.pages(at + batchRow * tableBytes(pagesPerRow));
}

/** The address of a page of one sequence. */
export function pageAddress({ memory }: Kernels, pages: Pages, batchRow: number, page: number): number {
  return addressIn(memory.u32(pageTable(pages, batchRow), pages.pagesPerRow)[page] as number);
}
