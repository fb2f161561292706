// onnxruntime-web without what transformers.js adds: batches are padded, and the states of tokens are averaged in JavaScript.

import { join } from "node:path";
import { fileNameOf, type LoadEmbedder } from "../embedder.ts";

export const load: LoadEmbedder = async (folder, format) => {
  const { env, InferenceSession, Tensor } = await import("onnxruntime-web");
  env.wasm.numThreads = 1;
  const session = await InferenceSession.create(join(folder, "onnx", fileNameOf(format as "fp32" | "q8")), {
    graphOptimizationLevel: "all",
    executionMode: "sequential",
    logSeverityLevel: 3,
  });
  return {
    async embed(batch) {
      const n = Math.max(...batch.map(({ ids }) => ids.length));
      const ids = new BigInt64Array(batch.length * n);
      const mask = new BigInt64Array(batch.length * n);
      for (const [b, text] of batch.entries())
        for (const [i, id] of text.ids.entries()) {
          ids[b * n + i] = BigInt(id);
          mask[b * n + i] = 1n;
        }
      const outputs = await session.run({
        input_ids: new Tensor("int64", ids, [batch.length, n]),
        attention_mask: new Tensor("int64", mask, [batch.length, n]),
      });
      const states = outputs.last_hidden_state?.data as Float32Array;
      const width = states.length / ids.length;
      return batch.map(({ ids: { length } }, b) => {
        const vector = new Float32Array(width);
        for (let i = 0; i < length; i++) for (let j = 0; j < width; j++) vector[j]! += states[(b * n + i) * width + j]!;
        const norm = Math.hypot(...vector);
        return vector.map((x) => x / norm);
      });
    },
  };
};
