// The package under test. It is handed in, never imported: a host imports it in the way that its users do, and the suite
// is one bundle without it. Adapters of test/conformance and the example's decoder import these names for "headwise".

import type * as Headwise from "../../src/entries/index.ts";
import type * as Weights from "../../src/entries/weights.ts";
import type { Kernels, LoadOptions } from "../../src/wasm/kernels.ts";

/** `headwise`, or another entry with the same functions, such as `headwise/threads`. */
export type Entry = Omit<typeof Headwise, "loadKernels"> & {
  loadKernels(options?: LoadOptions): Promise<Kernels>;
};

/** `headwise/weights`. */
export type WeightsEntry = typeof Weights;

export let HeadwiseError: Entry["HeadwiseError"];
export let applyRope: Entry["applyRope"];
export let attend: Entry["attend"];
export let attendMany: Entry["attendMany"];
export let attendWithMaps: Entry["attendWithMaps"];
export let createAttention: Entry["createAttention"];
export let createCache: Entry["createCache"];
export let scaledDotProductAttention: Entry["scaledDotProductAttention"];
export let splitHeads: Entry["splitHeads"];

export let convertToGqa: WeightsEntry["convertToGqa"];
export let fromHfConfig: WeightsEntry["fromHfConfig"];
export let quantizeTensor: WeightsEntry["quantizeTensor"];
export let readAttentionWeights: WeightsEntry["readAttentionWeights"];
export let readSafetensors: WeightsEntry["readSafetensors"];
export let toFloats: WeightsEntry["toFloats"];

/** From here on these are the package. */
export function give(headwise: Entry, weights: WeightsEntry): void {
  ({
    HeadwiseError,
    applyRope,
    attend,
    attendMany,
    attendWithMaps,
    createAttention,
    createCache,
    scaledDotProductAttention,
    splitHeads,
  } = headwise);
  ({ convertToGqa, fromHfConfig, quantizeTensor, readAttentionWeights, readSafetensors, toFloats } = weights);
}
