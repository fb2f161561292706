// A prompt of 32768 tokens through 8 heads of 64.

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type * as Headwise from "../../src/entries/index.ts";
import { randomFloats } from "../lib/random.ts";
import { reasonOf } from "./measure.ts";
import { longModel, startSession } from "./onnx-models.ts";
import { root } from "./packages.ts";
import type { Long } from "./result.ts";

const TOKENS = 32_768;
const HEADS = 8;
const HEAD_DIM = 64;

/** A whole causal layer. Its scratch is the growth of used memory during the call. */
async function headwiseLong(): Promise<Long> {
  const headwise = (await import(pathToFileURL(join(root, "dist/index.js")).href)) as typeof Headwise;
  const dModel = HEADS * HEAD_DIM;
  const matrix = (seed: number) => ({
    data: randomFloats(dModel * dModel, seed, Math.sqrt(9 / dModel)),
    shape: [dModel, dModel],
  });
  const kernels = await headwise.loadKernels();
  const weights = { wq: matrix(1), wk: matrix(2), wv: matrix(3), wo: matrix(4) };
  const attention = headwise.createAttention(kernels, { dModel, numHeads: HEADS, causal: true }, weights);
  const x = randomFloats(TOKENS * dModel, 5);
  const [used, held] = [kernels.usedBytes, kernels.memoryBytes];
  const start = performance.now();
  headwise.attend(attention, x);
  const seconds = (performance.now() - start) / 1000;
  const mega = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
  const outcome = `${seconds.toFixed(1)} s, scratch ${mega(kernels.usedBytes - used)}, memory grew by ${mega(kernels.memoryBytes - held)}`;
  kernels.release();
  return { peer: "headwise", tokens: TOKENS, outcome };
}

/** The standard's Attention operator, causal. */
async function onnxLong(tokens: number): Promise<Long> {
  const { InferenceSession, Tensor } = await import("onnxruntime-web");
  const long = { peer: "onnxruntime-web", tokens };
  try {
    const session = await startSession({ InferenceSession, Tensor }, longModel(tokens, HEADS, HEAD_DIM));
    const start = performance.now();
    await session.run();
    const outcome = `${((performance.now() - start) / 1000).toFixed(1)} s, without projections`;
    await session.release();
    return { ...long, outcome };
  } catch (error) {
    return { ...long, outcome: `throws: ${reasonOf(error)}` };
  }
}

export async function measureLong(): Promise<Long[]> {
  const onnx: Long[] = [];
  for (const tokens of [2048, 4096, TOKENS]) onnx.push(await onnxLong(tokens));
  return [await headwiseLong(), ...onnx];
}
