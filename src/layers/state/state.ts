// What a layer keeps of a sequence, whatever it is: a session owns a state for each layer, and asks no more of it than this.

import { forkBytes, forkPages } from "./fork.ts";
import { cacheOf, expectTruncatable, type KvCache } from "./kv-cache.ts";
import { leastLength, type Pages, settlePage } from "./table.ts";

/**
 * The state of a layer. What a call appends is part of it once `commit` is called; until then `begin` undoes it. Export and import
 * read its pages (`export.ts`), so that only who uses them carries them.
 */
export interface LayerState {
  /** Bytes of linear memory that were taken for it. All that it comes to need is reserved. */
  readonly bytes: number;
  /** The formats of its pages, as in PageLayout; 0 if it has none. */
  readonly formats: number;
  /** Bytes that `fork` takes now. */
  readonly forkBytes: number;
  /** Undoes what an uncommitted call left: every call begins with it. */
  begin(): void;
  /** Makes the token behind `past` others writable. Returns whether it changes nothing else: then only its position differs. */
  settle(past: number): boolean;
  /** Makes `tokens` more, which a call appended, part of what is held. */
  commit(tokens: number): void;
  /** The longest length up to `length` that it can go back to once it holds `held` tokens. */
  nearest(length: number, held: number): number;
  /** Throws unless it can go back to `length`. */
  expectTruncatable(length: number): void;
  /** Takes the memory that going back to `length` needs where it is shared, and frees what is not needed. */
  reserve(length: number): void;
  truncate(length: number): void;
  /** A state with the same tokens, which shares its memory until one of both changes. Errors name `where`. */
  fork(where: string): this;
  release(): void;
}

/** Keys and values, or latents, of a sequence. */
export interface KvState extends LayerState {
  readonly cache: KvCache;
  readonly pages: Pages;
}

/** A state as pages. Throws for one without. */
export function expectPages(where: string, state: LayerState): KvState {
  if ("pages" in state) return state as KvState;
  throw new RangeError(`${where}: session expected one whose layers keep pages of tokens, got a layer that keeps none`);
}

/** The state that consists of a cache. */
export function createKvState(cache: KvCache): KvState {
  const { kernels, pages, bytes } = cache;
  return {
    ...{ cache, pages, bytes, formats: pages.layout.formats },
    get forkBytes() {
      return forkBytes(pages);
    },
    begin: cache.begin,
    commit: cache.commit,
    settle: (past) => settlePage(kernels, pages, past),
    nearest: (length, held) => (length < leastLength(pages, held).least ? 0 : length),
    expectTruncatable: (length) => expectTruncatable(pages, length),
    reserve: (length) => pages.sharing?.reserveCut("truncate", kernels, pages, length),
    truncate: cache.truncate,
    fork(where) {
      cache.begin();
      return createKvState(cacheOf("KvCache", "createKvCache", kernels, forkPages(where, kernels, pages), {}));
    },
    release: cache.release,
  };
}
