// A model with the shape of Gemma 4 E2B whose table of inputs of layers is in its file, by turns with the same one that holds the table:
// memory, the first token, and the tokens behind it.

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Column, part } from "../lib/part.ts";
import { GEMMA_E2B, writeRandomModel } from "../lib/random-file.ts";

const RUNS = 3;
const WAYS = ["on-demand", "resident"] as const;

/** What a process prints. */
interface Run {
  readonly loaded: number;
  readonly first: number;
  readonly prefill: number;
  readonly token: number;
  readonly peak: number;
  readonly linear: number;
}

interface InputsRow extends Run {
  readonly perLayer: string;
}

const gigabytes = (bytes: number) => (bytes / 1e9).toFixed(2);
const columns: readonly Column<InputsRow>[] = [
  ["perLayer", 10, (row) => row.perLayer],
  ["peak GB", 8, (row) => gigabytes(row.peak)],
  ["linear GB", 9, (row) => gigabytes(row.linear)],
  ["loaded s", 8, (row) => row.loaded.toFixed(1)],
  ["first token s", 13, (row) => row.first.toFixed(1)],
  ["prompt of 128 s", 15, (row) => row.prefill.toFixed(1)],
  ["ms a token", 10, (row) => (1000 * row.token).toFixed(0)],
];

const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] as number;

export const inputsOfLayers = part("inputs", columns, async function* rows({ quick }): AsyncGenerator<InputsRow> {
  if (quick) return;
  const folder = mkdtempSync(join(tmpdir(), "headwise-inputs-"));
  try {
    await writeRandomModel(folder, GEMMA_E2B);
    const child = fileURLToPath(new URL("first-token.mjs", import.meta.url));
    const runs: Record<(typeof WAYS)[number], Run[]> = { "on-demand": [], resident: [] };
    for (let run = 0; run < RUNS; run++)
      for (const way of run % 2 === 0 ? WAYS : WAYS.toReversed())
        runs[way].push(JSON.parse(execFileSync(process.execPath, [child, folder, way], { encoding: "utf8" })));
    for (const perLayer of WAYS) {
      const own = runs[perLayer];
      const of = (name: keyof Run) => median(own.map((run) => run[name]));
      const times = { loaded: of("loaded"), first: of("first"), prefill: of("prefill"), token: of("token") };
      yield { perLayer, ...times, peak: of("peak"), linear: of("linear") };
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
