// Pages that change their format with age. The age of a page is its distance from the query's page. With every page
// that the queries advance, the pages that have reached a limit are re-encoded, the oldest first, each for the next
// stage. So a page has the same formats for the same queries, however calls were cut.

import { PAGE } from "../../assembly/layout.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { pointer } from "../wasm/memory.ts";
import { storeRows } from "./append-gather.ts";
import { addressIn, codeIn, entryOf, type PageCode, pageBytes, type Stage, sharedParts } from "./page-layout.ts";
import { AGED_TOKENS, type Aging, type Pages, pageTable } from "./pages.ts";

function tableOf({ memory }: Kernels, pages: Pages, batchRow: number): Uint32Array {
  return memory.u32(pageTable(pages, batchRow), pages.pagesPerRow);
}

/** For each stage but the last, the age in pages at which a page leaves it. */
function limitsOf(stages: readonly Stage[]): number[] {
  let limit = 1;
  return stages.slice(0, -1).map(({ pages }) => {
    limit += pages;
    return limit;
  });
}

/** Takes a free slot. One exists, because `slotsOf` counts as many as a sequence needs at once. */
function takeSlot({ free }: Aging, batchRow: number, stage: number): number {
  const slot = free[batchRow]?.[stage]?.pop();
  if (slot === undefined) throw new Error(`pages: stage ${stage} of sequence ${batchRow} has no free slot`);
  return slot;
}

/** Gives each page of the tokens below `end` that has no slot one of the first stage. */
export function reachPages(kernels: Kernels, pages: Pages, batchRow: number, end: number): void {
  const { aging } = pages;
  if (!aging) return;
  const table = tableOf(kernels, pages, batchRow);
  for (let page = Math.ceil(end / PAGE) - 1; page >= 0 && table[page] === 0; page--)
    table[page] = entryOf(takeSlot(aging, batchRow, 0), (pages.layout.stages[0] as Stage).code);
}

/** The formats of a page when `length` tokens are held. */
export function codeAt(kernels: Kernels, pages: Pages, page: number, length: number): PageCode {
  const { aging, layout } = pages;
  if (!aging) return codeIn(tableOf(kernels, pages, 0)[page] as number);
  const age = ageOf(length) - page;
  const stage = limitsOf(layout.stages).filter((limit) => limit <= age).length;
  return (layout.stages[stage] as Stage).code;
}

/** Gives page `page` of every sequence, which has no slot yet, a slot for these formats. */
export function adoptPages(kernels: Kernels, pages: Pages, page: number, code: PageCode): void {
  const { aging } = pages;
  if (!aging) return;
  for (let batchRow = 0; batchRow < pages.batch; batchRow++) {
    const slot = takeSlot(aging, batchRow, stageOf(pages, code));
    tableOf(kernels, pages, batchRow)[page] = entryOf(slot, code);
  }
}

/** The stage with these formats; no two stages have the same. */
function stageOf({ layout }: Pages, code: PageCode): number {
  return layout.stages.findIndex((stage) => stage.code === code);
}

/** Ages the pages of a sequence, of which `held` tokens are committed, for queries of page `at`. */
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

/** Re-encodes a page for a stage. With `keep`, a copy of the old page is kept until the call commits. */
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

/** Converts the page of table entry `from` to the formats of entry `to`. */
function encode(kernels: Kernels, { layout }: Pages, { staging }: Aging, from: number, to: number): void {
  const { memory, table } = kernels;
  const { numKvHeads, headDim, valueDim } = layout;
  const { gather, append } = layout.kernels;
  const strides = { kStride: numKvHeads * headDim, kHeadStride: headDim, vStride: numKvHeads * valueDim };
  const rows = storeRows(kernels, staging.shape, layout, { ...strides, vHeadStride: valueDim });
  memory.u32(staging.table, 2).set([from, to]);
  const [source, target] = [pointer.pages(staging.table), pointer.pages(staging.table + 4)];
  const [k, v] = [pointer.f32(staging.key), pointer.f32(staging.value)];
  for (let slot = 0; slot < PAGE; slot += AGED_TOKENS) {
    table[gather](k, v, source, rows, slot, 0, AGED_TOKENS);
    table[append](target, k, v, rows, slot, 0, AGED_TOKENS);
  }
}

/**
 * Copies keys or values whose format stays the same, since re-encoding is not exact: the largest float in q8 would
 * become NaN.
 */
function copyShared({ memory }: Kernels, { layout }: Pages, before: number, after: number): void {
  for (const { from, to, bytes } of sharedParts(layout, codeIn(before), codeIn(after)))
    memory.u8(addressIn(after) + to, bytes).set(memory.u8(addressIn(before) + from, bytes));
}

/** Removes the tokens from `length` on and frees the slots of their pages. */
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

/** Undoes what uncommitted calls did; afterwards `length` tokens are held. */
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

/**
 * The smallest length, other than 0, that pages which have aged with `length` tokens can be truncated to; 0 if none has
 * aged.
 */
export function leastLength({ aging, layout }: Pages, length: number): number {
  const page = ageOf(length);
  if (!aging || page < (limitsOf(layout.stages)[0] as number)) return 0;
  return page * PAGE + 1;
}
