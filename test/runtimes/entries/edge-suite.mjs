import * as headwise from "headwise";
import * as configure from "headwise/configure";
import * as encoders from "headwise/encoders";
import * as heads from "headwise/heads";
import * as inspect from "headwise/inspect";
import * as latents from "headwise/latent";
import * as models from "headwise/models";
import { quantized } from "headwise/quantized";
import * as sessions from "headwise/sessions";
import * as text from "headwise/text";
import * as threads from "headwise/threads";
import * as weights from "headwise/weights";
// Behind those: what the host itself compiles to hand it out is none of the package's doing.
import { compiled } from "./nobytes.mjs";
import { runSuite } from "./suite.mjs";

const suites = {
  import: {
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
  threads: {
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
};

export async function answer(name) {
  return { report: await runSuite(suites[name]), compiled: compiled() };
}
