// An isolated page whose policy forbids workers made from text: it makes them itself, from the package's worker files.

import { run } from "./harness.mjs";
import { doctor, files, threads } from "./package-files.mjs";
import { twoShards } from "./shards.mjs";
import { twoThreads } from "./work.mjs";

const maker = (file, options) => () => new Worker(new URL(file, import.meta.url), options);

run(async (step) => {
  step("workers made from text");
  const text = { threads: await twoThreads({ threads, doctor }), shards: await twoShards() };
  step("workers of files");
  const file = {
    classic: await twoThreads({ threads, doctor }, { createWorker: maker(files.worker) }),
    module: await twoThreads({ threads, doctor }, { createWorker: maker(files.worker, { type: "module" }) }),
    shards: await twoShards({ createWorker: maker(files["shards-worker"]) }),
  };
  return { text, file };
});
