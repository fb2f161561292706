import type { Work } from "./works.ts";

/** A work that is ready to run, from inputs to an answer in JavaScript's memory. */
export interface Prepared {
  run(): void | Promise<void>;
  /** The answer of the last run, as `expectAnswer` reads it. */
  output(): Float32Array;
  release(): void | Promise<void>;
}

/** One way in which a peer can do a work. If it has several, the fastest is compared. */
export interface Way {
  readonly name: string;
  prepare(): Prepared | Promise<Prepared>;
  /** Not compared, but shown in brackets after the one that is. */
  readonly aside?: boolean;
}

/** The files that a page loads to use a peer. */
export interface Shipped {
  /** Source of a module that imports the functions that are used; it is bundled and minified. */
  readonly source: string;
  /** Further files that it loads. */
  readonly assets: readonly string[];
}

/** A library under comparison, single-threaded. A file in peers/ exports one as `peer`. */
export interface Peer {
  readonly name: string;
  readonly version: string;
  /** The position of its column, ascending. */
  readonly column: number;
  /** Native code, as an upper bound. */
  readonly native?: boolean;
  /** Loads its code; called once, before anything else. */
  load(): Promise<void>;
  /** The ways to do a work, or the reason why there is none. */
  ways(work: Work): readonly Way[] | string;
  readonly shipped?: Shipped;
}

/** A peer and its file in peers/. */
export type FoundPeer = Peer & { readonly file: string };
