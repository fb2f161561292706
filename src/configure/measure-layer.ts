// Builds one layer of a configuration, and compares what was predicted with what it takes.

import { CACHE_FORMATS } from "../cache/page-layout.ts";
import { type Effort, timeLoads } from "../diagnostics/timing.ts";
import { WEIGHT_FORMATS } from "../linear/formats.ts";
import { expectEven, expectInt, expectOneOf, expectRecord } from "../util/arguments.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import { expectProjection } from "./choose-attention.ts";
import type { Configuration } from "./configure.ts";
import { clockOf, stoppedClock } from "./measure-roofline.ts";
import { createOwned } from "./owned.ts";
import { planShape } from "./plan-shape.ts";
import { loadRandom, tokensOf, VOCABULARY } from "./random-decoder.ts";
import { predictMs, type Roofline } from "./roofline.ts";
import { type RooflineOptions, rooflineLoads } from "./roofline-loads.ts";
import { workOf } from "./token-work.ts";

/** What a layer takes. */
export interface LayerCost {
  /** Bytes of linear memory of the weights. */
  readonly weightBytes: number;
  /** Those of a session. */
  readonly sessionBytes: number;
  /** Milliseconds of a prompt of `tokens` tokens. */
  readonly prefillMs: number;
  /** Milliseconds of one token after it. */
  readonly decodeMs: number;
}

/** A layer as it was predicted and as it was measured. */
export interface LayerMeasurement {
  /** Tokens of the prompt. */
  readonly tokens: number;
  /** What times are of: processor time of the thread, or the clock, by which other programs make them longer. */
  readonly clock: "thread" | "wall";
  /** The roofline of the prediction. */
  readonly roofline: Roofline;
  /** What the roofline and `planModel` say. */
  readonly predicted: LayerCost;
  /** What the layer took. */
  readonly measured: LayerCost;
}

const EFFORT: Effort = { warmupMs: 100, sampleMs: 40, rounds: 7, mostMs: 5000 };
/** Tokens of the prompt, unless the sequence is shorter. */
const TOKENS = 512;

/**
 * Builds a decoder of one layer of `configuration`, with random weights and a table of 64 tokens, and measures it beside the
 * prediction. The roofline is measured in the same rounds as the layer, so that both run beside the same other programs, and
 * milliseconds are medians: of processor time of the thread where the host says it (Node from 23.9 on), else of the clock.
 * @param kernels With `models`, `quantized` for formats other than "f32", and `latent` for latents.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `NO_MODELS`, `NO_QUANTIZED`, `NO_LATENT`, `OUT_OF_MEMORY` or
 * `RELEASED`; `NO_CLOCK` where the clock stands still while code runs.
 * @example
 * import { loadKernels } from "headwise";
 * import { configure, measureLayer } from "headwise/configure";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const small = { parameterBudget: 1e5, seqLen: 128, target: "browser", weights: "f32", cache: "f32" } as const;
 * const { predicted, measured } = await measureLayer(kernels, configure(small));
 * console.log(predicted.weightBytes === measured.weightBytes, measured.prefillMs > 0); // true true
 * kernels.release();
 */
export async function measureLayer(kernels: Kernels, configuration: Configuration): Promise<LayerMeasurement> {
  const where = "measureLayer";
  expectKernels(where, kernels);
  const { weights, cache, dModel, numHeads, headDim, mlpDim, projection, seqLen } = readConfiguration(
    where,
    configuration,
  );
  const tokens = Math.min(TOKENS, seqLen);
  const shape = { dModel, numHeads, headDim, mlpDim, projection, layers: 1, vocabSize: VOCABULARY, tied: true };
  const layer = planShape(where, shape, weights, cache, tokens + 1);
  const empty = kernels.usedBytes;
  using model = await loadRandom(where, kernels, layer);
  const loaded = kernels.usedBytes;
  const owned = createOwned();
  try {
    const prompt = tokensOf(owned, model, cache, 0, tokens, 2 * layer.parameters * tokens);
    const sessionBytes = kernels.usedBytes - loaded; // the token's session is as large
    const token = tokensOf(owned, model, cache, tokens, 1, 2 * layer.parameters);
    // Reading is timed at the layer's own size: the larger the weights, the farther they are read from.
    const loads = owned.add(await rooflineLoads(where, kernels, rooflineOptions(configuration), [loaded - empty]));
    const clock = clockOf(kernels);
    // Apart, since what a prompt leaves in the processor's caches is not what a token finds there.
    const [ofPrompt, ofToken] = [
      await timeLoads([...loads.prompt, prompt], EFFORT, clock),
      await timeLoads([...loads.token, token], EFFORT, clock),
    ];
    if (!ofPrompt || !ofToken) throw stoppedClock(where);
    const times = [...ofPrompt.slice(0, -1), ...ofToken.slice(0, -1)];
    const roofline = loads.read(times.map(({ ms }) => ms / 1000));
    const { prefill, decode } = predictMs(workOf(layer, tokens), roofline, tokens);
    const [prefillMs = 0, decodeMs = 0] = [ofPrompt.at(-1)?.ms, ofToken.at(-1)?.ms];
    const { memory } = layer;
    return {
      ...{ tokens, roofline, clock: clock ? "thread" : "wall" },
      predicted: { weightBytes: memory.weights, sessionBytes: memory.sessions, prefillMs: prefill, decodeMs: decode },
      measured: { weightBytes: loaded - empty, sessionBytes, prefillMs, decodeMs },
    };
  } finally {
    owned.release();
  }
}

/** Checks what a layer is built of: a configuration may have been stored, sent or changed. */
function readConfiguration(where: string, configuration: Configuration) {
  const name = "configuration";
  expectRecord(where, name, configuration);
  const { weights, cache, config, dModel, numHeads, headDim, mlpDim, projection } = configuration;
  expectOneOf(where, `${name}.weights`, weights, WEIGHT_FORMATS);
  expectOneOf(where, `${name}.cache`, cache, CACHE_FORMATS);
  for (const [size, value] of Object.entries({ dModel, numHeads, mlpDim })) expectInt(where, `${name}.${size}`, value);
  expectEven(where, `${name}.headDim`, headDim);
  expectProjection(where, `${name}.projection`, projection, numHeads);
  expectRecord(where, `${name}.config`, config);
  const seqLen = expectInt(where, `${name}.config.max_position_embeddings`, config.max_position_embeddings);
  return { weights, cache, dModel, numHeads, headDim, mlpDim, projection, seqLen };
}

/** What to measure a roofline of for a configuration. */
export function rooflineOptions(configuration: Configuration): Required<RooflineOptions> {
  const { weights, cache, dModel, numHeads, headDim, projection } = configuration;
  return { weights, cache, dModel, numHeads, headDim, projection };
}
