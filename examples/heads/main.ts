// `npm run heads -- stories`: what each head of a model of this repository does.

import { loadKernels } from "headwise";
import { models } from "headwise/models";
import { headTable, MODELS } from "./table.ts";

const [name = "stories", ...others] = process.argv.slice(2);
const model = Object.hasOwn(MODELS, name) ? MODELS[name] : undefined;
if (!model || others.length > 0) {
  console.error(`npm run heads takes ${Object.keys(MODELS).join(" or ")}; got ${[name, ...others].join(" ")}.`);
  process.exit(1);
}
// The same bits, hence the same digits, on every engine.
const kernels = await loadKernels({ models, deterministic: true });
console.log(await headTable(kernels, model));
