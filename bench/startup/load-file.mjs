// From nothing to a loaded GGUF file and its first token: prints the seconds of each step, and those that reading the file alone takes.
// node load-file.mjs FILE [CHECKOUT]: with the package of another checkout, if one is given.

import { open } from "node:fs/promises";
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
const [from, used] = [performance.now(), process.cpuUsage()];
const model = await loadModel(kernels, file, { gguf });
const loaded = secondsSince(from);
const { user, system } = process.cpuUsage(used);
const session = createSession(model, { maxSeqLen: 256 });
await forwardAsync(session, [1, 2, 3, 4, 5, 6, 7, 8], { top: 1 });
const first = secondsSince(began);

const handle = await open(file);
const again = performance.now();
const piece = new Uint8Array(2 ** 20);
for (let at = 0, bytesRead = 1; bytesRead > 0; at += bytesRead)
  ({ bytesRead } = await handle.read(piece, 0, piece.length, at));
const read = secondsSince(again);
console.log(JSON.stringify({ started, read, loaded, processor: (user + system) / 1e6, first }));
process.exit();
