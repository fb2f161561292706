// From nothing to the first token behind a prompt of 128, and 48 more, each with inputs of layers that were not read before: prints the
// seconds, and the most memory that the process took.
// node first-token.mjs FOLDER on-demand|resident

import { loadKernels } from "headwise";
import { createSession, forwardAsync, loadModel, models } from "headwise/models";
import { quantized } from "headwise/quantized";

const [folder, perLayer] = process.argv.slice(2);
const PROMPT = 128;
const TOKENS = 48;

const began = performance.now();
const secondsSince = (from) => (performance.now() - from) / 1000;
const kernels = await loadKernels({ models, quantized });
const model = await loadModel(kernels, folder, { perLayer });
const loaded = secondsSince(began);
const session = createSession(model, { maxSeqLen: 256, format: "q8" });
/** Ids that lie far from each other. */
const idOf = (i) => (i * 104_729) % model.vocabSize;
const prompt = performance.now();
await forwardAsync(
  session,
  Array.from({ length: PROMPT }, (_, i) => idOf(i)),
  { top: 1 },
);
const prefill = secondsSince(prompt);
const first = secondsSince(began);
const times = [];
for (let i = 0; i < TOKENS; i++) {
  const from = performance.now();
  await forwardAsync(session, [idOf(PROMPT + i)], { top: 1 });
  times.push(secondsSince(from));
}
const token = times.toSorted((a, b) => a - b)[TOKENS / 2];
const peak = process.resourceUsage().maxRSS * 1024;
console.log(JSON.stringify({ loaded, first, prefill, token, peak, linear: kernels.usedBytes }));
process.exit();
