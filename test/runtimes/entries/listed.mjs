// The same for workers that the package makes by itself: Node's diagnostic report lists those that live.

import { selfTest } from "headwise/doctor";
import * as headwise from "headwise/threads";

const workers = () => process.report.getReport().workers.length;

const kernels = await headwise.loadKernels({ threads: 3, deterministic: true });
const { ok } = selfTest(headwise, kernels);
const { used } = kernels.threads;
const before = workers();
kernels.release();
while (workers() > 0) await new Promise((resolve) => setTimeout(resolve, 10)); // or for ever
console.log(JSON.stringify({ used, ok, ended: before }));
