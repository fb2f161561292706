import type { LoadRequest } from "./decoder.ts";
import type { Effort, Measured } from "./measure-decoder.ts";

/** What a process or page is asked to measure. */
export interface Task {
  readonly request: LoadRequest;
  readonly vocabSize: number;
  readonly effort: Effort;
}

/** What it answers, without the logits, which follow as bytes. */
export type Answer = Omit<Measured, "logits">;

export interface Outcome extends Measured {
  /** The most memory that its process ever had, without that of the loops. */
  readonly peakBytes: number;
}
