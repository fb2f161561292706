// Pages that change their format with age, and are dropped behind the window. The age of a page is its distance from the
// query's page. With every page that the queries advance, the pages that have reached a limit are re-encoded for the next
// stage, or dropped after the last one, the oldest first. So a page has the same formats for the same queries, however
// calls were cut.

import { PAGE } from "../../../assembly/layout.ts";
import { createBytes } from "../../base/tensor/tensor.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { pointer } from "../../wasm/memory.ts";
import { storeRows } from "./page-rows.ts";
import {
  AGED_TOKENS,
  type Aging,
  addressIn,
  codeIn,
  entryOf,
  type PageCode,
  type Pages,
  pageBytes,
  pageTable,
  type Stage,
  sharedParts,
} from "./pages.ts";

function tableOf({ memory }: Kernels, pages: Pages, batchRow: number): Uint32Array {
  return memory.u32(pageTable(pages, batchRow), pages.pagesPerRow);
}

/** The slot that `takeSlot` takes. One exists, because `slotsOf` counts as many as a sequence needs at once. */
function freeSlot({ free }: Aging, batchRow: number, stage: number): number {
  const slot = free[batchRow]?.[stage]?.at(-1);
  if (slot === undefined) throw new Error(`pages: stage ${stage} of sequence ${batchRow} has no free slot`);
  return slot;
}

function takeSlot(aging: Aging, batchRow: number, stage: number): number {
  const slot = freeSlot(aging, batchRow, stage);
  aging.free[batchRow]?.[stage]?.pop();
  return slot;
}

/** Gives each page of the tokens below `end` that has had no slot one of the first stage. */
export function reachPages(kernels: Kernels, pages: Pages, batchRow: number, end: number): void {
  const { aging } = pages;
  if (!aging) return;
  const after = Math.ceil(end / PAGE);
  for (let page = aging.end[batchRow] as number; page < after; page++)
    giveSlot(kernels, pages, aging, batchRow, page, 0);
}

/** Whether neither the page of a token behind `past` others is new, nor others age for it. */
export function isSettled({ aging }: Pages, past: number): boolean {
  const page = Math.floor(past / PAGE);
  return !aging || ((aging.at[0] as number) >= page && (aging.end[0] as number) > page);
}

/** Gives a page that has none a slot of a stage. */
function giveSlot(kernels: Kernels, pages: Pages, aging: Aging, batchRow: number, page: number, stage: number): void {
  const { code } = pages.layout.stages[stage] as Stage;
  tableOf(kernels, pages, batchRow)[page] = entryOf(takeSlot(aging, batchRow, stage), code);
  aging.end[batchRow] = page + 1;
}

/** The formats of a page when `length` tokens are held. */
export function codeAt(kernels: Kernels, pages: Pages, page: number, length: number): PageCode {
  const { aging, layout } = pages;
  if (!aging) return codeIn(tableOf(kernels, pages, 0)[page] as number);
  const age = ageOf(length) - page;
  const stage = aging.limits.filter((limit) => limit <= age).length;
  return (layout.stages[stage] as Stage).code;
}

/** Gives page `page` of every sequence, which has no slot yet, a slot for these formats. */
export function adoptPages(kernels: Kernels, pages: Pages, page: number, code: PageCode): void {
  const { aging } = pages;
  if (!aging) return;
  for (let batchRow = 0; batchRow < pages.batch; batchRow++)
    giveSlot(kernels, pages, aging, batchRow, page, stageOf(pages, code));
}

/** The stage with these formats; no two stages have the same. */
function stageOf({ layout }: Pages, code: PageCode): number {
  return layout.stages.findIndex((stage) => stage.code === code);
}

/** Ages the pages of a sequence, of which `held` tokens are committed, for queries of page `at`. */
export function agePages(
  where: string,
  kernels: Kernels,
  pages: Pages,
  batchRow: number,
  at: number,
  held: number,
): void {
  const { aging } = pages;
  if (!aging) return;
  const { limits } = aging;
  for (let now = (aging.at[batchRow] as number) + 1; now <= at; now++) {
    for (let stage = limits.length; stage > 0; stage--)
      movePage(where, kernels, pages, aging, batchRow, now - (limits[stage - 1] as number), stage, held);
    aging.at[batchRow] = now;
  }
}

