import type { Work } from "./works.ts";

/** A work that is ready to run: from inputs in JavaScript's memory to an answer in JavaScript's memory. */
export interface Prepared {
  run(): void | Promise<void>;
  /** The answer of the last run, as `expectAnswer` reads it. */
  output(): Float32Array;
  release(): void | Promise<void>;
}

/** One way in which a peer can do a work. Where it has several, the fastest is what is compared. */
export interface Way {
  readonly name: string;
  prepare(): Prepared | Promise<Prepared>;
  /** Not what the table compares, but shown in brackets behind it. */
  readonly aside?: boolean;
}

/** What a page would load to use a peer. */
export interface Shipped {
  /** Source of a module that imports what is used; it is bundled and minified. */
  readonly source: string;
  /** Files that it loads beside it. */
  readonly assets: readonly string[];
}

/** A contender, single-threaded. A file in peers/ exports one as `peer`. */
export interface Peer {
  readonly name: string;
  readonly version: string;
  /** Where its column stands, ascending. */
  readonly column: number;
  /** Not JavaScript: an upper reference. */
  readonly native?: boolean;
  /** Loads its code; called once, before anything else. */
  load(): Promise<void>;
  /** The ways to do a work, or why there is none. */
  ways(work: Work): readonly Way[] | string;
  readonly shipped?: Shipped;
}

/** A peer and the file in peers/ that it was found in. */
export type FoundPeer = Peer & { readonly file: string };
