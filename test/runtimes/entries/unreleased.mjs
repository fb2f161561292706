// Makes threads, works with them and ends without a word to them. The process must end by itself.

import { loadKernels, selfTest } from "headwise/threads";

const kernels = await loadKernels({ threads: 2, deterministic: true });
console.log(JSON.stringify({ used: kernels.threads.used, reason: kernels.threads.reason, ok: selfTest(kernels).ok }));
