// The command line of `npm run bench`:
// [--against FOLDER] [--quick] [--part NAME]… [--only TEXT] [--build simd|relaxed] [--json FILE] [--processor-time]
// With --processor-time, samples take that of the process instead of the clock's: of work on one thread, others take none of it.

import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { buildNames } from "./builds.ts";
import { describeOrigin, originOf } from "./machine.ts";
import type { Effort } from "./measure.ts";
import type { Context, Part } from "./part.ts";
import { processorMs } from "./processor-time.ts";

/** The names of the parts that there are, and how long a row takes, also with --quick. */
interface Mode {
  readonly parts: readonly string[];
  readonly full: Effort;
  readonly quick: Effort;
}

export interface Command {
  readonly context: Context;
  /** The selected parts; none stands for all. */
  readonly parts: readonly string[];
  readonly json: string | undefined;
  /** The folder of another checkout that this one is compared with. */
  readonly against: string | undefined;
}

/** What was asked for: this checkout by itself, or with --against. */
export function readCommand(modes: { readonly alone: Mode; readonly against: Mode }): Command {
  const { values: options } = parseArgs({
    options: {
      against: { type: "string" },
      quick: { type: "boolean", default: false },
      part: { type: "string", multiple: true, default: [] },
      only: { type: "string", default: "" },
      build: { type: "string", default: "" },
      json: { type: "string" },
      "processor-time": { type: "boolean", default: false },
    },
  });
  const { parts, full, quick } = options.against === undefined ? modes.alone : modes.against;
  for (const name of options.part)
    if (!parts.includes(name)) throw new RangeError(`bench: --part expected one of ${parts.join(", ")}, got ${name}`);
  const builds = buildNames.filter((name) => options.build === "" || name === options.build);
  if (builds.length === 0)
    throw new RangeError(`bench: --build expected one of ${buildNames.join(", ")}, got ${options.build}`);
  const context: Context = {
    quick: options.quick,
    effort: { ...(options.quick ? quick : full), ...(options["processor-time"] && { clock: processorMs }) },
    builds,
    wants: (label) => label.includes(options.only),
  };
  return { context, parts: options.part, json: options.json, against: options.against };
}

/** Runs the selected parts, prints their tables, and returns their rows by part. */
export async function runParts(parts: readonly Part[], command: Command): Promise<Record<string, readonly object[]>> {
  const origin = originOf();
  console.log(describeOrigin(origin));
  const rows: Record<string, readonly object[]> = {};
  for (const part of parts)
    if (command.parts.length === 0 || command.parts.includes(part.name))
      rows[part.name] = await part.run(command.context);
  if (command.json !== undefined)
    writeFileSync(
      command.json,
      `${JSON.stringify({ ...origin, quick: command.context.quick, parts: rows }, null, 2)}\n`,
    );
  return rows;
}
