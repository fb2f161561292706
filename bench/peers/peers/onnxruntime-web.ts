import { onnxWays, plainModel, type Runtime, startSession } from "../onnxruntime.ts";
import { fileOf, versionOf } from "../packages.ts";
import type { Peer } from "../peer.ts";
import { product } from "../program.ts";

let runtime: Runtime;

export const peer: Peer = {
  name: "onnxruntime-web",
  version: versionOf("onnxruntime-web"),
  column: 1,
  async load() {
    const { env, InferenceSession, Tensor } = await import("onnxruntime-web");
    env.wasm.numThreads = 1;
    runtime = { InferenceSession, Tensor };
    // Its wasm starts with the first session and leaves Node's Worker behind as a global, which other peers take for a
    // browser's. On one thread it has no use for it.
    const { Worker } = globalThis;
    const x = Float32Array.of(1);
    const session = await startSession(runtime, plainModel(product({ kind: "product", m: 1, n: 1, k: 1, x, w: x })));
    await session.release();
    globalThis.Worker = Worker;
  },
  ways: (work) => onnxWays(runtime, work, true),
  shipped: {
    source: 'export { env, InferenceSession, Tensor } from "onnxruntime-web/wasm";',
    assets: [fileOf("onnxruntime-web", "dist/ort-wasm-simd-threaded.wasm")],
  },
};
