/**
 * `npm run test:runtimes`: the suite on the installed package in every runtime, each started for real.
 * `-- --only deno` runs those whose name has that in it; `-- --json FILE` writes the reports.
 */

import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { stopAll } from "./processes.ts";
import { createProject, installTools } from "./project.ts";
import type { Outcome, Scenario } from "./scenario.ts";
import { edgeScenarios } from "./scenarios/edge.ts";
import { hostScenarios } from "./scenarios/hosts.ts";
import { workerdScenarios } from "./scenarios/workerd.ts";
import { digestProblems, type Row, table } from "./table.ts";

const { values } = parseArgs({ options: { only: { type: "string", default: "" }, json: { type: "string" } } });
const all: readonly Scenario[] = [...hostScenarios, ...workerdScenarios, ...edgeScenarios];
const nameOf = ({ runtime, scenario }: Scenario) => `${runtime}, ${scenario}`;
const chosen = all.filter((scenario) => nameOf(scenario).includes(values.only));
if (chosen.length === 0)
  throw new RangeError(`--only expected a part of ${all.map(nameOf).join("; ")}, got ${values.only}`);

for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));
process.once("exit", stopAll);

await installTools();
const project = await createProject();
process.once("exit", project.remove);
const rows: Row[] = [];
for (const scenario of chosen) rows.push({ ...scenario, ...(await outcomeOf(scenario)) });
const problems = digestProblems(rows);
console.log(`\n${table(rows)}\n`);
for (const problem of problems) console.log(problem);
const failed = rows.filter(({ problems }) => problems.length > 0).length;
console.log(`${rows.length - failed} of ${rows.length} scenarios passed`);
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(rows, null, 2)}\n`);
process.exitCode = failed > 0 || problems.length > 0 ? 1 : 0;

/** Runs one scenario and says what became of it. */
async function outcomeOf(scenario: Scenario): Promise<Partial<Outcome> & Pick<Row, "problems">> {
  try {
    const outcome = await scenario.run(project.folder);
    const problems = (outcome.report?.checks ?? [])
      .filter(({ ok }) => !ok)
      .map(({ name, error }) => `${name}: ${error}`);
    console.log(`${problems.length === 0 ? "ok    " : "FAILED"} ${nameOf(scenario)}`);
    for (const problem of problems) console.log(`  ${problem}`);
    return { ...outcome, problems };
  } catch (error) {
    console.log(`FAILED ${nameOf(scenario)}\n  ${error instanceof Error ? error.message : error}`);
    return { problems: [String(error)] };
  }
}
