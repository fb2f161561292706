// Pages that change their format as they age. How old a page is depends only on the distance between the query's page
// and it: with every page that queries proceed by, the pages whose time has come are encoded anew, the oldest first, each
// one stage further. A page thus goes through the same formats for the same queries, however calls were cut.

import { PAGE } from "../../assembly/layout.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { pointer } from "../wasm/memory.ts";
import { storeRows } from "./append-gather.ts";
import { addressIn, codeIn, entryOf, type PageCode, pageBytes, type Stage, sharedParts } from "./page-layout.ts";
import { AGED_TOKENS, type Aging, type Pages, pageTable } from "./pages.ts";

function tableOf({ memory }: Kernels, pages: Pages, batchRow: number): Uint32Array {
  return memory.u32(pageTable(pages, batchRow), pages.pagesPerRow);
}

/** Ages from which on a page has left its stage, in pages. */
function limitsOf(stages: readonly Stage[]): number[] {
  let limit = 1;
  return stages.slice(0, -1).map(({ pages }) => {
    limit += pages;
    return limit;
  });
}

/** Takes a free slot: `slotsOf` counts as many as a sequence needs at once. */
function takeSlot({ free }: Aging, batchRow: number, stage: number): number {
  const slot = free[batchRow]?.[stage]?.pop();
  if (slot === undefined) throw new Error(`pages: stage ${stage} of sequence ${batchRow} has no free slot`);
  return slot;
}

/** Gives a slot of the first stage to each page of the tokens below `end` that has none. */
export function reachPages(kernels: Kernels, pages: Pages, batchRow: number, end: number): void {
  const { aging } = pages;
  if (!aging) return;
  const table = tableOf(kernels, pages, batchRow);
  for (let page = Math.ceil(end / PAGE) - 1; page >= 0 && table[page] === 0; page--)
    table[page] = entryOf(takeSlot(aging, batchRow, 0), (pages.layout.stages[0] as Stage).code);
}

/** The formats of a page where `length` tokens are held. */
export function codeAt(kernels: Kernels, pages: Pages, page: number, length: number): PageCode {
  const { aging, layout } = pages;
  if (!aging) return codeIn(tableOf(kernels, pages, 0)[page] as number);
  const age = ageOf(length) - page;
  const stage = limitsOf(layout.stages).filter((limit) => limit <= age).length;
  return (layout.stages[stage] as Stage).code;
}

/** Gives page `page` of every sequence a slot for these formats, where it has none yet. */
export function adoptPages(kernels: Kernels, pages: Pages, page: number, code: PageCode): void {
  const { aging } = pages;
  if (!aging) return;
  for (let batchRow = 0; batchRow < pages.batch; batchRow++) {
    const slot = takeSlot(aging, batchRow, stageOf(pages, code));
    tableOf(kernels, pages, batchRow)[page] = entryOf(slot, code);
  }
}

/** The stage whose pages have these formats: no two have the same. */
function stageOf({ layout }: Pages, code: PageCode): number {
  return layout.stages.findIndex((stage) => stage.code === code);
}

/** Makes the pages of a sequence, of which `held` tokens are committed, as old as a query of page `at` wants them. */
export function agePages(kernels: Kernels, pages: Pages, batchRow: number, at: number, held: number): void {
  const { aging } = pages;
  if (!aging) return;
  const limits = limitsOf(pages.layout.stages);
  for (let now = (aging.at[batchRow] as number) + 1; now <= at; now++) {
    for (let stage = limits.length; stage > 0; stage--) {
      const page = now - (limits[stage - 1] as number);
      if (page >= 0) demote(kernels, pages, aging, batchRow, page, stage, page * PAGE < held);
    }
    aging.at[batchRow] = now;
  }
}

