// Sequences that are forked share pages. A page that several have is copied when one of them is about to write it; until then it
// is counted. No call may lack a slot, so what a fork may come to need is reserved when it is made:
//
//   slots in all blocks >= slots that each sequence may have at once - pages that are fixed, counted once less than shared
//
// A page is fixed if those who share it cannot write or move it: it is in the last stage, is never dropped, and is full of tokens
// that they hold. Only a cut below its end makes it writable again, and reserves the slot for that before anything changes.

import { PAGE } from "../../../assembly/layout.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { addressIn, codeIn, entryOf, pageBytes } from "./pages.ts";
import {
  dropEntry,
  emptyPages,
  hasRoom,
  type Pages,
  placePages,
  roomFor,
  type Sharing,
  type SlotRun,
  slotRuns,
  slotsOf,
  stageOf,
  tableOf,
  takeSlot,
} from "./table.ts";

/** A block with slots, and whose tables lie in it: undefined if none do, or no longer. */
interface Block {
  readonly at: number;
  readonly slots: Pages["slots"];
  owner: Pages | undefined;
}

/** Sequences that share pages. */
class Family implements Sharing {
  /** Pages that share, and how many of their first ones are fixed. */
  readonly #members = new Map<Pages, number>();
  readonly #blocks: Block[];
  /** How many have the page at an address, if more than one. */
  readonly #holders = new Map<number, number>();
  /** What the members save of the slots of the last stage, of each sequence, because fixed pages are shared. */
  #saved = 0;

  constructor(first: Pages) {
    this.#blocks = [{ at: first.at, slots: first.slots, owner: first }];
    this.#members.set(first, 0);
  }

  /** Slots of each stage and sequence that blocks lack for `members`, of which `saved` are saved. */
  missing(pages: Pages, members: number, saved: number): number[] {
    return slotsOf(pages).map((count, stage, { length }) => {
      const wanted = count * members - (stage === length - 1 ? saved : 0);
      const has = this.#blocks.reduce((sum, { slots: [runs] }) => sum + countOf(runs?.[stage]), 0);
      return Math.max(0, wanted - has);
    });
  }

