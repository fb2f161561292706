import { PAGE, PANEL } from "../../assembly/layout.ts";
import { CHUNK_ROWS } from "../util/rows.ts";
import { CACHE_SHAPE_BYTES, type PagesPtr } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { aligned, Layout, pointer } from "../wasm/memory.ts";
import { addressIn, entryOf, type PageLayout, pageBytes, type Stage } from "./page-layout.ts";

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
