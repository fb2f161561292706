import * as headwise from "headwise";
import { quantized } from "headwise/quantized";
import * as threads from "headwise/threads";
import * as common from "./common.mjs";
// Behind those: what the host itself compiles to hand it out is none of the package's doing.
import { compiled } from "./nobytes.mjs";
import { runSuite } from "./suite.mjs";

const suites = {
  import: { headwise, ...common, load: { quantized } },
  threads: { headwise: threads, ...common, load: { quantized, threads: 2 } },
};

export async function answer(name) {
  return { report: await runSuite(suites[name]), compiled: compiled() };
}
