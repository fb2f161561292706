// What the study finds.

import type { GroupResult, GroupResults } from "../groups.ts";

/** Models of one variant of attention, in the order of the seeds. */
export interface Group extends GroupResult {
  /** "MHA", "GQA 4", "GQA 2" (the number of key heads), "MQA", "MLA 8" (the rank). */
  readonly name: string;
  /** Floats of a latent; null without latents. */
  readonly rank: number | null;
  /** Layers of a model and heads of a layer. */
  readonly layers: number;
  readonly heads: number;
  /** What a layer has to keep of a token: keys and values, or a latent and a rotated key. */
  readonly floats: number;
  /** Bytes that headwise takes for them in float32, in whole groups of 8 floats. */
  readonly storedBytes: number;
}

export type RanksResult = GroupResults<Group>;
