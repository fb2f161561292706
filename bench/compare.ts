// npm run bench:compare -- FOLDER [OPTIONS]: this checkout against another one that is built: bench/README.md

import { join } from "node:path";
import { openCheckout } from "./compare/checkout.ts";
import { type Difference, verdictOf } from "./compare/difference.ts";
import { compareDecode, compareKernels, comparePrompts, compareStartup } from "./compare/parts.ts";
import { readCommand, runParts } from "./lib/command.ts";

// Short samples, so that many of them are not interrupted even on a busy machine.
const command = readCommand(["kernels", "layers", "decode", "startup"], {
  full: { samples: 301, sampleMs: 1, warmupMs: 200, mostMs: 6000 },
  quick: { samples: 61, sampleMs: 1, warmupMs: 80, mostMs: 1000 },
});
const [folder, ...rest] = command.positionals;
if (folder === undefined || rest.length > 0)
  throw new TypeError("bench:compare: the folder of one built checkout expected: npm run bench:compare -- ../other");

const [old, now] = [await openCheckout(folder), await openCheckout(join(import.meta.dirname, ".."))];
const parts = [compareKernels, comparePrompts, compareDecode, compareStartup].map((compare) => compare(old, now));
const rows = Object.values(await runParts(parts, command)).flat() as readonly Difference[];

const of = (verdict: ReturnType<typeof verdictOf>) => rows.filter((row) => verdictOf(row) === verdict);
const slower = of("slower");
console.log(`\n${slower.length} of ${rows.length} rows are more than 2 % slower${slower.length > 0 ? ":" : ""}`);
for (const { work, build, ratio } of slower) console.log(`  ${work.trim()}, ${build}: ${ratio.toFixed(3)}`);
if (of("unclear").length > 0) console.log(`${of("unclear").length} rows are unclear: measure them again, with --only`);
if (slower.length > 0) process.exitCode = 1;
