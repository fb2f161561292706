// Builds one layer of a configuration, and compares what was predicted with what it takes.

import { forward } from "../decoder/forward.ts";
import { loadModel } from "../decoder/load-model.ts";
import { createSession } from "../decoder/session.ts";
import { createRandom } from "../diagnostics/random.ts";
import { type Effort, timeLoads } from "../diagnostics/timing.ts";
import { writeSafetensors } from "../files/safetensors/safetensors.ts";
import { expectedTensors } from "../models/decoder/check-tensors.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { expectInt, expectRecord } from "../util/arguments.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import type { Configuration } from "./configure.ts";
import { type RooflineOptions, rooflineLoads } from "./measure-roofline.ts";
import { planShape } from "./plan-shape.ts";
import { predictMs, type Roofline } from "./roofline.ts";
import { workOf } from "./token-work.ts";

/** What a layer takes. */
export interface LayerCost {
  /** Bytes of linear memory of the weights. */
  readonly weightBytes: number;
  /** Those of a session. */
  readonly sessionBytes: number;
  /** Milliseconds of a prompt of `tokens` tokens. */
  readonly prefillMs: number;
  /** Milliseconds of one token behind it. */
  readonly decodeMs: number;
}

/** A layer as it was predicted and as it was measured. */
export interface LayerMeasurement {
  /** Tokens of the prompt. */
  readonly tokens: number;
  /** The roofline of the prediction. */
  readonly roofline: Roofline;
  /** What the roofline and `planModel` say. */
  readonly predicted: LayerCost;
  /** What the layer took. */
  readonly measured: LayerCost;
}

const EFFORT: Effort = { warmupMs: 100, sampleMs: 30, rounds: 15, mostMs: 5000 };
/** A table of so few entries costs nothing beside a layer. */
const VOCABULARY = 64;
/** Tokens of the prompt, unless the sequence is shorter. */
const TOKENS = 512;

/**
 * Builds a decoder of one layer of `configuration`, with random weights and a table of 64 tokens, and measures it beside the
 * prediction. The roofline is measured in the same rounds as the layer, so that both run beside the same other programs, and
 * milliseconds are medians.
 * @param kernels With `models`, `quantized` and, for latents, `latent`.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `NO_MODELS`, `NO_QUANTIZED`, `NO_LATENT`, `OUT_OF_MEMORY` or
 * `RELEASED`; an Error where the clock stands still while code runs.
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
  expectRecord(where, "configuration", configuration);
  const { weights, cache, config, dModel, numHeads, headDim, mlpDim, projection } = configuration;
  const seqLen = expectInt(
    where,
    "configuration.config.max_position_embeddings",
    Object(config).max_position_embeddings,
  );
  const tokens = Math.min(TOKENS, seqLen);
  const shape = { dModel, numHeads, headDim, mlpDim, projection, layers: 1, vocabSize: VOCABULARY, tied: true };
  const layer = planShape(where, shape, weights, cache, tokens + 1);
  const tensors = Object.fromEntries(
    [...expectedTensors(layer.decoder, "model.").required].map(([name, shape]) => [name, weightsOf(shape)]),
  );
  const files = new Map<string, Uint8Array>([
    ["config.json", new TextEncoder().encode(JSON.stringify(layer.config))],
    ["model.safetensors", writeSafetensors(tensors)],
  ]);
  const empty = kernels.usedBytes;
  using model = await loadModel(kernels, (name) => files.get(name), { weights });
  const loaded = kernels.usedBytes;
  using prompted = createSession(model, { maxSeqLen: tokens + 1, format: cache });
  const sessionBytes = kernels.usedBytes - loaded;
  using behind = createSession(model, { maxSeqLen: tokens + 1, format: cache });
  const ids = Array.from({ length: tokens }, (_, i) => i % VOCABULARY);
  forward(behind, ids, { top: 1 });
  const prompt = {
    flops: 2 * layer.parameters * tokens,
    run() {
      forward(prompted, ids, { top: 1 });
      prompted.truncate(0);
    },
  };
  const token = {
    flops: 2 * layer.parameters,
    run() {
      forward(behind, [1], { top: 1 });
      behind.truncate(tokens);
    },
  };
  // Reading is timed at the layer's own size: the larger the weights, the farther they are read from.
  const loads = rooflineLoads(kernels, rooflineOptions(configuration), [loaded - empty]);
  try {
    // Apart, since what a prompt leaves in the processor's caches is not what a token finds there.
    const [ofPrompt, ofToken] = [
      await timeLoads([...loads.prompt, prompt], EFFORT),
      await timeLoads([...loads.token, token], EFFORT),
    ];
    if (!ofPrompt || !ofToken)
      throw new Error(`${where}: clock expected to advance while code runs, got one that stands still`);
    const rates = [...ofPrompt.slice(0, -1), ...ofToken.slice(0, -1)];
    const roofline = loads.read(rates.map(({ gflops }) => 1e9 * gflops));
    const { prefill, decode } = predictMs(workOf(layer, tokens), roofline, tokens);
    const [prefillMs = 0, decodeMs = 0] = [ofPrompt.at(-1)?.ms, ofToken.at(-1)?.ms];
    const { memory } = layer;
    return {
      ...{ tokens, roofline },
      predicted: { weightBytes: memory.weights, sessionBytes: memory.sessions, prefillMs: prefill, decodeMs: decode },
      measured: { weightBytes: loaded - empty, sessionBytes, prefillMs, decodeMs },
    };
  } finally {
    for (const load of [...loads.prompt, ...loads.token]) load.release?.();
  }
}

/** Random weights by which rows keep about their norm, and gains of 1. */
function weightsOf(shape: readonly number[]): Tensor {
  const [outputs = 1, inputs] = shape;
  if (inputs === undefined) return { data: new Float32Array(outputs).fill(1), shape };
  const scale = Math.sqrt(3 / inputs);
  return {
    data: createRandom(outputs)
      .floats(outputs * inputs)
      .map((value) => value * scale),
    shape,
  };
}

/** What to measure a roofline of for a configuration: latents are keys that all heads share, and values. */
export function rooflineOptions({
  weights,
  cache,
  numHeads,
  headDim,
  projection,
}: Configuration): Required<RooflineOptions> {
  if (projection.kind !== "mla") return { weights, cache, numHeads, numKvHeads: projection.numKvHeads, headDim };
  return { weights, cache, numHeads, numKvHeads: 1, headDim: projection.kvLoraRank + projection.ropeDim };
}
