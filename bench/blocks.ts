// Whole layers through the public functions: prompts against arithmetic, single tokens against reading what they need.

import { attend, createCache } from "../src/entries/core.ts";
import { decodeCoreCases } from "./attention.ts";
import { blockFlops, expectRows, layerOf } from "./block.ts";
import type { Build } from "./builds.ts";
import type { Case, Prepared } from "./case.ts";
import { casePart } from "./cases.ts";
import { inputRows } from "./oracle.ts";
import { type BlockShape, blockShapes, decodePasts, gpt2Block, llamaBlock } from "./shapes.ts";

const QUICK_PROMPT = 128;
const QUICK_PAST = 1024;

function preparePrompt(build: Build, shape: BlockShape, tokens: number): Prepared {
  const { attention, oracle } = layerOf(build.host, shape);
  const x = inputRows(tokens, shape.dModel);
  const out = new Float32Array(x.length);
  return {
    run: () => void attend(attention, x, { out }),
    reads: [{ at: attention.layer.at, length: attention.bytes }],
    check: () => expectRows(`attend ${shape.model}`, out, oracle, 0, [0, tokens >> 1, tokens - 1]),
    release: () => attention.release(),
  };
}

function prepareStep(build: Build, shape: BlockShape, past: number): Prepared {
  const { attention, oracle } = layerOf(build.host, shape);
  const cache = createCache(attention, { maxSeqLen: past + 1 });
  const x = inputRows(past + 1, shape.dModel);
  attend(attention, x.subarray(0, past * shape.dModel), { cache });
  const last = x.subarray(past * shape.dModel);
  const out = new Float32Array(shape.dModel);
  return {
    run() {
      cache.truncate(past);
      attend(attention, last, { cache, out });
    },
    reads: [
      { at: attention.layer.at, length: attention.bytes },
      { at: cache.pages.at, length: cache.bytes },
    ],
    check: () => expectRows(`decode ${shape.model}`, out, oracle, past, [past]),
    release() {
      cache.release();
      attention.release();
    },
  };
}

const prompts = blockShapes.flatMap((shape) =>
  shape.prompts.map(
    (tokens): Case => ({
      kernel: "attend",
      shape: `${shape.model} T=${tokens}`,
      quick: shape === gpt2Block && tokens === QUICK_PROMPT,
      flops: blockFlops(shape, tokens),
      limit: "arithmetic",
      prepare: (build) => preparePrompt(build, shape, tokens),
    }),
  ),
);

const steps = decodePasts.map(
  (past): Case => ({
    kernel: "attend, one token",
    shape: `${llamaBlock.model} past ${past}`,
    quick: past === QUICK_PAST,
    flops: blockFlops(llamaBlock, 1, past),
    limit: "reading",
    prepare: (build) => prepareStep(build, llamaBlock, past),
  }),
);

export const blocks = casePart("blocks", [...prompts, ...steps, ...decodeCoreCases]);
