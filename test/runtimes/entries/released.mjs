// release() ends the workers. They are made of headwise/worker here, so that each can say when it ends.

import { Worker } from "node:worker_threads";
import { selfTest } from "headwise/doctor";
import * as headwise from "headwise/threads";

let [made, ended] = [0, 0];

function createWorker() {
  const worker = new Worker(new URL(import.meta.resolve("headwise/worker")));
  made++;
  worker.once("exit", () => ended++);
  return worker;
}

const kernels = await headwise.loadKernels({ threads: 3, deterministic: true, createWorker });
const { ok } = selfTest(headwise, kernels);
const { used } = kernels.threads;
kernels.release();
while (ended < made) await new Promise((resolve) => setTimeout(resolve, 10)); // or for ever
console.log(JSON.stringify({ used, ok, ended }));
