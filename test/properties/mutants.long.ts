import { test } from "vitest";
import { expectFound, MUTANTS } from "../support/mutants.ts";

test.each([
  [false, "floats"],
  [false, "coded"],
  [false, "latents"],
  [false, "statistics"],
  [true, "floats"],
  [true, "coded"],
  [true, "latents"],
  [true, "statistics"],
] as const)(
  "150 random calls of the attention kernels are as they must be without a fault, relaxed %s, pages of %s",
  async (relaxed, pages) => {
    await expectFound(relaxed, pages);
  },
);

test.each(MUTANTS)("150 random calls of the attention kernels find that $fault", async (mutant) => {
  await expectFound(mutant.relaxed ?? false, mutant.pages ?? "floats", mutant);
});
