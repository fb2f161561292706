// What a layer keeps of its sequences, in pages of 128 tokens: a table for each sequence that says where its pages lie, and the
// slots that pages take when they are reached. Pages change their format with age, and are dropped behind the window. The age of
// a page is its distance from the query's page. With every page that the queries advance, the pages that have reached a limit are
// re-encoded for the next stage, or dropped after the last one, the oldest first. So a page has the same formats for the same
// queries, however calls were cut.

import { PAGE, PANEL } from "../../../assembly/layout.ts";
import { createBytes } from "../../base/tensor/tensor.ts";
import { CHUNK_ROWS } from "../../base/util/rows.ts";
import { CacheShape, type F32Ptr, type PagesPtr, type Pointer } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { aligned, Layout, pointer } from "../../wasm/memory.ts";
import {
  addressIn,
  codeIn,
  entryOf,
  type PageCode,
  type PageLayout,
  type PageShape,
  pageBytes,
  type Stage,
  sharedParts,
} from "./pages.ts";

/**
 * The pages of `batch` sequences, laid out as assembly/cache/page.ts describes. One block: the tables of addresses, then slots
 * for as many pages as the sequences need at once. A table entry is 0 where no slot is taken.
 */
export interface Pages {
  readonly at: number;
  readonly bytes: number;
  readonly batch: number;
  readonly maxSeqLen: number;
  readonly pagesPerRow: number;
  readonly layout: PageLayout;
  readonly retention: Retention;
  /** Whether pages change their format with age, or are dropped behind the window. */
  readonly ages: boolean;
  /** How many of the last tokens are kept: those of the window, and `truncatable` more; Infinity if none is dropped. */
  readonly span: number;
  /** For each stage, the age in pages at which a page leaves it: for the next one, or, from the last one, dropped. */
  readonly limits: readonly number[];
  /** The slots of this block, by sequence and by stage. */
  readonly slots: readonly (readonly SlotRun[])[];
  /** The address of room for AGED_TOKENS tokens while their format changes, and for their strides and tables. */
  readonly staging: number;
  /** Pages that changed since the last commit, in order. */
  readonly old: OldPage[];
  /** For each sequence, the query's page that determined the current age of its pages. */
  readonly age: number[];
  /** For each sequence, the page after the last one that has had a slot. */
  readonly end: number[];
  /** Tokens of each sequence that are committed. */
  length: number;
  /** The first committed token that is kept. It only grows, until nothing is held. */
  start: number;
  /** Defined once the sequences have been forked. */
  sharing: Sharing | undefined;
}

/** What is kept of a sequence: the keys before the query's own that a window covers, for `truncatable` tokens back. */
export interface Retention {
  readonly left: number;
  readonly truncatable: number;
}

/** Slots for pages of a stage of one sequence, one after the other. Those from `next` on have never been taken. */
export interface SlotRun {
  readonly at: number;
  readonly bytes: number;
  readonly end: number;
  next: number;
  readonly free: number[];
}

/** Pages that sequences and their forks share, which fork.ts counts. */
export interface Sharing {
  /** A run of a stage that has room, in the block of any of them. */
  roomOf(batchRow: number, stage: number): SlotRun | undefined;
  /** Gives up the page at an address. Returns the run that it goes back to; undefined if another sequence has it. */
  drop(batchRow: number, stage: number, at: number): SlotRun | undefined;
  /** Gives a sequence copies of those of its pages first..after that others share. */
  copyShared(kernels: Kernels, pages: Pages, batchRow: number, first: number, after: number): void;
  /**
   * Takes the memory that sequences need to be cut to `length`, since they read again what they have shared until then, and frees
   * what they do not need.
   */
  reserveCut(where: string, kernels: Kernels, pages: Pages, length: number): void;
  /** Prepares their pages for it. */
  cut(kernels: Kernels, pages: Pages, length: number): void;
  /** Frees what these pages alone use. */
  release(kernels: Kernels, pages: Pages): void;
}

