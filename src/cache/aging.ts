// Pages that change their format as they age. How old a page is depends only on the distance between the query's page
// and it: with every page that queries proceed by, the pages whose time has come are encoded anew, the oldest first, each
// one stage further. A page thus goes through the same formats for the same queries, however calls were cut.

import { PAGE } from "../../assembly/layout.ts";
import { storeCacheShape } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { pointer } from "../wasm/memory.ts";
import { headBytes, type Stage } from "./formats.ts";
import { AGED_TOKENS, type Aging, type Pages, pageBytes, pageTable } from "./pages.ts";

const FORMATS = 15;
const addressOf = (entry: number) => (entry & ~FORMATS) >>> 0;

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
    table[page] = takeSlot(aging, batchRow, 0) + (aging.stages[0] as Stage).formats;
}

/** Formats of a page where `length` tokens are held. */
export function formatsAt(kernels: Kernels, pages: Pages, page: number, length: number): number {
  const { aging } = pages;
  if (!aging) return (tableOf(kernels, pages, 0)[page] as number) & FORMATS;
  const age = ageOf(length) - page;
  const stage = limitsOf(aging.stages).filter((limit) => limit <= age).length;
  return (aging.stages[stage] as Stage).formats;
}

/** Gives page `page` of every sequence a slot for these formats, where it has none yet. */
export function adoptPages(kernels: Kernels, pages: Pages, page: number, formats: number): void {
  const { aging } = pages;
  if (!aging) return;
  const stage = aging.stages.findIndex((each) => each.formats === formats);
  for (let batchRow = 0; batchRow < pages.batch; batchRow++) {
    const slot = takeSlot(aging, batchRow, stage);
    tableOf(kernels, pages, batchRow)[page] = slot + formats;
  }
}

/** Makes the pages of a sequence, of which `held` tokens are committed, as old as a query of page `at` wants them. */
export function agePages(kernels: Kernels, pages: Pages, batchRow: number, at: number, held: number): void {
  const { aging } = pages;
  if (!aging) return;
  const limits = limitsOf(aging.stages);
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
  const { stages, shape } = aging;
  const entry = tableOf(kernels, pages, batchRow)[page] as number;
  const from = addressOf(entry);
  const { formats } = stages[stage] as Stage;
  if (keep)
    aging.old.push({ batchRow, page, entry, bytes: memory.u8(from, pageBytes(shape, entry & FORMATS)).slice() });
  const to = takeSlot(aging, batchRow, stage);
  encode(kernels, aging, entry, to + formats);
  copyKept(kernels, aging, entry, to + formats);
  tableOf(kernels, pages, batchRow)[page] = to + formats;
  release(aging, batchRow, entry);
}

/** Writes the numbers of one page to another of other formats. */
function encode({ memory, table }: Kernels, { shape, staging }: Aging, from: number, to: number): void {
  const { numKvHeads, headDim, valueDim } = shape;
  const strides = { kStride: numKvHeads * headDim, kHeadStride: headDim, vStride: numKvHeads * valueDim };
  storeCacheShape(memory.view(), staging.shape, { numKvHeads, headDim, valueDim, ...strides, vHeadStride: valueDim });
  memory.u32(staging.table, 2).set([from, to]);
  const [source, target] = [pointer.pages(staging.table), pointer.pages(staging.table + 4)];
  const [k, v, strided] = [pointer.f32(staging.key), pointer.f32(staging.value), pointer.cacheShape(staging.shape)];
  for (let slot = 0; slot < PAGE; slot += AGED_TOKENS) {
    table.gather_pages(k, v, source, strided, slot, 0, AGED_TOKENS);
    table.append_pages(target, k, v, strided, slot, 0, AGED_TOKENS);
  }
}

/** Copies the keys, or the values, that stay in their format: encoded again, the largest float in q8 would be NaN. */
function copyKept({ memory }: Kernels, { shape }: Aging, from: number, to: number): void {
  const { numKvHeads, headDim, valueDim } = shape;
  const [source, target] = [from, to].map((entry) => headBytes(entry & FORMATS, headDim, valueDim)) as [
    ReturnType<typeof headBytes>,
    ReturnType<typeof headBytes>,
  ];
  const copy = (a: number, b: number, bytes: number) => memory.u8(b, bytes).set(memory.u8(a, bytes));
  for (let head = 0; head < numKvHeads; head++) {
    const a = addressOf(from) + head * (source.keys + source.values);
    const b = addressOf(to) + head * (target.keys + target.values);
    if ((from & 3) === (to & 3)) copy(a, b, target.keys);
    if ((from & 12) === (to & 12)) copy(a + source.keys, b + target.keys, target.values);
  }
}

/** Forgets the tokens from `length` on: the slots of their pages are free again. */
export function dropPages(kernels: Kernels, pages: Pages, length: number): void {
  const { aging, batch } = pages;
  if (!aging) return;
  for (let batchRow = 0; batchRow < batch; batchRow++) {
    const table = tableOf(kernels, pages, batchRow);
    for (let page = Math.ceil(length / PAGE); page < table.length && table[page] !== 0; page++) {
      release(aging, batchRow, table[page] as number);
      table[page] = 0;
    }
    aging.at[batchRow] = Math.min(aging.at[batchRow] as number, ageOf(length));
  }
}

function release({ free, stages }: Aging, batchRow: number, entry: number): void {
  const stage = stages.findIndex(({ formats }) => formats === (entry & FORMATS));
  free[batchRow]?.[stage]?.push(addressOf(entry));
}

/** Takes back what calls that were not committed have done: `length` tokens are held. */
export function restorePages(kernels: Kernels, pages: Pages, length: number): void {
  const { aging } = pages;
  if (!aging) return;
  dropPages(kernels, pages, length);
  for (let last = aging.old.pop(); last; last = aging.old.pop()) {
    const { batchRow, page, entry, bytes } = last;
    const table = tableOf(kernels, pages, batchRow);
    release(aging, batchRow, table[page] as number);
    const stage = aging.stages.findIndex(({ formats }) => formats === (entry & FORMATS));
    const slot = takeSlot(aging, batchRow, stage);
    kernels.memory.u8(slot, bytes.length).set(bytes);
    table[page] = slot + (entry & FORMATS);
  }
}

/** The page of the last of `length` tokens. */
export function ageOf(length: number): number {
  return Math.max(0, Math.ceil(length / PAGE) - 1);
}

/** The fewest tokens, but none at all, that pages which have aged with `length` can be cut to. */
export function leastLength({ aging }: Pages, length: number): number {
  const page = ageOf(length);
  if (!aging || page < (limitsOf(aging.stages)[0] as number)) return 0;
  return page * PAGE + 1;
}
