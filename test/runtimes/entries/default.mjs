import * as headwise from "headwise";
import { quantized } from "headwise/quantized";
import * as common from "./common.mjs";
import { runSuite } from "./suite.mjs";

console.log(JSON.stringify(await runSuite({ headwise, ...common, load: { quantized } })));
