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
  /** Defined if pages change their format with age. */
  readonly aging: Aging | undefined;
}

/** A page before uncommitted calls changed it: its table entry, and its bytes. */
interface OldPage {
  readonly batchRow: number;
  readonly page: number;
  readonly entry: number;
  readonly bytes: Uint8Array;
}

/** The state of pages that age. Table entries are 0 until a key is appended; slots are taken from those of a stage. */
export interface Aging {
  /** Free slots, by sequence and by stage. */
  readonly free: readonly number[][][];
  /** Pages that changed since the last commit, in order. */
  readonly old: OldPage[];
  /** For each sequence, the query's page that determined the current age of its pages. */
  readonly at: number[];
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

/** Slots of each stage that a sequence of up to `pagesPerRow` pages needs at once. */
function slotsOf(stages: readonly Stage[], pagesPerRow: number): number[] {
  let younger = 0;
  return stages.map(({ pages }, i) => {
    // The query's own page is in the first stage, in addition to the stage's count.
    const most = i === 0 ? pages + 1 + AHEAD : pages;
    const slots = Math.min(pagesPerRow - younger, most);
    younger = Math.min(pagesPerRow, younger + pages + (i === 0 ? 1 : 0));
    return slots;
  });
}

/** The offsets of tables, staging memory and slots in the block. */
function placePages(pageLayout: PageLayout, batch: number, maxSeqLen: number) {
  const { numKvHeads, headDim, valueDim, stages } = pageLayout;
  const pagesPerRow = Math.ceil(maxSeqLen / PAGE);
  const layout = new Layout();
  layout.take(batch * tableBytes(pagesPerRow));
  const tokens = stages.length > 1 ? AGED_TOKENS : 0;
  const staging = {
    key: layout.floats(tokens * numKvHeads * headDim),
    value: layout.floats(tokens * numKvHeads * valueDim),
    shape: layout.take(tokens && CACHE_SHAPE_BYTES),
    table: layout.take(tokens && 8),
  };
  const slots = slotsOf(stages, pagesPerRow).map((count, i) => {
    const bytes = pageBytes(pageLayout, (stages[i] as Stage).code);
    return { at: layout.take(batch * count * bytes), count, bytes };
  });
  return { pagesPerRow, staging, slots, bytes: layout.bytes };
}

/** Bytes that `allocatePages` takes. */
export function pagesBytes(layout: PageLayout, batch: number, maxSeqLen: number): number {
  return placePages(layout, batch, maxSeqLen).bytes;
}

/**
 * Allocates pages for `batch` sequences of up to `maxSeqLen` tokens. Their content is unspecified, and never attended.
 */
export function allocatePages(
  where: string,
  { memory }: Kernels,
  layout: PageLayout,
  batch: number,
  maxSeqLen: number,
): Pages {
  const { pagesPerRow, staging, slots, bytes } = placePages(layout, batch, maxSeqLen);
  const at = memory.allocate(where, bytes);
  const rows = Array.from({ length: batch }, (_, b) => b);
  const aging = layout.stages.length > 1 && {
    free: rows.map((b) =>
      slots.map((slot) =>
        Array.from({ length: slot.count }, (_, i) => at + slot.at + (b * slot.count + i) * slot.bytes),
      ),
    ),
    old: [],
    at: rows.map(() => 0),
    staging: {
      key: at + staging.key,
      value: at + staging.value,
      shape: at + staging.shape,
      table: at + staging.table,
    },
  };
  const pages: Pages = { at, batch, pagesPerRow, layout, aging: aging || undefined };
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
