// A Worker that runs the suite: /default, /threads, or /core with the module that the host imported.

import * as headwise from "headwise";
import * as core from "headwise/core";
import { quantized } from "headwise/quantized";
import simd from "headwise/simd.wasm";
import * as threads from "headwise/threads";
import * as common from "./common.mjs";
import { compileBytes, compiled } from "./nobytes.mjs";
import { runSuite } from "./suite.mjs";

const suites = {
  "/default": { headwise, ...common, load: { quantized } },
  "/threads": { headwise: threads, ...common, load: { quantized, threads: 2 } },
  "/core": { headwise: core, ...common, load: { quantized, module: simd } },
};

export default {
  async fetch(request) {
    const suite = suites[new URL(request.url).pathname];
    if (!suite) return Response.json(await compileBytes());
    return Response.json({ report: await runSuite(suite), compiled: compiled() });
  },
};
