import { onnxWays, type Runtime } from "../onnx-models.ts";
import { versionOf } from "../packages.ts";
import type { Peer } from "../peer.ts";

let runtime: Runtime;

export const peer: Peer = {
  name: "native onnxruntime-node",
  version: versionOf("onnxruntime-node"),
  column: 5,
  native: true,
  async load() {
    runtime = await import("onnxruntime-node");
  },
  ways: (work) => onnxWays(runtime, work, false),
};
