// npm run seeds [-- 000 | 001 | 002 | 003 | 004]: what a tutorial on multi-head attention prints, computed by headwise. timing: what
// one of them says of speed, measured. Without a name: all of these.

import { loadKernels } from "headwise";
import { run as runTiming } from "./timing.ts";
import { TUTORIALS } from "./tutorials.ts";

const PROGRAMS = { ...TUTORIALS, timing: { title: "what tutorial 001 says of speed, measured", run: runTiming } };

const names = process.argv.slice(2);
for (const name of names)
  if (!Object.hasOwn(PROGRAMS, name)) {
    console.error(`npm run seeds takes ${Object.keys(PROGRAMS).join(", ")}; got ${JSON.stringify(name)}.`);
    process.exit(1);
  }
const kernels = await loadKernels();
for (const name of names.length > 0 ? names : Object.keys(PROGRAMS)) {
  const { title, run } = PROGRAMS[name as keyof typeof PROGRAMS];
  console.log(`\n${name}: ${title}\n`);
  run(kernels, (line = "") => console.log(line));
}
