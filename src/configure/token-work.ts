// What a token costs in a decoder, counted from its layers.

import { PAGE } from "../../assembly/layout.ts";
import { panelBytes, sumBytes, wholePanels } from "../linear/formats.ts";
import type { Candidate, Shape } from "./plan-shape.ts";
import type { TokenWork } from "./roofline.ts";

/** The work of a token after `seqLen` others, and of a prompt of that many. */
export function workOf({ shape, weights, parameters, memory }: Candidate, seqLen: number): TokenWork {
  const head = shape.vocabSize * shape.dModel;
  const block = 1024;
  const weightBytes = (panelBytes(weights, block) + sumBytes(weights, block)) / (wholePanels(1) * block);
  const pages = Math.ceil(seqLen / PAGE) * PAGE;
  return {
    ...{ weights, layers: shape.layers, weightBytes, head },
    matrices: parameters - head * (shape.tied ? 1 : 2),
    pairFlops: shape.layers * pairFlops(shape),
    elements: shape.layers * (4 * shape.dModel + shape.mlpDim),
    pairs: (seqLen * (seqLen + 1)) / 2,
    cacheBytes: (memory.sessions * seqLen) / pages,
  };
}

/** Operations of a layer for a query and a key: two for each number of keys, and of values. Latents are both. */
function pairFlops({ numHeads, headDim, projection }: Shape): number {
  if (projection.kind !== "mla") return 4 * numHeads * headDim;
  const { kvLoraRank, ropeDim } = projection;
  return 2 * numHeads * (2 * kvLoraRank + ropeDim);
}
