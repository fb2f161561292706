// From nothing to a first result: prints the milliseconds of each step. With --check it compares the result with float64.
// node layer.mjs [--dist FOLDER] [--deterministic] [--check]; FOLDER is the dist/ of another checkout.

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { expectedOutput, makeInputs } from "./inputs.mjs";

const { values: options } = parseArgs({
  options: {
    dist: { type: "string", default: join(import.meta.dirname, "../../dist") },
    deterministic: { type: "boolean", default: false },
    check: { type: "boolean", default: false },
  },
});
const bundle = pathToFileURL(join(options.dist, "index.js")).href;

const took = {};
let last = performance.now();
const mark = (step) => {
  const now = performance.now();
  took[step] = now - last;
  last = now;
};

const { attend, createAttention, loadKernels } = await import(bundle);
mark("import");
const kernels = await loadKernels({ deterministic: options.deterministic });
mark("loadKernels");
const inputs = makeInputs();
mark("inputs");
const attention = createAttention(kernels, inputs.config, inputs.weights);
mark("createAttention");
const y = attend(attention, inputs.x);
mark("attend");

console.log(JSON.stringify(took));
if (options.check) {
  const want = expectedOutput(inputs);
  const error = y.reduce((most, one, i) => Math.max(most, Math.abs(one - want[i % want.length])), 0);
  if (!(error <= 2e-5)) throw new Error(`bench: the first result differs from float64 by ${error}`);
}
