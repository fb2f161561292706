// What `headwise/core` makes of modules that a server gives, rightly or not.

import { run } from "./harness.mjs";
import { outcomeOf } from "./outcome.mjs";
import { core, files } from "./package-files.mjs";

run(async () => {
  const at = (path) => new URL(path, import.meta.url);
  const simd = at(files["simd.wasm"]);
  const load = (module) => outcomeOf(core.loadKernels({ module }));
  return {
    fine: {
      url: await load(simd),
      response: await load(await fetch(simd)),
      promise: await load(fetch(simd)),
      "plain text": await load(at("plain/simd.wasm")),
    },
    page: {
      url: await load(at("app/simd.wasm")),
      promise: await load(fetch(at("app/simd.wasm"))),
    },
    missing: await load(at("gone.wasm")),
    unreachable: await load(new URL("http://127.0.0.1:9/simd.wasm")),
  };
});
