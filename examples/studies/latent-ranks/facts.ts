// What follows from the numbers of a result.

import { listText } from "../page.ts";
import { mean } from "../study.ts";
import type { Group, RanksResult } from "./result.ts";

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

/** How many seeds are within 1 bit of MHA's mean. */
export const seedsWithinBit = (result: RanksResult, { bits }: Group): number =>
  bits.filter((each) => each <= mean(groupOf(result, "MHA").bits) + 1).length;

export const signedBits = (value: number): string => `${value < 0 ? "" : "+"}${value.toFixed(2)}`;

/** The sentences that answer the question, from the numbers. */
export function answer(result: RanksResult): string {
  const below = belowEighth(result);
  const all = result.setup.seeds.length;
  const describe = (group: Group) => `${group.rank} (${signedBits(costOf(result, group))} bits)`;
  const within = (is: (seeds: number) => boolean) => below.filter((group) => is(seedsWithinBit(result, group)));
  const ranks = (groups: readonly Group[]) =>
    `${groups.length === 1 ? "rank" : "ranks"} ${listText(groups.map(describe))}`;
  const [every, some, none] = [
    within((seeds) => seeds === all),
    within((seeds) => seeds > 0 && seeds < all),
    within((seeds) => seeds === 0),
  ];
  const mqa = groupOf(result, "MQA");
  return [
    every.length > 0
      ? `**Of the ranks whose cache is below an eighth of MHA's, ${ranks(every)} ${every.length === 1 ? "is" : "are"} within 1 bit of its loss in all ${all} seeds.**`
      : "**No rank whose cache is below an eighth of MHA's is within 1 bit of its loss in all seeds.**",
    ...some.map((group) => `Rank ${describe(group)} is in ${seedsWithinBit(result, group)} of ${all}.`),
    ...(none.length > 0 ? [`Not within 1 bit in any seed: ${ranks(none)}.`] : []),
    `The cache of MQA is exactly an eighth of MHA's, so not below it, and its loss is ${signedBits(costOf(result, mqa))} bits.`,
  ].join(" ");
}
