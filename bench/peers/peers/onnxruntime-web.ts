import { onnxWays, plainModel, type Runtime, startSession } from "../onnx-models.ts";
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
    // Its wasm starts with the first session and defines Node's Worker as a global, by which other peers would detect a
    // browser. On one thread it does not need it.
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
