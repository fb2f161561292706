// The table of a shape.

import type { Measured, Report } from "./child.ts";
import type { Cell } from "./embedder.ts";

export interface Variant {
  readonly peer: "headwise" | "transformers-js";
  readonly format: string;
  readonly kind: "f32" | "q8";
  /** In the tables. */
  readonly name: string;
}

/** All rounds of all peers, the first of which is headwise in float32. */
export type Results = ReadonlyMap<Variant, readonly Report[]>;

const TIMES = "×";

/** Of an even number of rounds, the mean of both in the middle: the larger one would favour who is compared. */
function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2;
}

/** Rows are cells; `work` are the multiply-adds of a text. */
export function tableOf(results: Results, cells: readonly Cell[], work: (cell: Cell) => number): string {
  const all = [...results];
  const own = all.filter(([{ peer }]) => peer === "headwise");
  const others = all.filter(([{ peer }]) => peer !== "headwise");
  const sameKind = (kind: Variant["kind"]) => others.filter(([other]) => other.kind === kind);
  const heads = own.flatMap(([{ name, kind }]) => [
    name,
    ...sameKind(kind).map(([other]) => `${TIMES} ${other.name.split(" ")[0]}`),
  ]);
  const head = ["tokens, texts", ...heads, ...others.map(([{ name }]) => name)];
  const rows = cells.map((cell, at) => {
    const of = (reports: readonly Report[], part: keyof Measured) =>
      median(reports.map((report) => report.cells[at]![part]));
    const percent = (reports: readonly Report[]) => `${(100 * of(reports, "share") * work(cell)).toFixed(0)} %`;
    const columns = own.flatMap(([{ kind }, reports]) => {
      const ratios = sameKind(kind).map(([, theirs]) =>
        median(reports.map((report, round) => report.cells[at]!.share / theirs[round]!.cells[at]!.share)).toFixed(2),
      );
      const rate = of(reports, "rate");
      return [`${rate < 10 ? rate.toPrecision(2) : rate.toFixed(0)} (${percent(reports)})`, ...ratios];
    });
    return [`${cell.tokens}, ${cell.texts}`, ...columns, ...others.map(([, reports]) => percent(reports))];
  });
  return [head, ["---", ...head.slice(1).map(() => "---:")], ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n");
}

/** Milliseconds to the first vector, errors, and the speed of products of bytes. */
export function linesOf(results: Results): string {
  const each = (text: (reports: readonly Report[]) => string) =>
    Array.from(results, ([{ name }, reports]) => `${name} ${text(reports)}`).join(", ");
  const expected = [...results.values()][0]?.[0]?.vectors ?? [];
  const starts = each((reports) => Math.min(...reports.map(({ startMs }) => startMs)).toFixed(0));
  const errors = each((reports) => differenceOf(reports[0]!.vectors, expected).toExponential(1));
  const bytes = median([...results.values()].flatMap((reports) => reports.map((report) => report.bytes)));
  return [
    `Milliseconds to the first vector: ${starts}.`,
    `Largest difference from headwise f32: ${errors}.`,
    `Products of bytes in the time of a multiply-add of floats: ${bytes.toFixed(1)}.`,
  ].join("\n\n");
}

/** The largest difference of a component. */
export function differenceOf(vectors: Report["vectors"], expected: Report["vectors"]): number {
  if (vectors.length !== expected.length) return Number.NaN;
  return Math.max(
    ...vectors.flatMap((vector, i) => vector.map((x, j) => Math.abs(x - (expected[i]![j] ?? Number.NaN)))),
  );
}