/** A page before uncommitted calls changed it: its table entry, and its bytes. */
interface OldPage {
  readonly batchRow: number;
  readonly page: number;
  readonly entry: number;
  readonly bytes: Uint8Array;
}

// Where tables and slots lie.

/** Every key is kept. */
const ALL: Retention = { left: Infinity, truncatable: Infinity };

/** Tokens that are re-encoded at a time: a panel of keys. */
const AGED_TOKENS: number = PANEL;

/** Pages, besides the first, that the keys of a chunk take, which are appended before its queries are computed. */
const AHEAD = CHUNK_ROWS / PAGE;

function tableBytes(pagesPerRow: number): number {
  return aligned(pagesPerRow * 4);
}

const spanOf = ({ left, truncatable }: Retention) => left + truncatable;

/** The `limits` of Pages. */
function limitsOf(stages: readonly Stage[], retention: Retention, pagesPerRow: number): number[] {
  // At the first query of a page, no older page is needed any more, neither by it nor after the truncation of `truncatable`
  // tokens. They are dropped where that frees memory.
  const age = 1 + Math.ceil(spanOf(retention) / PAGE);
  const dropped = age + AHEAD < pagesPerRow ? age : Infinity;
  let limit = 1;
  return stages.map(({ pages }) => {
    limit += pages;
    return Math.min(limit, dropped);
  });
}

/** Slots of each stage that a sequence of up to `pagesPerRow` pages needs at once. */
export function slotsOf({ limits, pagesPerRow }: Pick<Pages, "limits" | "pagesPerRow">): number[] {
  let younger = 0;
  return limits.map((limit, i) => {
    const slots = Math.min(pagesPerRow - younger, limit - younger + (i === 0 ? AHEAD : 0));
    younger = Math.min(pagesPerRow, limit);
    return slots;
  });
}

/** The offsets of what pages need while their format changes. */
function placeStaging({ numKvHeads, headDim, valueDim }: PageShape, layout: Layout) {
  return {
    key: layout.floats(AGED_TOKENS * numKvHeads * headDim),
    value: layout.floats(AGED_TOKENS * numKvHeads * valueDim),
    shape: layout.take(CacheShape.bytes),
    table: layout.take(8),
  };
}

/** The offsets of tables, staging memory and `counts` slots of each stage and sequence in a block. */
export function placePages(
  pageLayout: PageLayout,
  batch: number,
  pagesPerRow: number,
  counts: readonly number[],
): { readonly staging: number; readonly slots: readonly number[]; readonly bytes: number } {
  const { stages } = pageLayout;
  const layout = new Layout();
  layout.take(batch * tableBytes(pagesPerRow));
  const staging = layout.bytes;
  if (stages.length > 1) placeStaging(pageLayout, layout);
  const slots = counts.map((count, i) => layout.take(batch * count * pageBytes(pageLayout, (stages[i] as Stage).code)));
  return { staging, slots, bytes: layout.bytes };
}

/** Runs of `counts` slots of each stage for each sequence; those of all sequences and a stage begin at one of `slots`. */
export function slotRuns(
  layout: PageLayout,
  batch: number,
  counts: readonly number[],
  at: number,
  slots: readonly number[],
): SlotRun[][] {
  return Array.from({ length: batch }, (_, b) =>
    counts.map((count, i): SlotRun => {
      const bytes = pageBytes(layout, (layout.stages[i] as Stage).code);
      // Taken in order: neighbouring pages are then neighbours in memory, which CPUs read faster.
      const first = at + (slots[i] as number) + b * count * bytes;
      return { at: first, bytes, end: first + count * bytes, next: first, free: [] };
    }),
  );
}

/** What pages of up to `maxSeqLen` tokens depend on besides their layout. */
function rulesOf({ stages }: PageLayout, maxSeqLen: number, retention: Retention) {
  const pagesPerRow = Math.ceil(maxSeqLen / PAGE);
  const limits = limitsOf(stages, retention, pagesPerRow);
  return { maxSeqLen, pagesPerRow, limits, retention };
}

