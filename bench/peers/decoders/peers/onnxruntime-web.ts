// onnxruntime-web as transformers.js uses it: the cache is an input and an output of every run.

import type { Tensor } from "onnxruntime-common";
import { type LoadDecoder, largestOf } from "../decoder.ts";
import { dataFileOf } from "../onnx-decoder.ts";

export const load: LoadDecoder = async ({ source }) => {
  const { env, InferenceSession, Tensor } = await import("onnxruntime-web");
  env.wasm.numThreads = 1;
  const dataFile = dataFileOf(source);
  const session = await InferenceSession.create(source, {
    externalData: [{ path: dataFile.slice(dataFile.lastIndexOf("/") + 1), data: dataFile }],
    graphOptimizationLevel: "all",
    executionMode: "sequential",
    logSeverityLevel: 3,
  });
  const [idsName, lastName, totalName, ...pastNames] = session.inputNames as [string, string, string, ...string[]];
  const [logitsName, ...presentNames] = session.outputNames as [string, ...string[]];
  // What a model says of its inputs is in the same order.
  const { shape } = session.inputMetadata[3] as { readonly shape: readonly (number | string)[] };
  const emptyShape = shape.map((size) => (typeof size === "number" ? size : 0));
  let caches: Tensor[] = [];
  let past = 0;
  const reset = () => {
    caches = pastNames.map(() => new Tensor("float32", new Float32Array(), emptyShape));
    past = 0;
  };
  reset();
  const run = async (ids: readonly number[]) => {
    past += ids.length;
    const outputs = await session.run({
      [idsName]: new Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]),
      [lastName]: new Tensor("int32", Int32Array.of(past - 1), [1]),
      [totalName]: new Tensor("int32", Int32Array.of(past), []),
      ...Object.fromEntries(pastNames.map((name, i) => [name, caches[i]!])),
    });
    caches = presentNames.map((name) => outputs[name]!);
    return outputs[logitsName]!.data as Float32Array;
  };
  return {
    reset,
    read: async (ids) => largestOf(await run(ids)),
    logits(ids) {
      reset();
      return run(ids);
    },
  };
};
