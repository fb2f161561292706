// A thread of the build, which compiles modules one after the other: `{ args, inlined }` are arguments of asc, and the file that it
// writes if bundles contain it. Threads of one process share the compiler's code once it is optimized, which is half of the time.

import { parentPort } from "node:worker_threads";
import { main } from "assemblyscript/asc";
import { smallestText } from "./inline-wasm.mjs";

parentPort.on("message", async ({ args, inlined }) => {
  const { error, stderr } = await main(args);
  const text = !error && inlined && (await smallestText(inlined));
  parentPort.postMessage({ failed: error !== null, printed: stderr.toString(), text });
});
