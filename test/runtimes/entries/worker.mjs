// A Worker that runs the suite: /default, /threads, or /core with the module that the host imported.

import * as headwise from "headwise";
import * as configure from "headwise/configure";
import * as core from "headwise/core";
import * as encoders from "headwise/encoders";
import * as heads from "headwise/heads";
import * as inspect from "headwise/inspect";
import * as latents from "headwise/latent";
import * as models from "headwise/models";
import { quantized } from "headwise/quantized";
import * as sessions from "headwise/sessions";
import simd from "headwise/simd.wasm";
import * as text from "headwise/text";
import * as threads from "headwise/threads";
import * as weights from "headwise/weights";
import { compileBytes, compiled } from "./nobytes.mjs";
import { runSuite } from "./suite.mjs";

const suites = {
  "/default": {
    headwise,
    weights,
    heads,
    sessions,
    latents,
    models,
    encoders,
    text,
    inspect,
    configure,
    load: { quantized },
  },
  "/threads": {
    headwise: threads,
    weights,
    heads,
    sessions,
    latents,
    models,
    encoders,
    text,
    inspect,
    configure,
    load: { quantized, threads: 2 },
  },
  "/core": {
    headwise: core,
    weights,
    heads,
    sessions,
    latents,
    models,
    encoders,
    text,
    inspect,
    configure,
    load: { quantized, module: simd },
  },
};

export default {
  async fetch(request) {
    const suite = suites[new URL(request.url).pathname];
    if (!suite) return Response.json(await compileBytes());
    return Response.json({ report: await runSuite(suite), compiled: compiled() });
  },
};