/**
 * Re-encodes a page for a stage, or drops it after the last one. A copy of a committed page is kept until the call
 * commits, unless it is dropped and no later call needs it.
 */
function movePage(
  where: string,
  kernels: Kernels,
  pages: Pages,
  aging: Aging,
  batchRow: number,
  page: number,
  stage: number,
  held: number,
): void {
  const { memory } = kernels;
  const { layout } = pages;
  const before = tableOf(kernels, pages, batchRow)[page];
  if (!before) return;
  const next = layout.stages[stage];
  if (page * PAGE < held && (next || (page + 1) * PAGE > aging.start)) {
    const bytes = createBytes(where, `a copy of page ${page}`, pageBytes(layout, codeIn(before)));
    bytes.set(memory.u8(addressIn(before), bytes.length));
    aging.old.push({ batchRow, page, entry: before, bytes });
  }
  let after = 0;
  if (next) {
    after = entryOf(freeSlot(aging, batchRow, stage), next.code);
    encode(kernels, pages, aging, before, after);
    copyShared(kernels, pages, before, after);
    // Taken last, so that the slot is not lost if a kernel fails.
    takeSlot(aging, batchRow, stage);
  }
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
  const first = Math.ceil(length / PAGE);
  for (let batchRow = 0; batchRow < batch; batchRow++) {
    const end = aging.end[batchRow] as number;
    for (let page = first; page < end; page++) clearPage(kernels, pages, aging, batchRow, page);
    aging.end[batchRow] = Math.min(end, first);
    aging.at[batchRow] = Math.min(aging.at[batchRow] as number, ageOf(length));
  }
  if (length === 0) aging.start = 0;
}

/** Frees the slot of a page, if it has one. */
function clearPage(kernels: Kernels, pages: Pages, aging: Aging, batchRow: number, page: number): void {
  const table = tableOf(kernels, pages, batchRow);
  const entry = table[page];
  if (entry) release(pages, aging, batchRow, entry);
  table[page] = 0;
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
    clearPage(kernels, pages, aging, batchRow, page);
    const slot = takeSlot(aging, batchRow, stageOf(pages, codeIn(entry)));
    kernels.memory.u8(slot, bytes.length).set(bytes);
    tableOf(kernels, pages, batchRow)[page] = entryOf(slot, codeIn(entry));
  }
}

/** Makes what was appended and aged part of the `length` tokens that are held, of which the first is `start` or later. */
export function commitPages({ aging }: Pages, length: number, start = 0): void {
  if (!aging) return;
  aging.old.length = 0;
  aging.start = Math.max(aging.start, start, length - aging.span);
}

/** The first page that is kept once `length` tokens are held, and the first that their next query needs. */
export function firstPages({ aging, retention }: Pages, length: number): readonly [kept: number, needed: number] {
  const { span = Infinity } = aging ?? {};
  const pageOf = (token: number) => Math.floor(Math.max(0, token) / PAGE);
  return [pageOf(length - span), pageOf(span < Infinity ? length - retention.left : 0)];
}

/** The page of the last of `length` tokens. */
export function ageOf(length: number): number {
  return Math.max(0, Math.ceil(length / PAGE) - 1);
}

/** The first committed token that is kept. */
export function startOf({ aging }: Pages): number {
  return aging ? aging.start : 0;
}

/** The least position of a query that finds every key of its window when `length` tokens are held. */
export function leastPosition({ aging, retention }: Pages, length: number): number {
  const start = aging ? Math.max(aging.start, length - aging.span) : 0;
  return start > 0 ? start + retention.left : 0;
}

/**
 * The smallest length, other than 0, that pages with `length` tokens can be truncated to, and the reason; 0 if they can be
 * truncated to any.
 */
export function leastLength(pages: Pages, length: number): { readonly least: number; readonly reason: string } {
  const { aging, retention } = pages;
  const least = leastPosition(pages, length);
  const page = ageOf(length);
  // Pages of a stage that has a next one are re-encoded, unless the window ends before.
  const [first, last] = [aging?.limits[0] ?? 0, aging?.limits.at(-1) ?? 0];
  if (first < last && page >= first && page * PAGE >= least)
    return { least: page * PAGE + 1, reason: "older tokens aged" };
  return { least, reason: `truncatable is ${retention.truncatable}` };
}
