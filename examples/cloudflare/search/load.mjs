// How fast it is on this machine: `node load.mjs [--clients 20] [--seconds 20]`. Prints how long a start takes, and how long answers
// take clients that ask one query after the other; other programs make both longer, and CPU times less so.

import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { QUERIES } from "./queries.mjs";
import { bundle, startWorkerd } from "./workerd.mjs";

const options = { clients: { type: "string", default: "20" }, seconds: { type: "string", default: "20" } };
const { values } = parseArgs({ options });
const [clients, seconds] = [values.clients, values.seconds].map(Number);
const STARTS = 5;

const made = bundle();
const starts = [];
const startCpu = [];
let server;
for (let i = 0; i < STARTS; i++) {
  server?.stop();
  server = await startWorkerd(made);
  starts.push(server.startMs);
  startCpu.push(1000 * server.used()?.cpuSeconds);
}
await ask(0);
const alone = [];
for (let i = 0; i < 100; i++) alone.push(await ask(i));
const together = [];
const before = server.used();
const began = performance.now();
const ends = began + 1000 * seconds;
await Promise.all(
  Array.from({ length: clients }, async (_, client) => {
    for (let i = client; performance.now() < ends; i++) together.push(await ask(i));
  }),
);
const took = (performance.now() - began) / 1000;
const used = server.used();
server.stop();

const quantile = (list, q) => list.toSorted((a, b) => a - b)[Math.min(list.length - 1, Math.floor(q * list.length))];
const ms = (list) => `p50 ${quantile(list, 0.5).toFixed(1)} ms, p99 ${quantile(list, 0.99).toFixed(1)} ms`;
console.log(`machine     ${cpus().length} x ${cpus()[0].model}, Node ${process.version}`);
console.log(
  `start       ${quantile(starts, 0.5).toFixed(0)} ms from the process to its first answer, median of ${STARTS}`,
);
console.log(`one client  ${ms(alone)}`);
console.log(`${clients} clients  ${ms(together)}, ${(together.length / took).toFixed(0)} answers/s`);
if (used) {
  const answer = (1000 * (used.cpuSeconds - before.cpuSeconds)) / together.length;
  console.log(
    `CPU         ${quantile(startCpu, 0.5).toFixed(0)} ms a start, ${answer.toFixed(1)} ms an answer, of all threads`,
  );
  console.log(
    `process     ${(used.peakBytes / 1e6).toFixed(0)} MB at most: workerd, its copies of the bundle, the isolate`,
  );
}

/** Milliseconds until one query is answered. */
async function ask(i) {
  const [q] = QUERIES[i % QUERIES.length];
  const begin = performance.now();
  const response = await fetch(`${server.base}/search?${new URLSearchParams({ q })}`);
  const { results } = await response.json();
  if (results?.length !== 5) throw new Error(`${q}: expected 5 results, got ${response.status}`);
  return performance.now() - begin;
}
