// From nothing to a first result: prints what each step took, in milliseconds, and how far the result is from float64.

import { expectedOutput, makeInputs } from "./inputs.mjs";

const took = {};
let last = performance.now();
const mark = (step) => {
  const now = performance.now();
  took[step] = now - last;
  last = now;
};

const { attend, createAttention, loadKernels } = await import("../../dist/index.js");
mark("import");
const kernels = await loadKernels();
mark("loadKernels");
const inputs = makeInputs();
mark("inputs");
const attention = createAttention(kernels, inputs.config, inputs.weights);
mark("createAttention");
const y = attend(attention, inputs.x);
mark("attend");

console.log(JSON.stringify(took));
if (process.argv.includes("--check")) {
  const want = expectedOutput(inputs);
  const error = y.reduce((most, one, i) => Math.max(most, Math.abs(one - want[i % want.length])), 0);
  if (!(error <= 2e-5)) throw new Error(`start: the first result is ${error} from what it should be`);
}
