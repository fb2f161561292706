// The entries of the condition edge-light, whose modules are imported as `x.wasm?module`. The host is played by Node here:
// these hooks hand out modules as a host does.

import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";

registerHooks({
  load(url, context, next) {
    if (!url.endsWith(".wasm?module")) return next(url, context);
    const bytes = readFileSync(new URL(url)).toString("base64");
    const source = `export default new WebAssembly.Module(Buffer.from("${bytes}", "base64"));`;
    return { format: "module", source, shortCircuit: true };
  },
});

const { answer } = await import("./edge-suite.mjs");
console.log(JSON.stringify(await answer(process.argv[2])));
