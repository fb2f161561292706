// npm run bench [-- --quick] [--part NAME]… [--only TEXT] [--build simd|relaxed] [--json FILE]
// TEXT is part of a row's first columns. Every kernel and block is checked against float64 before it is timed.

import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { blocks } from "./blocks.ts";
import { buildNames } from "./builds.ts";
import { kernels } from "./kernels.ts";
import { long } from "./long.ts";
import { describeOrigin, originOf } from "./machine.ts";
import type { Effort } from "./measure.ts";
import type { Context } from "./part.ts";
import { peaks } from "./peaks.ts";
import { start } from "./start.ts";
import { threads } from "./threads.ts";

const parts = [start, peaks, kernels, blocks, threads, long];
const full: Effort = { samples: 101, sampleMs: 4, warmupMs: 200, mostMs: 6000 };
const quick: Effort = { samples: 21, sampleMs: 3, warmupMs: 80, mostMs: 1000 };

const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    part: { type: "string", multiple: true, default: [] },
    only: { type: "string", default: "" },
    build: { type: "string", default: "" },
    json: { type: "string" },
  },
});
for (const name of options.part)
  if (!parts.some((one) => one.name === name))
    throw new RangeError(`bench: --part expected one of ${parts.map((one) => one.name).join(", ")}, got ${name}`);
const builds = buildNames.filter((name) => options.build === "" || name === options.build);
if (builds.length === 0)
  throw new RangeError(`bench: --build expected one of ${buildNames.join(", ")}, got ${options.build}`);

const context: Context = {
  quick: options.quick,
  effort: options.quick ? quick : full,
  builds,
  wants: (label) => label.includes(options.only),
};
const origin = originOf();
console.log(describeOrigin(origin));

const found: Record<string, readonly object[]> = {};
for (const part of parts)
  if (options.part.length === 0 || options.part.includes(part.name)) found[part.name] = await part.run(context);
if (options.json !== undefined)
  writeFileSync(options.json, `${JSON.stringify({ ...origin, quick: options.quick, parts: found }, null, 2)}\n`);
