// What the page and the worker say to each other of a call.

import type { Cost } from "./variant-layers.ts";
import type { WrittenToken } from "./written-tokens.ts";

/** What tasks report while they run. */
export interface Reports {
  /** Bytes of a model that were read, or texts that were, of all. */
  progress: { readonly kind: "progress"; readonly done: number; readonly all: number };
  /** Text that was generated, and how fast; and tokens that were chosen since the last report, of which the text may have more. */
  piece: {
    readonly kind: "piece";
    readonly text: string;
    readonly tokens: number;
    readonly ms: number;
    readonly written: readonly WrittenToken[];
  };
  /** What a variant of attention costs, as measured so far. */
  cost: { readonly kind: "cost"; readonly cost: Cost; readonly done: number; readonly all: number };
}

/** What a task knows of its call. */
export interface Call {
  report(report: Reports[keyof Reports]): void;
  /** Is aborted when the page stops the call. */
  readonly signal: AbortSignal;
}

/** What the worker posts: what becomes of call `id`, or a report of it. */
export type Answer =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: { readonly name: string; readonly message: string } }
  | { readonly id: number; readonly report: Reports[keyof Reports] & { readonly kind: keyof Reports } };
