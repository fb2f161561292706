/**
 * Runs a conformance folder: `node test/conformance/run.ts`. `CONFORMANCE_DIR` names the folder; default is the
 * project's own, test/vectors. The last line is `N passed, M failed`, over all cases and both builds; skipped ones are listed
 * before it with their reasons. It exits with 1 if a case failed, or none passed. A folder of chat templates (`jinja-snippets.json`)
 * needs no build.
 */

import { join } from "node:path";
import { loadKernels } from "../../src/entries/core.ts";
import { modulesOf, shippedBuilds } from "../support/modules.ts";
import { isChatFolder, runChatFolder } from "./chat.ts";
import { type Result, runFolder } from "./suite.ts";
import { runTrained } from "./trained-minilm.ts";

const folder = process.env.CONFORMANCE_DIR || join(import.meta.dirname, "..", "vectors");
const results: Result[] = [];
if (isChatFolder(folder)) {
  results.push(...(await runChatFolder(folder)));
  report("", results);
}
for (const build of isChatFolder(folder) ? [] : shippedBuilds) {
  const kernels = await loadKernels(modulesOf(build));
  if (kernels.build !== build) throw new Error(`build/${build}.wasm expected to be that build, got ${kernels.build}`);
  const here = await runFolder(folder, kernels);
  kernels.release();
  report(build, here);
  results.push(...here);
}

const trained = await runTrained(folder);
results.push(...trained);
report("", trained);

const count = (state: Result["state"]): number => results.filter((result) => result.state === state).length;
if (results.length === 0) console.log(`${folder}: index.json lists no cases`);
else if (count("skipped") === results.length) console.log(`${folder}: every case is skipped, which proves nothing`);
console.log(`${count("passed")} passed, ${count("failed")} failed`);
process.exitCode = count("failed") > 0 || count("passed") === 0 ? 1 : 0;

function report(build: string, here: readonly Result[]): void {
  for (const set of new Set(here.map((result) => result.set))) {
    const cases = here.filter((result) => result.set === set);
    const of = (state: Result["state"]) => cases.filter((result) => result.state === state).length;
    const skipped = of("skipped") > 0 ? `, ${of("skipped")} skipped` : "";
    console.log(`${build === "" ? "" : `${build} `}${set}: ${of("passed")} passed, ${of("failed")} failed${skipped}`);
    for (const { name, state, problems, maskedRows } of cases) {
      for (const problem of problems) console.log(`  ${state.toUpperCase()} ${name}: ${problem}`);
      if (maskedRows > 0)
        console.log(
          `  note ${name}: ${maskedRows} rows have no allowed key; NaN is expected there, zeros are the contract`,
        );
    }
  }
}
