// Startup: a process that does nothing, one that makes a layer's weights, and one that runs a layer, by turns; and the first word of a
// model by openModel and by its parts, by turns.

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { spreadOf } from "../lib/measure.ts";
import { type Column, part } from "../lib/part.ts";

const RUNS = 31;
const QUICK_RUNS = 7;
const children = ["empty", "inputs", "layer"] as const;
type Child = (typeof children)[number];

interface StartRow {
  readonly step: string;
  readonly ms: number;
  readonly low: number;
  readonly high: number;
  readonly best: number;
}

const columns: readonly Column<StartRow>[] = [
  ["step", 32, (row) => row.step],
  ["ms", 6, (row) => row.ms.toFixed(1)],
  ["spread", 12, (row) => `${row.low.toFixed(1)}-${row.high.toFixed(1)}`],
  ["best", 6, (row) => row.best.toFixed(1)],
];

/** Runs one process from its start to its end. `took` are the steps that it measured itself, in milliseconds. */
function runChild(name: Child | "first-word", ...args: string[]): { ms: number; took: Record<string, number> } {
  const path = fileURLToPath(new URL(`${name}.mjs`, import.meta.url));
  const start = performance.now();
  const printed = execFileSync(process.execPath, [path, ...args], { encoding: "utf8" });
  return { ms: performance.now() - start, took: JSON.parse(printed) };
}

function rowOf(step: string, times: readonly number[]): StartRow {
  const { median, low, high } = spreadOf(times);
  return { step, ms: median, low, high, best: Math.min(...times) };
}

export const startup = part("startup", columns, async function* rows({ quick, wants }) {
  if (!wants("startup")) return;
  runChild("layer", "--check");
  const times: Record<Child, number[]> = { empty: [], inputs: [], layer: [] };
  const steps = new Map<string, number[]>();
  for (let run = 0; run < (quick ? QUICK_RUNS : RUNS); run++)
    for (let turn = 0; turn < children.length; turn++) {
      const child = children[(run + turn) % children.length]!;
      const { ms, took } = runChild(child);
      times[child].push(ms);
      if (child === "layer")
        for (const [step, at] of Object.entries(took)) steps.set(step, [...(steps.get(step) ?? []), at]);
    }
  const over = (step: string, child: Child): StartRow => ({
    ...rowOf(
      step,
      times.layer.map((ms, run) => ms - times[child][run]!),
    ),
    best: Math.min(...times.layer) - Math.min(...times[child]),
  });
  yield rowOf("an empty process", times.empty);
  yield rowOf("one that makes the weights", times.inputs);
  yield rowOf("one that runs a layer", times.layer);
  yield over("  over an empty one", "empty");
  yield over("  over one that makes the weights", "inputs");
  for (const [step, own] of steps) yield rowOf(`  its ${step}`, own);
  const ways = ["opened", "parts"] as const;
  const words: Record<(typeof ways)[number], number[]> = { opened: [], parts: [] };
  for (let run = 0; run < (quick ? QUICK_RUNS : RUNS); run++)
    for (const way of run % 2 === 0 ? ways : ways.toReversed())
      words[way].push(runChild("first-word", way).took["first word"] as number);
  yield rowOf("the first word by openModel", words.opened);
  yield rowOf("  by the parts", words.parts);
});
