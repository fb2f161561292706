// The tables, in Markdown.

import type { Timing } from "./measure.ts";
import type { Result, Row } from "./result.ts";

const FIRST = "headwise";
const isNative = (name: string) => name.startsWith("native");

const number = (value: number) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));

const line = (cells: readonly string[]) => console.log(`| ${cells.join(" | ")} |`);

function header(cells: readonly string[]): void {
  line(cells);
  line(cells.map((_, i) => (i === 0 ? "---" : "---:")));
}

function timeOf(row: Row, peer: string): Timing | undefined {
  return row.timings.find((one) => one.peer === peer && !one.aside);
}

function cell(row: Row, peer: string): string {
  const timing = timeOf(row, peer);
  if (!timing) return "-";
  const aside = row.timings.find((one) => one.peer === peer && one.aside);
  const ms = number(timing.ms.median) + (aside ? ` [${number(aside.ms.median)}]` : "");
  if (peer === FIRST || !timeOf(row, FIRST)) return ms;
  const { median, low, high } = timing.ratio;
  return `${ms} (${median.toFixed(2)}; ${low.toFixed(2)}-${high.toFixed(2)})`;
}

/** The fastest JavaScript peer besides headwise. */
function fastest(row: Row): Timing | undefined {
  if (!timeOf(row, FIRST)) return undefined;
  const others = row.timings.filter((one) => one.peer !== FIRST && !isNative(one.peer) && !one.aside);
  return others.toSorted((a, b) => a.ratio.median - b.ratio.median)[0];
}

/** A row in one line, printed as soon as it is measured. */
export function rowLine(row: Row): string {
  const cells = row.timings.map(
    ({ peer, way, ms, ratio }) => `${peer} ${number(ms.median)} (${ratio.median.toFixed(2)}, ${way})`,
  );
  const reasons = row.absences.map(({ peer, way, reason }) => `${peer}, ${way}: ${reason}`);
  return [`${row.work}: ${cells.join(", ")}; peak ${row.peakGflops.toFixed(1)} GFLOP/s`, ...reasons].join("\n  ");
}

function printRows(rows: readonly Row[], peers: readonly string[]): void {
  header(["ms", ...peers, "fastest in JavaScript", "headwise, % of peak"]);
  for (const row of rows) {
    const own = timeOf(row, FIRST);
    const best = fastest(row);
    const share = own ? (100 * row.flops) / own.ms.median / 1e6 / row.peakGflops : NaN;
    line([
      row.work,
      ...peers.map((peer) => cell(row, peer)),
      best ? `${best.peer}, ${best.ratio.median.toFixed(2)}` : "-",
      own ? share.toFixed(0) : "-",
    ]);
  }
}

/** Errors differ, because some peers have integer activations and some float32. */
function printErrors(rows: readonly Row[], peers: readonly string[]): void {
  header(["largest error, of a row's largest value", ...peers]);
  for (const row of rows) line([row.work, ...peers.map((peer) => timeOf(row, peer)?.error.toExponential(1) ?? "-")]);
  console.log();
}

function printOnce(result: Result, peers: readonly string[]): void {
  const { start, sizes, memory, long } = result;
  if (start || sizes || memory) {
    header(["", ...peers]);
    const none = start?.none;
    if (start && none)
      line([
        `process start to the first answer, ms over an empty process (${none.median.toFixed(0)})`,
        ...peers.map((peer) => (start[peer] ? (start[peer].median - none.median).toFixed(0) : "-")),
      ]);
    if (sizes)
      line([
        "bytes shipped, gzip",
        ...peers.map((peer) => (sizes[peer] ? `${(sizes[peer] / 1000).toFixed(0)} KB` : "-")),
      ]);
    if (memory)
      line([
        "wasm memory growth, MHA block of 2048 tokens",
        ...peers.map((peer) => {
          const one = memory[peer];
          if (one === undefined) return "-";
          return typeof one === "string" ? one : `${(one.grown / 1e6).toFixed(0)} MB`;
        }),
      ]);
    console.log();
  }
  for (const { peer, tokens, outcome } of long ?? [])
    console.log(`- ${tokens} tokens, 8 heads of 64, causal: ${peer} ${outcome}`);
}

export function printTables(result: Result, order: readonly string[]): void {
  const { machine, engine, versions, date, commit } = result;
  const peers = Object.keys(versions);
  console.log(
    `${machine.cpu}, ${machine.cores} cores, one thread used, Node ${engine.node} (V8 ${engine.v8}), ${date.slice(0, 10)}, commit ${commit?.slice(0, 7) ?? "unknown"}; ${peers.map((peer) => `${peer} ${versions[peer]}`).join(", ")}\n`,
  );
  const rows = result.rows.toSorted((a, b) => order.indexOf(a.work) - order.indexOf(b.work));
  if (rows.length > 0) {
    printRows(rows, peers);
    console.log("\nMilliseconds, medians; in parentheses how many times headwise's: median; the middle 80 %.\n");
  }
  const integers = rows.filter(({ work }) => /^q\d/.test(work));
  if (integers.length > 0) printErrors(integers, peers);
  printOnce(result, peers);
}
