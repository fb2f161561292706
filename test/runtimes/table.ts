// What the runner prints at the end, and what must be the same in all rows.

import type { Outcome, Scenario } from "./scenario.ts";

export type Row = Pick<Scenario, "runtime" | "scenario"> & Partial<Outcome> & { readonly problems: readonly string[] };

const HEAD = ["runtime", "version", "scenario", "build", "threads", "checks", "simd digest", "workload ms", "note"];

function cells({ runtime, scenario, version = "", report, found, problems }: Row): string[] {
  const start = [runtime, version, scenario];
  if (!report) return [...start, "", "", problems.length > 0 ? "FAILED" : "", "", "", found ?? ""];
  const { build, threads, checks, digests, workloadMs } = report;
  const passed = checks.filter(({ ok }) => ok).length;
  return [
    ...start,
    build,
    `${threads.used}: ${threads.reason}`,
    `${passed} of ${checks.length}`,
    digests.simd,
    workloadMs.toFixed(2),
    found ?? "",
  ];
}

/** Columns as wide as their widest cell. */
export function table(rows: readonly Row[]): string {
  const lines = [HEAD, ...rows.map(cells)];
  const widths = HEAD.map((_, column) => Math.max(...lines.map((line) => (line[column] as string).length)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] as number))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** Digests of the simd build that are not those of the first row. */
export function digestProblems(rows: readonly Row[]): string[] {
  const [first, ...others] = rows.filter(({ report }) => report);
  return others.flatMap(({ runtime, scenario, report }) =>
    (["simd", "model", "decoders", "encoders", "inspect", "formats"] as const)
      .filter((of) => report?.digests[of] !== first?.report?.digests[of])
      .map(
        (of) =>
          `${runtime}, ${scenario}: ${of} digest expected ${first?.report?.digests[of]}, got ${report?.digests[of]}`,
      ),
  );
}
