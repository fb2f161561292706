// What families with experts share: how config.json states them, and names of their tensors.

import type { MoeSpec, RouterSpec } from "../spec/spec.ts";
import type { Fields } from "./facts.ts";
import type { Family } from "./family.ts";

/** How a layer's experts are read of config.json. */
export type ReadExperts = NonNullable<Family["moe"]>;

/** The tensors of an expert below a prefix. */
export const expertsOf =
  (prefix: string): ((expert: number) => string) =>
  (expert) =>
    `${prefix}.${expert}`;

/** Weights are a softmax over the scores, divided by the sum of those chosen. */
export const SOFTMAX: RouterSpec = {
  score: "softmax",
  correction: false,
  renormalise: true,
  scale: 1,
  groups: 1,
  keepGroups: 1,
  pairs: false,
};

/** The number of experts, under the first of these names that the file has. */
export function countExperts(file: Fields, names: readonly string[], otherwise: number | undefined): number {
  const name = names.find((each) => file.raw(each) !== undefined) ?? (names[0] as string);
  return file.count(name, otherwise);
}

/** Throws unless groups of experts have the same size, and those that take part have enough experts. */
export function expectGroups(file: Fields, { experts, topK, router }: MoeSpec): void {
  const { groups, keepGroups, pairs } = router;
  const size = experts / groups;
  if (!Number.isInteger(size)) throw file.refusal("n_group", `a divisor of the ${experts} experts`, groups);
  if (pairs && size < 2) throw file.refusal("n_group", `groups of at least 2 of the ${experts} experts`, groups);
  if (keepGroups > groups) throw file.refusal("topk_group", `at most the ${groups} groups of n_group`, keepGroups);
  if (topK > keepGroups * size)
    throw file.refusal("num_experts_per_tok", `at most the ${keepGroups * size} experts of topk_group groups`, topK);
}
