import type { Report } from "./suite.ts";

/** One way to run the package. */
export interface Scenario {
  /** Such as "node 24" or "deno"; `--only` takes it or a part of it. */
  readonly runtime: string;
  /** What is special, such as "threads". */
  readonly scenario: string;
  /** Runs it in a project that has the package installed. Throws when it cannot be run or something else is wrong. */
  run(project: string): Promise<Outcome>;
}

/** What came of it: a report of the suite, where it ran that, or a line about what else was looked at. */
export interface Outcome {
  readonly version: string;
  readonly report?: Report;
  readonly found?: string;
}

/** The last line of what an entry printed. */
export function parseLast<T>(printed: string): T {
  return JSON.parse(printed.trimEnd().split("\n").at(-1) ?? "") as T;
}

/**
 * Throws unless the suite ran on as many threads as it should. Where that is one though more were asked for, the package says
 * so once, and nothing otherwise.
 */
export function expectThreads({ threads: { requested, used, reason }, warnings }: Report, threads: number): void {
  if (used !== threads) throw new Error(`expected ${threads} threads, got ${used}: ${reason}`);
  const expected = used === 1 && requested !== 1 ? 1 : 0;
  if (warnings.length !== expected)
    throw new Error(`expected ${expected} warnings, got ${warnings.length}: ${warnings.join("; ")}`);
}
