// What the study finds.

/** How the decoders are trained: the constants of train.py. */
export interface Setup {
  /** The version of PyTorch. */
  readonly torch: string;
  readonly seeds: readonly number[];
  readonly steps: number;
  readonly dModel: number;
  readonly heads: number;
  /** Sequences of a step, and their tokens. */
  readonly rows: number;
  readonly length: number;
  /** How many tokens there are. */
  readonly tokens: number;
  /** Lengths of a segment, from the shortest to that which is measured. */
  readonly shortest: number;
  readonly segment: number;
}

/** Means over the measured sequences. */
export interface Measured {
  /** Nats a token, at all places but the first. */
  readonly loss: number;
  /** At the last PLACES places of the first copy of the segment, and of the second. */
  readonly early: number;
  readonly late: number;
  /** [layer][head]: the weight of the previous token. */
  readonly previous: readonly (readonly number[])[];
  /** [layer][head]: the weight of what followed the same token before, where it came before. */
  readonly induction: readonly (readonly number[])[];
}

/** Places at the end of a copy of the segment. */
export const PLACES = 24;

export interface Checkpoint extends Measured {
  readonly step: number;
}

/** The late loss, and the score of the induction head. */
export interface Part {
  readonly late: number;
  readonly induction: number;
}

/** The best previous-token head of layer 0, the best induction head of layer 1, and what is left without a part of the circuit. */
export interface Circuit {
  readonly previousHead: number;
  readonly inductionHead: number;
  readonly all: Part;
  readonly withoutPrevious: Part;
  /** Without one other head of layer 0: the mean over these. */
  readonly withoutOther: Part;
  /** With keys, queries or values of layer 1 as they are without the previous-token head. */
  readonly keys: Part;
  readonly queries: Part;
  readonly values: Part;
}

export interface Run {
  readonly layers: number;
  readonly seed: number;
  readonly checkpoints: readonly Checkpoint[];
  /** Of two layers. */
  readonly circuit?: Circuit;
}

export interface FormationResult {
  readonly setup: Setup;
  /** Sequences that are measured. */
  readonly sequences: number;
  /** Nats of a token of which only its frequency is known. */
  readonly entropy: number;
  /** The largest difference between the losses of PyTorch and of headwise over all checkpoints. */
  readonly difference: number;
  readonly runs: readonly Run[];
}