/** Bytes that `allocatePages` takes. */
export function pagesBytes(layout: PageLayout, batch: number, maxSeqLen: number, retention: Retention = ALL): number {
  const rules = rulesOf(layout, maxSeqLen, retention);
  return placePages(layout, batch, rules.pagesPerRow, slotsOf(rules)).bytes;
}

/**
 * Allocates pages for `batch` sequences of up to `maxSeqLen` tokens: all slots that they come to need, so that no call lacks one.
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
  kernels: Kernels,
  at: number,
  layout: PageLayout,
  batch: number,
  maxSeqLen: number,
  retention: Retention = ALL,
): Pages {
  const rules = rulesOf(layout, maxSeqLen, retention);
  return emptyPages(kernels, at, layout, batch, rules, slotsOf(rules));
}

/** Pages without tokens in the block at `at`, which has `counts` slots of each stage for each sequence. */
export function emptyPages(
  { memory }: Kernels,
  at: number,
  layout: PageLayout,
  batch: number,
  { maxSeqLen, pagesPerRow, limits, retention }: Pick<Pages, "maxSeqLen" | "pagesPerRow" | "limits" | "retention">,
  counts: readonly number[],
): Pages {
  const { staging, slots, bytes } = placePages(layout, batch, pagesPerRow, counts);
  memory.u8(at, batch * tableBytes(pagesPerRow)).fill(0);
  const drops = (limits.at(-1) as number) < Infinity;
  const zeros = () => Array<number>(batch).fill(0);
  return {
    ...{ at, bytes, batch, maxSeqLen, pagesPerRow, layout, retention, limits },
    ages: (limits[0] as number) < Infinity,
    span: drops ? spanOf(retention) : Infinity,
    slots: slotRuns(layout, batch, counts, at, slots),
    staging: at + staging,
    ...{ old: [], age: zeros(), end: zeros(), length: 0, start: 0, sharing: undefined },
  };
}

/** The page table of one sequence, from page `first` on. */
export function pageTable({ at, pagesPerRow }: Pages, batchRow: number, first = 0): PagesPtr {
  return pointer.pages(at + batchRow * tableBytes(pagesPerRow) + 4 * first);
}

/** The same as numbers. */
export function tableOf({ memory }: Kernels, pages: Pages, batchRow: number): Uint32Array {
  return memory.u32(pageTable(pages, batchRow), pages.pagesPerRow);
}

/** The address of a page of one sequence. */
export function pageAddress(kernels: Kernels, pages: Pages, batchRow: number, page: number): number {
  return addressIn(tableOf(kernels, pages, batchRow)[page] as number);
}

// Slots.

export const hasRoom = ({ next, end, free }: SlotRun): boolean => next < end || free.length > 0;

/** A run with a slot for a page. One exists, because as many are reserved as the sequences need at once. */
export function roomFor({ slots, sharing }: Pages, batchRow: number, stage: number): SlotRun {
  const own = slots[batchRow]?.[stage] as SlotRun;
  const run = hasRoom(own) ? own : sharing?.roomOf(batchRow, stage);
  if (!run) throw new Error(`pages: stage ${stage} of sequence ${batchRow} has no free slot`);
  return run;
}

/** The slot that `takeSlot` takes. */
const nextSlot = ({ next, free }: SlotRun): number => free.at(-1) ?? next;

export function takeSlot(run: SlotRun): number {
  const slot = nextSlot(run);
  if (run.free.pop() === undefined) run.next += run.bytes;
  return slot;
}

/** The stage with these formats; no two stages have the same. */
export function stageOf({ layout }: Pages, code: PageCode): number {
  return layout.stages.findIndex((stage) => stage.code === code);
}

