// The suite with its fixtures, as the bundle exports it.

import { fixtures } from "suite:fixtures";
import { type Report, runSuite as run, type SuiteOptions } from "./suite.ts";

export function runSuite(options: Omit<SuiteOptions, "fixtures">): Promise<Report> {
  return run({ ...options, fixtures });
}
