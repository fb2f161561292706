// Properties are worth what they catch: some of the faults that `npm run test:long` puts into the attention kernel, all
// of them in mutants.long.ts.

import { expect, test } from "vitest";
import { expectFound, MUTANTS } from "../support/mutants.ts";

const FAULTS = [
  "a masked score is a large negative number",
  "values of masked keys are not checked",
  "sums take their keys in another order",
  "integers are rounded towards zero",
];

test.each([false, true])("the properties of attention_f32 hold without a fault, on coded pages: %s", async (coded) => {
  await expectFound(false, coded);
});

test("the properties of attention_f32 find each of four faults in its source within 150 random calls", async () => {
  const chosen = MUTANTS.filter(({ fault }) => FAULTS.includes(fault));
  expect(chosen.length).toBe(FAULTS.length);
  for (const mutant of chosen) await expectFound(mutant.relaxed ?? false, mutant.coded ?? false, mutant);
});
