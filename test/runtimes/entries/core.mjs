// `headwise/core` with bytes that are read from the package, as an application with a file of its own does it.

import { readFileSync } from "node:fs";
import * as headwise from "headwise/core";
import { quantized } from "headwise/quantized";
import * as common from "./common.mjs";
import { runSuite } from "./suite.mjs";

const module = readFileSync(new URL(import.meta.resolve("headwise/simd.wasm")));
console.log(JSON.stringify(await runSuite({ headwise, ...common, load: { quantized, module } })));
