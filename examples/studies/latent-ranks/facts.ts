// What follows from the numbers of a result.

import { mean } from "../study.ts";
import type { Group, RanksResult } from "./study.ts";

export const groupOf = ({ groups }: RanksResult, name: string): Group => {
  const found = groups.find((group) => group.name === name);
  if (!found) throw new Error(`result.json has no group ${name}`);
  return found;
};

/** Share of MHA's cache. */
export const shareOf = (result: RanksResult, { floats }: Group): number => floats / groupOf(result, "MHA").floats;

/** Bits more than MHA's. */
export const costOf = (result: RanksResult, { bits }: Group): number => mean(bits) - mean(groupOf(result, "MHA").bits);

/** Variants with latents whose cache is below an eighth of MHA's. */
export const belowEighth = (result: RanksResult): Group[] =>
  result.groups.filter((group) => group.rank !== null && shareOf(result, group) < 1 / 8);

/** Those of them whose mean loss is within 1 bit of MHA's. */
export const belowEighthWithinBit = (result: RanksResult): Group[] =>
  belowEighth(result).filter((group) => costOf(result, group) <= 1);

/** How many seeds are within 1 bit of MHA's mean. */
export const seedsWithinBit = (result: RanksResult, { bits }: Group): number =>
  bits.filter((each) => each <= mean(groupOf(result, "MHA").bits) + 1).length;