/** Gives up the page of a table entry. */
export function dropEntry(pages: Pages, batchRow: number, entry: number): void {
  const [stage, at] = [stageOf(pages, codeIn(entry)), addressIn(entry)];
  const run = pages.sharing ? pages.sharing.drop(batchRow, stage, at) : pages.slots[batchRow]?.[stage];
  run?.free.push(at);
}

// Pages are taken when they are reached.

/**
 * Makes the pages of tokens from..end of a sequence ones that nobody else has, so that they can be written: gives those that have
 * had no slot one of the first stage, and copies those that are shared.
 */
function makeWritable(kernels: Kernels, pages: Pages, batchRow: number, from: number, end: number): void {
  const after = Math.ceil(end / PAGE);
  for (let page = pages.end[batchRow] as number; page < after; page++) giveSlot(kernels, pages, batchRow, page, 0);
  pages.sharing?.copyShared(kernels, pages, batchRow, Math.floor(from / PAGE), after);
}

/** Gives a page that has none a slot of a stage. */
function giveSlot(kernels: Kernels, pages: Pages, batchRow: number, page: number, stage: number): void {
  const { code } = pages.layout.stages[stage] as Stage;
  tableOf(kernels, pages, batchRow)[page] = entryOf(takeSlot(roomFor(pages, batchRow, stage)), code);
  pages.end[batchRow] = page + 1;
}

/**
 * Makes the page of the token behind `past` others of a single sequence writable, if no page ages with that token. Returns
 * whether none does: then all that changes between two tokens is their position.
 */
export function settlePage(kernels: Kernels, pages: Pages, past: number): boolean {
  if (pages.ages && (pages.age[0] as number) < Math.floor(past / PAGE)) return false;
  makeWritable(kernels, pages, 0, past, past + 1);
  return true;
}

/** The formats of a page when `length` tokens are held. */
export function codeAt({ limits, layout }: Pages, page: number, length: number): PageCode {
  const age = ageOf(length) - page;
  return (layout.stages[limits.filter((limit) => limit <= age).length] as Stage).code;
}

/** Gives page `page` of every sequence, which has no slot yet, a slot for these formats. */
export function adoptPages(kernels: Kernels, pages: Pages, page: number, code: PageCode): void {
  for (let batchRow = 0; batchRow < pages.batch; batchRow++)
    giveSlot(kernels, pages, batchRow, page, stageOf(pages, code));
}

// Rows in linear memory are copied to pages, and back.

/** Floats between neighbouring tokens, and between neighbouring heads, of rows of keys and of values. */
interface RowStrides {
  readonly kStride: number;
  readonly kHeadStride: number;
  readonly vStride: number;
  readonly vHeadStride: number;
}

/** Addresses of the first key and the first value. */
interface KeyValueRows {
  readonly k: F32Ptr;
  readonly v: F32Ptr;
}

/** Places what `storeRows` writes. */
export function placeRows(layout: Layout): number {
  return layout.take(CacheShape.bytes);
}

/** Writes the description of rows that the kernels below read, at an address from `placeRows`. */
export function storeRows(
  { memory }: Kernels,
  at: number,
  { numKvHeads, headDim, valueDim }: PageShape,
  { kStride, kHeadStride, vStride, vHeadStride }: RowStrides,
): Pointer<CacheShape> {
  CacheShape.store(memory.view(), at, {
    ...{ numKvHeads, headDim, valueDim },
    ...{ kStride, kHeadStride, vStride, vHeadStride },
  });
  return pointer.cacheShape(at);
}

/** Writes `count` rows to the pages of a sequence, the first at `position`: what all that is appended passes through. */
export function appendRows(
  kernels: Kernels,
  pages: Pages,
  batchRow: number,
  shape: Pointer<CacheShape>,
  { k, v }: KeyValueRows,
  position: number,
  count: number,
): void {
  makeWritable(kernels, pages, batchRow, position, position + count);
  kernels.table[pages.layout.kernels.append](pageTable(pages, batchRow), k, v, shape, position, 0, count);
}

