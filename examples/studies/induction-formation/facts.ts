// What follows from the numbers of a result.

import { mean } from "../study.ts";
import type { Checkpoint, Circuit, FormationResult, Run } from "./result.ts";

/** Heads count as formed from this score on. */
export const HIGH = 0.5;
/** And as rising from this one on: scores of untrained heads are below 0.1. */
export const RISEN = 0.2;

type Of = (checkpoint: Checkpoint) => number;

const largest = (scores: readonly number[]) => Math.max(...scores);
export const previousOf: Of = ({ previous }) => largest(previous[0]!);
export const inductionOf: Of = ({ induction }) => largest(induction.at(-1)!);
/** Olsson et al. (2022): the loss at late tokens minus that at early ones. */
export const contextOf: Of = ({ early, late }) => late - early;
export const last = ({ checkpoints }: Run): Checkpoint => checkpoints.at(-1)!;

/** The runs of two layers, and those of one. */
export const byLayers = ({ runs }: FormationResult): { two: Run[]; one: Run[] } => {
  return { two: runs.filter(({ layers }) => layers === 2), one: runs.filter(({ layers }) => layers === 1) };
};

/** The first step at which a value has gone half of its way from the first checkpoint to the last. */
export function halfway({ checkpoints }: Run, of: Of): number {
  const [from, to] = [of(checkpoints[0]!), of(checkpoints.at(-1)!)];
  return checkpoints.find((each) => (of(each) - from) / (to - from) >= 0.5)!.step;
}

/** The first step at which a score is RISEN. */
export const risen = ({ checkpoints }: Run, of: Of): number => checkpoints.find((each) => of(each) >= RISEN)!.step;

/** How many runs end with an induction head. */
export const formed = (runs: readonly Run[]): number => runs.filter((run) => inductionOf(last(run)) >= HIGH).length;

/** The parts of the circuit that are taken away. */
export const PARTS = {
  all: "all heads",
  withoutPrevious: "without the previous-token head",
  withoutOther: "without one other head of layer 0, mean",
  keys: "only keys of layer 1 without it",
  queries: "only queries of layer 1 without it",
  values: "only values of layer 1 without it",
} as const;
export type PartName = keyof typeof PARTS & keyof Circuit;

/** The mean of the seeds. */
export const partOf = (runs: readonly Run[], part: PartName, of: "late" | "induction"): number =>
  mean(runs.map(({ circuit }) => circuit![part][of]));

/** What the induction head loses most by. */
export const composedBy = (runs: readonly Run[]): "keys" | "queries" | "values" =>
  (["keys", "queries", "values"] as const).reduce((most, part) =>
    partOf(runs, part, "induction") < partOf(runs, most, "induction") ? part : most,
  );
