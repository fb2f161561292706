// An isolated page whose policy forbids workers made from text: it makes them itself, from the package's worker files.

import { run } from "./harness.mjs";
import { doctor, files, headwise, threads, weights } from "./package-files.mjs";
import { twoShards } from "./shards.mjs";
import { twoThreads, writtenBy } from "./work.mjs";

const maker = (file, options) => () => new Worker(new URL(file, import.meta.url), options);

run(async (step) => {
  step("workers made from text");
  const text = { threads: await twoThreads({ threads, doctor }), shards: await twoShards() };
  text.opened = await writtenBy({ headwise, weights }, { worker: true });
  step("workers of files");
  const file = {
    classic: await twoThreads({ threads, doctor }, { createWorker: maker(files.worker) }),
    module: await twoThreads({ threads, doctor }, { createWorker: maker(files.worker, { type: "module" }) }),
    shards: await twoShards({ createWorker: maker(files["shards-worker"]) }),
    opened: await writtenBy({ headwise, weights }, { worker: maker(files["open-worker"], { type: "module" }) }),
  };
  const here = await writtenBy({ headwise, weights }, {});
  return { text, file, here };
});
