// The command line of `npm run bench` and `npm run bench:compare`:
// [--quick] [--part NAME]… [--only TEXT] [--build simd|relaxed] [--json FILE]

import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { buildNames } from "./builds.ts";
import { describeOrigin, originOf } from "./machine.ts";
import type { Effort } from "./measure.ts";
import type { Context, Part } from "./part.ts";

/** How long a row takes, and with --quick. */
interface Efforts {
  readonly full: Effort;
  readonly quick: Effort;
}

export interface Command {
  readonly context: Context;
  /** The selected parts; none stands for all. */
  readonly parts: readonly string[];
  readonly json: string | undefined;
  readonly positionals: readonly string[];
}

export function readCommand(partNames: readonly string[], { full, quick }: Efforts): Command {
  const { values: options, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      quick: { type: "boolean", default: false },
      part: { type: "string", multiple: true, default: [] },
      only: { type: "string", default: "" },
      build: { type: "string", default: "" },
      json: { type: "string" },
    },
  });
  for (const name of options.part)
    if (!partNames.includes(name))
      throw new RangeError(`bench: --part expected one of ${partNames.join(", ")}, got ${name}`);
  const builds = buildNames.filter((name) => options.build === "" || name === options.build);
  if (builds.length === 0)
    throw new RangeError(`bench: --build expected one of ${buildNames.join(", ")}, got ${options.build}`);
  const context: Context = {
    quick: options.quick,
    effort: options.quick ? quick : full,
    builds,
    wants: (label) => label.includes(options.only),
  };
  return { context, parts: options.part, json: options.json, positionals };
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
