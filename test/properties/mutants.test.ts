// Properties are worth what they catch: some of the faults that `npm run test:long` puts into the attention kernels, all
// of them in mutants.long.ts.

import { expect, test } from "vitest";
import { expectFound, MUTANTS } from "../support/mutants.ts";
import { sampled } from "../support/sampled.ts";

const FAULTS = [
  "a masked score is a large negative number",
  "values of masked keys are not checked",
  "sums take their keys in another order",
  "integers are rounded towards zero",
  "an odd first token is taken for an even one",
  "sums of what keys receive end with a tile",
];

test.each(sampled(["floats", "coded", "latents", "statistics"] as const, 2))(
  "the properties of the attention kernels hold without a fault, on pages of %s",
  async (pages) => {
    await expectFound(false, pages, undefined, 20);
  },
);

test("the properties of the attention kernels find each of six faults in their source within 150 random calls", async () => {
  const chosen = MUTANTS.filter(({ fault }) => FAULTS.includes(fault));
  expect(chosen.length).toBe(FAULTS.length);
  for (const mutant of sampled(chosen, 1, ({ pages }) => pages ?? "floats"))
    await expectFound(mutant.relaxed ?? false, mutant.pages ?? "floats", mutant);
});
