// Whole layers through the public functions: prompts relative to arithmetic, decode steps relative to reading weights, keys
// and values.

import { attend, createCache } from "../../src/entries/core.ts";
import { asHeads } from "../../src/layers/attention/heads.ts";
import { decodeCoreCases } from "../kernels/attention.ts";
import type { Build } from "../lib/builds.ts";
import type { Case, Prepared } from "../lib/case.ts";
import { casePart } from "../lib/case-part.ts";
import { layerFlops } from "../lib/flops.ts";
import { decodePasts, gpt2Layer, type LayerShape, layerShapes, llamaLayer } from "../lib/shapes.ts";
import { expectRows, layerOf } from "./layer.ts";
import { inputRows } from "./oracle.ts";

const QUICK_PROMPT = 128;
const QUICK_PAST = 1024;

function preparePrompt(build: Build, shape: LayerShape, tokens: number): Prepared {
  const { attention, oracle } = layerOf(build.host, shape);
  const x = inputRows(tokens, shape.dModel);
  const out = new Float32Array(x.length);
  return {
    run: () => void attend(attention, x, { out }),
    reads: [{ at: asHeads(attention).layer.at, length: attention.bytes }],
    check: () => expectRows(`attend ${shape.model}`, out, oracle, 0, [0, tokens >> 1, tokens - 1]),
    release: () => attention.release(),
  };
}

function prepareStep(build: Build, shape: LayerShape, past: number): Prepared {
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
      { at: asHeads(attention).layer.at, length: attention.bytes },
      { at: cache.pages.at, length: cache.bytes },
    ],
    check: () => expectRows(`decode ${shape.model}`, out, oracle, past, [past]),
    release() {
      cache.release();
      attention.release();
    },
  };
}

const prompts = layerShapes.flatMap((shape) =>
  shape.prompts.map(
    (tokens): Case => ({
      kernel: "attend",
      shape: `${shape.model} T=${tokens}`,
      quick: shape === gpt2Layer && tokens === QUICK_PROMPT,
      flops: layerFlops(shape, tokens),
      limit: "arithmetic",
      prepare: (build) => preparePrompt(build, shape, tokens),
    }),
  ),
);

const steps = decodePasts.map(
  (past): Case => ({
    kernel: "attend, one token",
    shape: `${llamaLayer.model} past ${past}`,
    quick: past === QUICK_PAST,
    flops: layerFlops(llamaLayer, 1, past),
    limit: "reading",
    prepare: (build) => prepareStep(build, llamaLayer, past),
  }),
);

export const layers = casePart("layers", [...prompts, ...steps, ...decodeCoreCases]);
