// Makes threads, works with them and ends without a word to them. The process must end by itself.

import { selfTest } from "headwise/doctor";
import * as headwise from "headwise/threads";

const kernels = await headwise.loadKernels({ threads: 2, deterministic: true });
console.log(
  JSON.stringify({ used: kernels.threads.used, reason: kernels.threads.reason, ok: selfTest(headwise, kernels).ok }),
);