/** Reads `count` rows from the pages of a sequence, the first at `position`, as float32 from any format. */
export function gatherRows(
  { table }: Kernels,
  pages: Pages,
  batchRow: number,
  shape: Pointer<CacheShape>,
  { k, v }: KeyValueRows,
  position: number,
  count: number,
): void {
  table[pages.layout.kernels.gather](k, v, pageTable(pages, batchRow), shape, position, 0, count);
}

// Age.

/** Ages the pages of a sequence for queries of page `at`. */
export function agePages(where: string, kernels: Kernels, pages: Pages, batchRow: number, at: number): void {
  const { ages, age, limits } = pages;
  if (!ages) return;
  for (let now = (age[batchRow] as number) + 1; now <= at; now++) {
    for (let stage = limits.length; stage > 0; stage--)
      movePage(where, kernels, pages, batchRow, now - (limits[stage - 1] as number), stage);
    age[batchRow] = now;
  }
}

/**
 * Re-encodes a page for a stage, or drops it after the last one. A copy of a committed page is kept until the call
 * commits, unless it is dropped and no later call needs it.
 */
function movePage(where: string, kernels: Kernels, pages: Pages, batchRow: number, page: number, stage: number): void {
  const { memory } = kernels;
  const { layout, length, start, old } = pages;
  const before = tableOf(kernels, pages, batchRow)[page];
  if (!before) return;
  const next = layout.stages[stage];
  if (page * PAGE < length && (next || (page + 1) * PAGE > start)) {
    const bytes = createBytes(where, `a copy of page ${page}`, pageBytes(layout, codeIn(before)));
    bytes.set(memory.u8(addressIn(before), bytes.length));
    old.push({ batchRow, page, entry: before, bytes });
  }
  let after = 0;
  if (next) {
    const run = roomFor(pages, batchRow, stage);
    after = entryOf(nextSlot(run), next.code);
    encode(kernels, pages, before, after);
    copyParts(kernels, pages, before, after);
    // Taken last, so that the slot is not lost if a kernel fails.
    takeSlot(run);
  }
  tableOf(kernels, pages, batchRow)[page] = after;
  dropEntry(pages, batchRow, before);
}

/** Converts the page of table entry `from` to the formats of entry `to`. */
function encode(kernels: Kernels, { layout, staging }: Pages, from: number, to: number): void {
  const { memory, table } = kernels;
  const { numKvHeads, headDim, valueDim } = layout;
  const { gather, append } = layout.kernels;
  const places = new Layout();
  places.bytes = staging;
  const at = placeStaging(layout, places);
  const strides = { kStride: numKvHeads * headDim, kHeadStride: headDim, vStride: numKvHeads * valueDim };
  const rows = storeRows(kernels, at.shape, layout, { ...strides, vHeadStride: valueDim });
  memory.u32(at.table, 2).set([from, to]);
  const [source, target] = [pointer.pages(at.table), pointer.pages(at.table + 4)];
  const [k, v] = [pointer.f32(at.key), pointer.f32(at.value)];
  for (let slot = 0; slot < PAGE; slot += AGED_TOKENS) {
    table[gather](k, v, source, rows, slot, 0, AGED_TOKENS);
    table[append](target, k, v, rows, slot, 0, AGED_TOKENS);
  }
}

/**
 * Copies keys or values whose format stays the same, since re-encoding is not exact: the largest float in q8 would
 * become NaN.
 */
function copyParts({ memory }: Kernels, { layout }: Pages, before: number, after: number): void {
  for (const { from, to, bytes } of sharedParts(layout, codeIn(before), codeIn(after)))
    memory.u8(addressIn(after) + to, bytes).set(memory.u8(addressIn(before) + from, bytes));
}

// The transaction: what a call appends and ages is part of what is held once the call commits.

