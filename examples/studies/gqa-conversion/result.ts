// What the study finds.

import type { ConversionError, Method } from "./convert.ts";

/** How the decoders are trained: the constants of train.py. */
export interface Setup {
  /** The version of PyTorch. */
  readonly torch: string;
  readonly seeds: readonly number[];
  readonly steps: number;
  readonly upSteps: number;
  /** The highest rate of the further steps. */
  readonly upRate: number;
  readonly layers: number;
  readonly dModel: number;
  readonly heads: number;
  /** Sequences of a step. */
  readonly rows: number;
  /** Tokens of a segment that is measured. */
  readonly segment: number;
}

/** A converted model of a seed, or with the method "none" the model itself. Losses are nats a token of the second copy. */
export interface Converted {
  readonly seed: number;
  readonly method: Method | "none";
  readonly kvHeads: number;
  /** Bytes of keys and values of a token in float32, of all layers. */
  readonly cacheBytes: number;
  readonly error?: ConversionError | undefined;
  readonly loss: number;
  readonly uptrained: number;
}

export interface GqaResult {
  readonly setup: Setup;
  /** Sequences that are measured. */
  readonly sequences: number;
  /** Nats of a token of which only its frequency is known. */
  readonly entropy: number;
  /** The largest difference between the losses of PyTorch and of headwise. */
  readonly difference: number;
  readonly models: readonly Converted[];
}
