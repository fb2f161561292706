// Tables of what was measured, and ratios.

import { median } from "../../../src/tools/diagnostics/timing.ts";
import type { DecoderResult, DecoderRow } from "./result.ts";
import type { DecoderShape } from "./shape.ts";
import { SHAPES } from "./shapes.ts";
import { nameOf, VARIANTS, type Variant } from "./variants.ts";

interface Line {
  readonly variant: Variant;
  readonly row: DecoderRow;
}

const rate = ({ rounds }: DecoderRow, work: string) => median(rounds.map(({ rates }) => rates[work]!.rate));

/** Tokens for each unit of what limits them: what stays the same when the machine slows down. */
const relative = ({ rounds }: DecoderRow, work: string) =>
  median(rounds.map(({ rates }) => rates[work]!.rate / rates[work]!.peak));

function cells({ variant, row }: Line, shape: DecoderShape, works: readonly string[]): string[] {
  const { reason, error, rounds } = row;
  if (rounds.length === 0) return [reason ?? "not measured"];
  const gigabytes = variant.bytes(shape) / 1e9;
  return [
    ...works.map((work) => rate(row, work).toFixed(1)),
    ...works
      .filter((work) => work.startsWith("d"))
      .map((work) => `${(100 * gigabytes * relative(row, work)).toFixed(0)} %`),
    median(rounds.map(({ startSeconds }) => startSeconds)).toFixed(1),
    (Math.max(...rounds.map(({ peakBytes }) => peakBytes)) / 1e6).toFixed(0),
    error === undefined ? "" : error.toExponential(1),
  ];
}

const markdown = (row: readonly string[]) => `| ${row.join(" | ")} |`;

function printModel(shape: DecoderShape, lines: readonly Line[], works: readonly string[]): void {
  const streamed = works.filter((work) => work.startsWith("d")).map((work) => `${work} of reading`);
  console.log(
    `\n${markdown([shape.name, ...works, ...streamed, "start s", "peak MB", "error"])}\n|---|${"---:|".repeat(works.length + streamed.length + 3)}`,
  );
  for (const line of lines) console.log(markdown([nameOf(line.variant), ...cells(line, shape, works)]));
  console.log();
  for (const kind of ["f32", "q8", "q4", "q4_k_m", "q1"] as const) printRatios(kind, lines, works);
}

/** How many times as fast headwise is as the fastest other peer in wasm, and as native code. */
function printRatios(kind: Variant["kind"], lines: readonly Line[], works: readonly string[]): void {
  const measured = lines.filter(({ variant, row }) => variant.kind === kind && row.rounds.length > 0);
  const own = measured.filter(({ variant }) => variant.peer === "headwise");
  const others = measured.filter(({ variant }) => variant.peer !== "headwise");
  const groups = [
    ["the fastest other wasm", others.filter(({ variant }) => !variant.native)],
    ["native", others.filter(({ variant }) => variant.native)],
  ] as const;
  for (const { variant, row } of own)
    for (const [name, group] of groups)
      if (group.length > 0) {
        const ratios = works.map((work) => {
          const most = Math.max(...group.map((line) => relative(line.row, work)));
          return `${work} ${(relative(row, work) / most).toFixed(2)}`;
        });
        console.log(`- ${nameOf(variant)} / ${name} in ${kind}: ${ratios.join(", ")}`);
      }
}

export function printTables({ rows, versions, machine, engine, date }: DecoderResult): void {
  const peers = Object.entries(versions).map(([peer, version]) => `${peer} ${version}`);
  console.log(
    `${machine.cpu}, ${machine.cores} cores, one thread used, Node ${engine.node}, ${date.slice(0, 10)}; ${peers.join(", ")}`,
  );
  for (const shape of SHAPES) {
    const lines = VARIANTS.flatMap((variant) => {
      const row = rows.find(({ model, variant: name }) => model === shape.name && name === nameOf(variant));
      return row ? [{ variant, row }] : [];
    });
    const works = lines.flatMap(({ row }) => row.rounds).flatMap(({ rates }) => Object.keys(rates));
    if (lines.length > 0) printModel(shape, lines, [...new Set(works)]);
  }
  console.log(
    "\nTokens a second, medians: p128 is a prompt of 128, d128 a token behind 128. Ratios are of the rates divided by those of a loop in the same process: multiply-adds for prompts, reading for tokens.",
  );
}
