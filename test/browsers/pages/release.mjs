// Two engines with two workers each and shards with two more, which end with them; `?keep` leaves them be.

import { run } from "./harness.mjs";
import { shards, threads } from "./package-files.mjs";

const count = { made: 0, ended: 0 };
globalThis.Worker = class extends Worker {
  constructor(...how) {
    super(...how);
    count.made++;
  }
  terminate() {
    count.ended++;
    super.terminate();
  }
};

const matrix = { data: new Float32Array(64 * 64), shape: [64, 64] };

run(async () => {
  const held = [
    await threads.loadKernels({ threads: 3 }),
    await threads.loadKernels({ threads: 3, deterministic: true }),
    await shards.createShardedAttention(
      { dModel: 64, numHeads: 4 },
      { wq: matrix, wk: matrix, wv: matrix, wo: matrix },
      { shards: 2 },
    ),
  ];
  const used = held.map((each) => (each.threads ?? each.shards).used);
  if (location.search !== "?keep") for (const each of held) each.release();
  else globalThis.held = held;
  // Workers end a moment after the request.
  await new Promise((resolve) => setTimeout(resolve, 1000));
  return { used, ...count };
});
