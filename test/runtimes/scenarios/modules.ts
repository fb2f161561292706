// What holds on every host that hands out compiled modules and forbids compiling from bytes.

import { expectThreads } from "../scenario.ts";
import type { Report } from "../suite.ts";

/** What the entries of such hosts say. */
export interface Answer {
  readonly report: Report;
  /** How often something was compiled from bytes. */
  readonly compiled: number;
}

/** Throws unless nothing was compiled from bytes and one thread was used. */
export function expectModules({ report, compiled }: Answer): Report {
  if (compiled > 0) throw new Error(`expected modules that the host hands out, got ${compiled} compiled from bytes`);
  expectThreads(report, 1);
  return report;
}
