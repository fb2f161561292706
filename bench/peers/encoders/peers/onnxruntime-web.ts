// onnxruntime-web as transformers.js uses it: batches are padded, and the states of tokens are averaged in JavaScript.

import { join } from "node:path";
import type { LoadEmbedder } from "../embedder.ts";

export const load: LoadEmbedder = async (folder, format) => {
  const { env, InferenceSession, Tensor } = await import("onnxruntime-web");
  env.wasm.numThreads = 1;
  const session = await InferenceSession.create(join(folder, `${format}.onnx`), {
    graphOptimizationLevel: "all",
    executionMode: "sequential",
    logSeverityLevel: 3,
  });
  const [idsName, maskName] = session.inputNames as [string, string];
  const [outputName] = session.outputNames as [string];
  return {
    async embed(batch) {
      const n = Math.max(...batch.map(({ length }) => length));
      const ids = new BigInt64Array(batch.length * n);
      const mask = new Int32Array(batch.length * n);
      for (const [b, text] of batch.entries())
        for (const [i, id] of text.entries()) {
          ids[b * n + i] = BigInt(id);
          mask[b * n + i] = 1;
        }
      const outputs = await session.run({
        [idsName]: new Tensor("int64", ids, [batch.length, n]),
        [maskName]: new Tensor("int32", mask, [batch.length, n]),
      });
      const states = outputs[outputName]?.data as Float32Array;
      const width = states.length / ids.length;
      return batch.map(({ length }, b) => {
        const vector = new Float32Array(width);
        for (let i = 0; i < length; i++) for (let j = 0; j < width; j++) vector[j]! += states[(b * n + i) * width + j]!;
        const norm = Math.hypot(...vector);
        return vector.map((x) => x / norm);
      });
    },
  };
};
