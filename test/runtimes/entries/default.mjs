import * as headwise from "headwise";
import { quantized } from "headwise/quantized";
import * as weights from "headwise/weights";
import { runSuite } from "./suite.mjs";

console.log(JSON.stringify(await runSuite({ headwise, weights, load: { quantized } })));