/** Undoes what an uncommitted call left: every call begins with it. */
export function beginPages(kernels: Kernels, pages: Pages): void {
  dropTokens(kernels, pages, pages.length);
  for (let last = pages.old.pop(); last; last = pages.old.pop()) {
    const { batchRow, page, entry, bytes } = last;
    clearPage(kernels, pages, batchRow, page);
    const slot = takeSlot(roomFor(pages, batchRow, stageOf(pages, codeIn(entry))));
    kernels.memory.u8(slot, bytes.length).set(bytes);
    tableOf(kernels, pages, batchRow)[page] = entryOf(slot, codeIn(entry));
  }
}

/** Makes `tokens` more of each sequence, and what they aged, part of what is held. Earlier ones than `start` are not kept. */
export function commitPages(pages: Pages, tokens: number, start = 0): void {
  pages.old.length = 0;
  pages.length += tokens;
  pages.start = Math.max(pages.start, start, pages.length - pages.span);
}

/** Forgets the tokens from `length` on, which `leastLength` allows. */
export function cutPages(where: string, kernels: Kernels, pages: Pages, length: number): void {
  beginPages(kernels, pages);
  pages.sharing?.reserveCut(where, kernels, pages, length);
  pages.sharing?.cut(kernels, pages, length);
  dropTokens(kernels, pages, length);
  pages.length = length;
  if (length === 0) pages.start = 0;
}

/** Removes the tokens from `length` on and gives up their pages. */
function dropTokens(kernels: Kernels, pages: Pages, length: number): void {
  const { age, end, batch } = pages;
  const first = Math.ceil(length / PAGE);
  for (let batchRow = 0; batchRow < batch; batchRow++) {
    for (let page = first; page < (end[batchRow] as number); page++) clearPage(kernels, pages, batchRow, page);
    end[batchRow] = Math.min(end[batchRow] as number, first);
    age[batchRow] = Math.min(age[batchRow] as number, ageOf(length));
  }
}

/** Gives up a page, if it has a slot. */
function clearPage(kernels: Kernels, pages: Pages, batchRow: number, page: number): void {
  const table = tableOf(kernels, pages, batchRow);
  const entry = table[page];
  if (entry) dropEntry(pages, batchRow, entry);
  table[page] = 0;
}

/** Frees the pages. */
export function freePages(kernels: Kernels, pages: Pages): void {
  pages.old.length = 0;
  if (kernels.released) return;
  if (pages.sharing) pages.sharing.release(kernels, pages);
  else kernels.memory.free(pages.at);
}

// What is kept.

/** The first page that is kept once `length` tokens are held, and the first that their next query needs. */
export function firstPages({ span, retention }: Pages, length: number): readonly [kept: number, needed: number] {
  const pageOf = (token: number) => Math.floor(Math.max(0, token) / PAGE);
  const needed = span < Infinity ? pageOf(length - retention.left) : 0;
  return [pageOf(length - span), needed];
}

/** The page of the last of `length` tokens. */
export function ageOf(length: number): number {
  return Math.max(0, Math.ceil(length / PAGE) - 1);
}

/** The least position of a query that finds every key of its window when `length` tokens are held. */
export function leastPosition(pages: Pages, length: number): number {
  const start = Math.max(pages.start, length - pages.span);
  return start > 0 ? start + pages.retention.left : 0;
}

/**
 * The smallest length, other than 0, that pages with `length` tokens can be truncated to, and the reason; 0 if they can be
 * truncated to any.
 */
export function leastLength(pages: Pages, length: number): { readonly least: number; readonly reason: string } {
  const { limits, retention } = pages;
  const least = leastPosition(pages, length);
  const page = ageOf(length);
  // Pages of a stage that has a next one are re-encoded, unless the window ends before.
  const [first, last] = [limits[0] as number, limits.at(-1) as number];
  if (first < last && page >= first && page * PAGE >= least)
    return { least: page * PAGE + 1, reason: "older tokens aged" };
  return { least, reason: `truncatable is ${retention.truncatable}` };
}
