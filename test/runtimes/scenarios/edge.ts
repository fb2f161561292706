// The condition edge-light, of edge functions. Node plays the host: it resolves the condition itself, and modules are handed
// out as such a host does it. Next.js, the real one, runs among the bundlers.

import { run } from "../processes.ts";
import { parseLast, type Scenario } from "../scenario.ts";
import { type Answer, expectModules } from "./modules.ts";

const SECONDS = 120;

const edge = (scenario: string): Scenario => ({
  runtime: "edge-light",
  scenario,
  async run(project) {
    const args = ["--conditions=edge-light", "edge.mjs", scenario];
    const printed = await run({ file: process.execPath, args, cwd: project }, SECONDS);
    return { version: process.version.slice(1), report: expectModules(parseLast<Answer>(printed)) };
  },
});

export const edgeScenarios: readonly Scenario[] = [edge("import"), edge("threads")];
