// A page whose policy forbids WebAssembly: what each entry says then.

import { run } from "./harness.mjs";
import { outcomeOf } from "./outcome.mjs";
import { core, files, headwise, threads } from "./package-files.mjs";

run(async () => ({
  headwise: await outcomeOf(headwise.loadKernels()),
  threads: await outcomeOf(threads.loadKernels({ threads: 2 })),
  core: await outcomeOf(core.loadKernels({ module: new URL(files["simd.wasm"], import.meta.url) })),
}));
