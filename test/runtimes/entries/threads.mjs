import { quantized } from "headwise/quantized";
import * as headwise from "headwise/threads";
import * as common from "./common.mjs";
import { runSuite } from "./suite.mjs";

console.log(JSON.stringify(await runSuite({ headwise, ...common, load: { quantized, threads: 2 } })));
