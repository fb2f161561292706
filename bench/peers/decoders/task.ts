import type { LoadRequest } from "./decoder.ts";
import type { Effort, Measured } from "./measure-decoder.ts";

/** What a process or page is asked to measure. */
export interface Task {
  readonly request: LoadRequest;
  readonly vocabSize: number;
  readonly effort: Effort;
}

/** What it says, and the most memory that it ever had. */
export interface Report {
  readonly answer: Omit<Measured, "logits">;
  readonly logits: Float32Array;
  readonly heldBytes: number;
}

export interface Outcome extends Measured {
  /** The most memory that it ever had, without that of the loops. */
  readonly peakBytes: number;
}
