// npm run seeds [-- 000 | 001 | 002 | 003 | 004]: what a tutorial on multi-head attention prints, computed by headwise.
// Without a number: all five.

import { loadKernels } from "headwise";
import { TUTORIALS } from "./tutorials.ts";

const names = process.argv.slice(2);
for (const name of names)
  if (!Object.hasOwn(TUTORIALS, name)) {
    console.error(`npm run seeds takes ${Object.keys(TUTORIALS).join(", ")}; got ${JSON.stringify(name)}.`);
    process.exit(1);
  }
const kernels = await loadKernels();
for (const name of names.length > 0 ? names : Object.keys(TUTORIALS)) {
  const { title, run } = TUTORIALS[name]!;
  console.log(`\n${name}: ${title}\n`);
  run(kernels, (line = "") => console.log(line));
}