  /** What a fork of these pages would lack, and how many of its pages would be fixed. */
  planFork(pages: Pages): { readonly fixed: number; readonly counts: readonly number[] } {
    const fixed = fixedPages(pages);
    return { fixed, counts: this.missing(pages, this.#members.size + 1, this.#saved + fixed) };
  }

  fork(where: string, kernels: Kernels, pages: Pages): Pages {
    const { layout, batch, pagesPerRow, age, end, length, start } = pages;
    const { fixed, counts } = this.planFork(pages);
    const at = kernels.memory.allocate(where, placePages(layout, batch, pagesPerRow, counts).bytes);
    const empty = emptyPages(kernels, at, layout, batch, pages, counts);
    const fork: Pages = { ...empty, age: [...age], end: [...end], length, start, sharing: this };
    for (let b = 0; b < batch; b++) {
      const table = tableOf(kernels, pages, b);
      tableOf(kernels, fork, b).set(table);
      for (const entry of table) if (entry) this.#holders.set(addressIn(entry), this.#holdersOf(entry) + 1);
    }
    this.#blocks.push({ at, slots: fork.slots, owner: fork });
    for (const each of [pages, fork]) this.#members.set(each, fixed);
    this.#saved += fixed;
    return fork;
  }

  roomOf(batchRow: number, stage: number): SlotRun | undefined {
    for (const { slots } of this.#blocks) {
      const run = slots[batchRow]?.[stage];
      if (run && hasRoom(run)) return run;
    }
    return undefined;
  }

  drop(batchRow: number, stage: number, at: number): SlotRun | undefined {
    const holders = this.#holdersOf(at);
    if (holders > 2) this.#holders.set(at, holders - 1);
    else this.#holders.delete(at);
    if (holders > 1) return undefined;
    for (const { slots } of this.#blocks) {
      const run = slots[batchRow]?.[stage];
      if (run && at >= run.at && at < run.end) return run;
    }
    return undefined;
  }

  copyShared(kernels: Kernels, pages: Pages, batchRow: number, first: number, after: number): void {
    for (let page = first; page < after; page++) this.#copyPage(kernels, pages, batchRow, page);
  }

  reserveCut(where: string, kernels: Kernels, pages: Pages, length: number): void {
    const saved = this.#saved - this.#sharedBehind(kernels, pages, length);
    const counts = this.missing(pages, this.#members.size, saved);
    if (isNone(counts)) this.#freeBlocks(kernels, pages, saved);
    else this.#addSlots(where, kernels, pages, counts);
  }

  cut(kernels: Kernels, pages: Pages, length: number): void {
    this.#saved -= this.#sharedBehind(kernels, pages, length);
    const fixed = this.#members.get(pages) as number;
    const page = Math.floor(length / PAGE);
    // A fixed page that is cut is no longer full. Those who share it must all be able to write it, or none.
    const after = Math.min(fixed, Math.ceil(length / PAGE));
    for (let b = 0; b < pages.batch; b++) this.copyShared(kernels, pages, b, page, after);
    this.#members.set(pages, Math.min(fixed, page));
  }

  release(kernels: Kernels, pages: Pages): void {
    this.#saved -= this.#sharedBehind(kernels, pages, 0);
    for (let b = 0; b < pages.batch; b++)
      for (const entry of tableOf(kernels, pages, b)) if (entry) dropEntry(pages, b, entry);
    this.#members.delete(pages);
    for (const block of this.#blocks) if (block.owner === pages) block.owner = undefined;
    this.#freeBlocks(kernels, pages, this.#saved);
  }

  #holdersOf(entry: number): number {
    return this.#holders.get(addressIn(entry)) ?? 1;
  }

  /** How many fixed pages of a sequence, from the one of token `length` on, others have too. */
  #sharedBehind(kernels: Kernels, pages: Pages, length: number): number {
    const fixed = this.#members.get(pages) as number;
    const table = tableOf(kernels, pages, 0);
    let count = 0;
    for (let page = Math.floor(length / PAGE); page < fixed; page++)
      if (this.#holdersOf(table[page] as number) > 1) count++;
    return count;
  }

  /** Gives a sequence a copy of a page, if others have it. */
  #copyPage(kernels: Kernels, pages: Pages, batchRow: number, page: number): void {
    const table = tableOf(kernels, pages, batchRow);
    const entry = table[page] as number;
    if (this.#holdersOf(entry) < 2) return;
    table[page] = this.#copyTo(kernels, pages, batchRow, entry);
    dropEntry(pages, batchRow, entry);
  }

  /** Allocates slots of each stage and sequence in a block without tables. */
  #addSlots(where: string, kernels: Kernels, { layout, batch }: Pages, counts: readonly number[]): void {
    const { slots, bytes } = placePages(layout, batch, 0, counts);
    const at = kernels.memory.allocate(where, bytes);
    this.#blocks.push({ at, slots: slotRuns(layout, batch, counts, at, slots), owner: undefined });
  }

  /**
   * Frees blocks in which nobody's tables lie, as far as the others have what is reserved where `saved` are saved, or a block of at
   * most half the size has it; pages in them are moved there. The newest goes first, so that what was undone leaves the blocks that
   * there were.
   */
  #freeBlocks(kernels: Kernels, of: Pages, saved: number): void {
    for (const block of this.#blocks.filter(({ owner }) => !owner).reverse()) {
      const all = [...this.#blocks];
      this.#blocks.splice(all.indexOf(block), 1);
      const counts = this.missing(of, this.#members.size, saved);
      if (!isNone(counts) && !this.#addSmaller(kernels, of, counts, block)) {
        this.#blocks.splice(0, this.#blocks.length, ...all);
        continue;
      }
      for (let b = 0; b < of.batch; b++) this.#movePages(kernels, b, block);
      kernels.memory.free(block.at);
    }
  }

  /** Adds a block with these slots if they take at most half of another, and there is memory for it. Returns whether it has. */
  #addSmaller(kernels: Kernels, of: Pages, counts: readonly number[], { slots }: Block): boolean {
    const runs = slots[0] as readonly SlotRun[];
    const bytesOf = (slots: readonly number[]) =>
      slots.reduce((sum, count, stage) => sum + count * (runs[stage] as SlotRun).bytes, 0);
    if (2 * bytesOf(counts) > bytesOf(runs.map(countOf))) return false;
    try {
      this.#addSlots("release", kernels, of, counts);
      return true;
    } catch (error) {
      if (!(error instanceof HeadwiseError) || error.code !== "OUT_OF_MEMORY") throw error;
      return false;
    }
  }

  /** Moves the pages of a sequence and its forks that lie in a block to slots of others. */
  #movePages(kernels: Kernels, batchRow: number, { slots }: Block): void {
    const moved = new Map<number, number>();
    for (const pages of this.#members.keys()) {
      const table = tableOf(kernels, pages, batchRow);
      for (const [page, entry] of table.entries()) {
        const at = addressIn(entry);
        if (!slots[batchRow]?.some((run) => at >= run.at && at < run.end)) continue;
        const to = moved.get(entry) ?? this.#copyTo(kernels, pages, batchRow, entry);
        moved.set(entry, to);
        table[page] = to;
      }
    }
    for (const [from, to] of moved) {
      const holders = this.#holdersOf(from);
      this.#holders.delete(addressIn(from));
      this.#holders.set(addressIn(to), holders);
    }
  }

  /** Copies a page to a slot of its own. Returns the entry. */
  #copyTo({ memory }: Kernels, pages: Pages, batchRow: number, entry: number): number {
    const code = codeIn(entry);
    const slot = takeSlot(roomFor(pages, batchRow, stageOf(pages, code)));
    const bytes = pageBytes(pages.layout, code);
    memory.u8(slot, bytes).set(memory.u8(addressIn(entry), bytes));
    return entryOf(slot, code);
  }
}

const countOf = (run: SlotRun | undefined) => (run ? (run.end - run.at) / run.bytes : 0);

const isNone = (counts: readonly number[]) => counts.every((count) => count === 0);

/** How many of the first pages are full, are in the last stage and are never dropped. */
function fixedPages({ limits, span, age, length }: Pages): number {
  if (span < Infinity) return 0;
  const full = Math.floor(length / PAGE);
  const moved = limits.at(-2);
  return moved === undefined ? full : Math.max(0, Math.min(full, (age[0] as number) - moved + 1));
}

/** Bytes that `forkPages` allocates: the tables, and slots for the pages that the fork may come to write. */
export function forkBytes(pages: Pages): number {
  const { counts } = familyOf(pages).planFork(pages);
  return placePages(pages.layout, pages.batch, pages.pagesPerRow, counts).bytes;
}

/** Pages with the committed tokens of others, which both then share. No call may be running on these. */
export function forkPages(where: string, kernels: Kernels, pages: Pages): Pages {
  return familyOf(pages).fork(where, kernels, pages);
}

function familyOf(pages: Pages): Family {
  pages.sharing ??= new Family(pages);
  return pages.sharing as Family;
}
