import * as heads from "headwise/heads";
import { quantized } from "headwise/quantized";
import * as sessions from "headwise/sessions";
import * as headwise from "headwise/threads";
import * as weights from "headwise/weights";
import { runSuite } from "./suite.mjs";

console.log(JSON.stringify(await runSuite({ headwise, weights, heads, sessions, load: { quantized, threads: 2 } })));