/** Encodes a page for a stage. What it was is kept where it may have to be again. */
function demote(
  kernels: Kernels,
  pages: Pages,
  aging: Aging,
  batchRow: number,
  page: number,
  stage: number,
  keep: boolean,
): void {
  const { memory } = kernels;
  const { layout } = pages;
  const before = tableOf(kernels, pages, batchRow)[page] as number;
  if (keep) {
    const bytes = memory.u8(addressIn(before), pageBytes(layout, codeIn(before))).slice();
    aging.old.push({ batchRow, page, entry: before, bytes });
  }
  const after = entryOf(takeSlot(aging, batchRow, stage), (layout.stages[stage] as Stage).code);
  encode(kernels, pages, aging, before, after);
  copyShared(kernels, pages, before, after);
  tableOf(kernels, pages, batchRow)[page] = after;
  release(pages, aging, batchRow, before);
}

/** Writes the numbers of one page to another of other formats. */
function encode(kernels: Kernels, { layout }: Pages, { staging }: Aging, from: number, to: number): void {
  const { memory, table } = kernels;
  const { numKvHeads, headDim, valueDim } = layout;
  const strides = { kStride: numKvHeads * headDim, kHeadStride: headDim, vStride: numKvHeads * valueDim };
  const rows = storeRows(kernels, staging.shape, layout, { ...strides, vHeadStride: valueDim });
  memory.u32(staging.table, 2).set([from, to]);
  const [source, target] = [pointer.pages(staging.table), pointer.pages(staging.table + 4)];
  const [k, v] = [pointer.f32(staging.key), pointer.f32(staging.value)];
  for (let slot = 0; slot < PAGE; slot += AGED_TOKENS) {
    table.gather_pages(k, v, source, rows, slot, 0, AGED_TOKENS);
    table.append_pages(target, k, v, rows, slot, 0, AGED_TOKENS);
  }
}

/** Copies the keys, or the values, that stay in their format: encoded again, the largest float in q8 would be NaN. */
function copyShared({ memory }: Kernels, { layout }: Pages, before: number, after: number): void {
  for (const { from, to, bytes } of sharedParts(layout, codeIn(before), codeIn(after)))
    memory.u8(addressIn(after) + to, bytes).set(memory.u8(addressIn(before) + from, bytes));
}

/** Forgets the tokens from `length` on: the slots of their pages are free again. */
export function dropPages(kernels: Kernels, pages: Pages, length: number): void {
  const { aging, batch } = pages;
  if (!aging) return;
  for (let batchRow = 0; batchRow < batch; batchRow++) {
    const table = tableOf(kernels, pages, batchRow);
    for (let page = Math.ceil(length / PAGE); page < table.length && table[page] !== 0; page++) {
      release(pages, aging, batchRow, table[page] as number);
      table[page] = 0;
    }
    aging.at[batchRow] = Math.min(aging.at[batchRow] as number, ageOf(length));
  }
}

function release(pages: Pages, { free }: Aging, batchRow: number, entry: number): void {
  free[batchRow]?.[stageOf(pages, codeIn(entry))]?.push(addressIn(entry));
}

/** Takes back what calls that were not committed have done: `length` tokens are held. */
export function restorePages(kernels: Kernels, pages: Pages, length: number): void {
  const { aging } = pages;
  if (!aging) return;
  dropPages(kernels, pages, length);
  for (let last = aging.old.pop(); last; last = aging.old.pop()) {
    const { batchRow, page, entry, bytes } = last;
    const table = tableOf(kernels, pages, batchRow);
    release(pages, aging, batchRow, table[page] as number);
    const slot = takeSlot(aging, batchRow, stageOf(pages, codeIn(entry)));
    kernels.memory.u8(slot, bytes.length).set(bytes);
    table[page] = entryOf(slot, codeIn(entry));
  }
}

/** The page of the last of `length` tokens. */
export function ageOf(length: number): number {
  return Math.max(0, Math.ceil(length / PAGE) - 1);
}

/** The fewest tokens, but none at all, that pages which have aged with `length` can be cut to. */
export function leastLength({ aging, layout }: Pages, length: number): number {
  const page = ageOf(length);
  if (!aging || page < (limitsOf(layout.stages)[0] as number)) return 0;
  return page * PAGE + 1;
}
