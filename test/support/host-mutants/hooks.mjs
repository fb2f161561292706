// Module hooks of the processes that run tests on sources with faults: the file that HOST_MUTANTS names holds these
// sources, and `vitest` is a collector of tests. `fault(n)` says whether the fault of number n is to be there now.

import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";

const sources = JSON.parse(readFileSync(process.env.HOST_MUTANTS, "utf8"));
const collector = new URL("collect.ts", import.meta.url).href;

/** The number of the fault that is there, 0 for none, and the places that were reached. */
globalThis.faults = { active: 0, reached: new Set() };
globalThis.fault = (n) => {
  globalThis.faults.reached.add(n);
  return globalThis.faults.active === n;
};

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "vitest" && context.parentURL !== collector
      ? { url: collector, shortCircuit: true }
      : next(specifier, context),
  load: (url, context, next) =>
    url in sources ? { format: "module-typescript", source: sources[url], shortCircuit: true } : next(url, context),
});
