// What the study finds.

export interface Head {
  readonly layer: number;
  readonly head: number;
}

/** A number for each head: [layer][head]. */
export type Grid = readonly (readonly number[])[];

/**
 * Shares of words that are still known without the `count` heads that look most, and without as many others, of which none is
 * needed alone.
 */
export interface Group {
  readonly count: number;
  readonly zero: number;
  readonly mean: number;
  /** A share for each random set of other heads. */
  readonly othersZero: readonly number[];
  readonly othersMean: readonly number[];
}

export interface LookResult {
  readonly name: string;
  readonly probes: readonly string[];
  /** Words of a story: *what is looked at*, **what looks**. */
  readonly example: string;
  /** The mean weight on the places to look at, and from these on the word before them. */
  readonly weights: Grid;
  readonly before: Grid;
  /** The same of a head that weighs all places alike. */
  readonly uniform: number;
  /** Words that were asked for, and the share of them that is known with all heads. */
  readonly targets: number;
  readonly accuracy: number;
  /** The share that a guess among the words of the right kind in the story would know. */
  readonly chance: number;
  /** The share without the head: with its output set to 0, and to its mean. */
  readonly withoutZero: Grid;
  readonly withoutMean: Grid;
  readonly groups: readonly Group[];
}

export interface StoriesResult {
  readonly stories: { readonly looked: number; readonly tested: number };
  /** Scores of heads by the name of the pattern. */
  readonly kinds: Readonly<Record<string, Grid>>;
  readonly looks: readonly LookResult[];
}

/** Stories that are read for each set of heads. */
export const MOST_STORIES = 60;

/** A head is needed alone if without it so much less is known. */
export const NEEDED = 0.1;

/** All heads by their weight, the largest first. */
export const byWeight = (weights: Grid): Head[] =>
  weights
    .flatMap((row, layer) => row.map((_, head): Head => ({ layer, head })))
    .sort((a, b) => weights[b.layer]![b.head]! - weights[a.layer]![a.head]!);
