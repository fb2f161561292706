import { test } from "vitest";
import { expectFound, MUTANTS } from "../support/mutants.ts";

test.each([
  [false, false],
  [false, true],
  [true, false],
  [true, true],
])("150 random calls of attention_f32 are as they must be without a fault, relaxed %s, coded pages %s", expectFound);

test.each(MUTANTS)("150 random calls of attention_f32 find that $fault", async (mutant) => {
  await expectFound(mutant.relaxed ?? false, mutant.coded ?? false, mutant);
});
