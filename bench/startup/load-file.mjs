// From nothing to a loaded GGUF file and its first token: prints the seconds of each step.
// node load-file.mjs FILE [CHECKOUT]: the package is that of another checkout, if one is given.

import { pathToFileURL } from "node:url";

const [file, checkout] = process.argv.slice(2);
const entryOf = (name) =>
  checkout ? pathToFileURL(`${checkout}/dist/${name}.js`).href : name === "index" ? "headwise" : `headwise/${name}`;

const began = performance.now();
const secondsSince = (from) => (performance.now() - from) / 1000;
const { loadKernels } = await import(entryOf("index"));
const { createSession, forwardAsync, gguf, loadModel, models } = await import(entryOf("models"));
const { quantized } = await import(entryOf("quantized"));
const kernels = await loadKernels({ models, quantized });
const started = secondsSince(began);
const [read, used] = [performance.now(), process.cpuUsage()];
const model = await loadModel(kernels, file, { gguf });
const loaded = secondsSince(read);
const { user, system } = process.cpuUsage(used);
const session = createSession(model, { maxSeqLen: 256 });
await forwardAsync(session, [1, 2, 3, 4, 5, 6, 7, 8], { top: 1 });
console.log(JSON.stringify({ started, loaded, processor: (user + system) / 1e6, first: secondsSince(began) }));
process.exit();
