// What the study finds.

import type { GroupResult, GroupResults } from "../groups.ts";

/** Models of one shape, trained on one task, in the order of the seeds. */
export interface Group extends GroupResult {
  readonly layers: number;
  readonly heads: number;
  readonly positions: "rope" | "learned" | "none";
  /** Validation loss in bits on the other task, which the model was not trained on. */
  readonly otherBits: readonly number[];
  /** The same on its own task without the head of the first layer that looks most at the previous token. */
  readonly bitsWithout: readonly number[];
  /** Share of attention on the answer, and on the previous token, of the head in which it is largest. */
  readonly answer: readonly number[];
  readonly previous: readonly number[];
}

export type CopyResult = GroupResults<Group>;
