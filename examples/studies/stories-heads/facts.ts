// What follows from the numbers of a result.

import { byWeight, type Grid, type Head, type LookResult, NEEDED } from "./result.ts";

/** A head looks at a place if it gives it this much. */
export const LOOKING = 0.5;

export const at = (grid: Grid, { layer, head }: Head): number => grid[layer]![head]!;

/** Heads that look where they have to, those that look most first. */
export const lookingOf = ({ weights }: LookResult): Head[] =>
  byWeight(weights).filter((head) => at(weights, head) >= LOOKING);

/** Heads without which alone much less is known, by 0 and by the mean; those that cost most first. */
export const neededOf = ({ weights, accuracy, withoutZero, withoutMean }: LookResult): Head[] =>
  byWeight(weights)
    .filter((head) => accuracy - Math.max(at(withoutZero, head), at(withoutMean, head)) >= NEEDED)
    .sort((a, b) => at(withoutZero, a) - at(withoutZero, b));

/** Whether a head that looks is needed alone, or those that look are not, or none looks. */
export function kindOf(look: LookResult): "needed" | "spare" | "none" {
  const needed = neededOf(look);
  const looking = lookingOf(look);
  if (looking.length === 0) return "none";
  return looking.some(({ layer, head }) => needed.some((each) => each.layer === layer && each.head === head))
    ? "needed"
    : "spare";
}
