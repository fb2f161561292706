// What a token costs in a decoder, counted from its layers.

import { PAGE } from "../../assembly/layout.ts";
import { panelBytes, sumBytes, wholePanels } from "../linear/formats.ts";
import type { ModelSpec } from "../models/decoder/spec.ts";
import type { Candidate } from "./plan-shape.ts";
import type { TokenWork } from "./roofline.ts";

/** The work of a token behind `seqLen` others, and of a prompt of that many. */
export function workOf({ decoder, shape, weights, parameters, memory }: Candidate, seqLen: number): TokenWork {
  const { spec } = decoder;
  const head = shape.vocabSize * shape.dModel;
  const block = 1024;
  const weightBytes = (panelBytes(weights, block) + sumBytes(weights, block)) / (wholePanels(1) * block);
  const pages = Math.ceil(seqLen / PAGE) * PAGE;
  return {
    ...{ weights, weightBytes, head },
    matrices: parameters - head * (shape.tied ? 1 : 2),
    pairFlops: pairFlops(spec),
    pairs: (seqLen * (seqLen + 1)) / 2,
    cacheBytes: (memory.sessions * seqLen) / pages,
  };
}

/** Operations of all layers for a query and a key: two for each number of keys, and of values. Latents are both. */
function pairFlops({ blocks }: ModelSpec): number {
  return blocks.reduce((sum, { attention }) => {
    if (attention.kind === "latent") {
      const { numHeads, kvLoraRank, ropeDim } = attention.config;
      return sum + 2 * numHeads * (2 * kvLoraRank + ropeDim);
    }
    const { dModel, numHeads, headDim = dModel / numHeads } = attention.config;
    return sum + 4 * numHeads * headDim;
  }, 0);
}
