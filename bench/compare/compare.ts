// npm run bench -- --against FOLDER: this checkout against another one that is built.

import { join } from "node:path";
import { type Command, runParts } from "../lib/command.ts";
import { openCheckout } from "./checkout.ts";
import { type Difference, verdictOf } from "./difference.ts";
import { compareDecode, compareKernels, comparePrompts, compareStartup, compareTokens } from "./parts.ts";

const COMPARISONS = {
  kernels: compareKernels,
  layers: comparePrompts,
  decode: compareDecode,
  tokens: compareTokens,
  startup: compareStartup,
};

export const COMPARED_PARTS: readonly string[] = Object.keys(COMPARISONS);

/** Prints the tables and which rows are slower; then the exit code is 1. */
export async function compareWith(folder: string, command: Command): Promise<void> {
  const [old, now] = [await openCheckout(folder), await openCheckout(join(import.meta.dirname, "../.."))];
  const parts = Object.values(COMPARISONS).map((compare) => compare(old, now));
  const rows = Object.values(await runParts(parts, command)).flat() as readonly Difference[];
  const of = (verdict: ReturnType<typeof verdictOf>) => rows.filter((row) => verdictOf(row) === verdict);
  const slower = of("slower");
  console.log(`\n${slower.length} of ${rows.length} rows are more than 2 % slower${slower.length > 0 ? ":" : ""}`);
  for (const { work, build, ratio } of slower) console.log(`  ${work.trim()}, ${build}: ${ratio.toFixed(3)}`);
  if (of("unclear").length > 0)
    console.log(`${of("unclear").length} rows are unclear: measure them again, with --only`);
  if (slower.length > 0) process.exitCode = 1;
}
