// What follows from the numbers of a result.

import { mean } from "../study.ts";
import { METHODS } from "./convert.ts";
import type { Converted, GqaResult } from "./result.ts";

export type Method = Converted["method"];
/** The loss at once, or after the further steps. */
export type Loss = "loss" | "uptrained";

export const MEANING: Readonly<Record<Method, string>> = {
  none: "as it was",
  mean: "mean of the heads of a group",
  first: "first head of a group",
  svd: "best common basis of a group",
  random: "random key and value heads",
};

/** The numbers of key-value heads that were tried, which are fewer than those of the model itself. */
export const fewerHeads = ({ setup, models }: GqaResult): number[] => [
  ...new Set(models.flatMap(({ kvHeads }) => (kvHeads < setup.heads ? kvHeads : []))),
];

/** The value of each seed. */
export const valuesOf = (
  { models }: GqaResult,
  method: Method,
  kvHeads: number,
  of: (model: Converted) => number,
): number[] => models.filter((model) => model.method === method && model.kvHeads === kvHeads).map(of);

export const lossesOf = (result: GqaResult, method: Method, kvHeads: number, which: Loss): number[] =>
  valuesOf(result, method, kvHeads, (model) => model[which]);

/** Of the model itself. */
export const ownLosses = (result: GqaResult, which: Loss): number[] =>
  lossesOf(result, "none", result.setup.heads, which);

/** The conversion with the least mean loss. */
export const bestOf = (result: GqaResult, kvHeads: number, which: Loss): Method => {
  const loss = (method: Method) => mean(lossesOf(result, method, kvHeads, which));
  const conversions = METHODS.filter((method) => method !== "random");
  return conversions.reduce((best, method) => (loss(method) < loss(best) ? method : best));
};

/** The share of what the best conversion loses at once that the further steps bring back. */
export function regained(result: GqaResult, kvHeads: number): number {
  const lost = (which: Loss) =>
    mean(lossesOf(result, bestOf(result, kvHeads, which), kvHeads, which)) - mean(ownLosses(result, which));
  return 1 - lost("uptrained") / lost("loss");
}

/** In how many seeds a method has less loss than another after the further steps. */
export function seedsBetter(result: GqaResult, one: Method, other: Method, kvHeads: number): number {
  const theirs = lossesOf(result, other, kvHeads, "uptrained");
  return lossesOf(result, one, kvHeads, "uptrained").filter((loss, i) => loss < theirs[i]!).length;
}
