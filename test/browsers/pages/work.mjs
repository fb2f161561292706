// What is done wherever a page, a worker or a service worker has got hold of the package.

import { runSuite } from "./suite.mjs";

const warnings = [];
const { warn } = console;
console.warn = (...words) => {
  warnings.push(words.join(" "));
  warn.apply(console, words);
};

/** The suite on one entry, with two threads where that is `threads`; and what comes of asking for two threads anywhere. */
export async function work(entries, name, step = () => {}) {
  const { threads, latent: latents, quantized } = entries;
  step("two threads");
  const two = await twoThreads(entries);
  // Once more: the warning about one thread instead of two is printed once.
  (await threads.loadKernels({ threads: 2 })).release();
  step("the suite");
  const load = { quantized: quantized.quantized, ...(name === "threads" && { threads: 2 }) };
  return {
    two,
    suite: await runSuite({ ...entries, headwise: entries[name], latents, load }),
    warnings,
  };
}

/** Asks for two threads, in the build that is the same everywhere, and tests what comes of it. */
export async function twoThreads({ threads, doctor }, options = {}) {
  const kernels = await threads.loadKernels({ threads: 2, deterministic: true, ...options });
  try {
    const { ok, digest } = doctor.selfTest(threads, kernels);
    return { ...kernels.threads, ok, digest };
  } finally {
    kernels.release();
  }
}
