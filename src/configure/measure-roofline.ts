// Measures what a machine reaches, with the kernels and the decoders that models run on.

import { CACHE_FORMATS } from "../cache/page-layout.ts";
import { type Clock, type Effort, timeLoads } from "../diagnostics/timing.ts";
import { WEIGHT_FORMATS } from "../linear/formats.ts";
import { threadClock } from "../platform/thread-clock.ts";
import { expectEven, expectInt, expectOneOf, readFields } from "../util/arguments.ts";
import { HeadwiseError } from "../util/errors.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import { expectProjection } from "./choose-attention.ts";
import type { Roofline } from "./roofline.ts";
import { type RooflineOptions, rooflineLoads } from "./roofline-loads.ts";

const OPTIONS = ["weights", "cache", "dModel", "numHeads", "headDim", "projection"] as const;

/** A few seconds in all. */
const EFFORT: Effort = { warmupMs: 60, sampleMs: 8, rounds: 15, mostMs: 4000 };
/** Longer samples of processor time, which systems may count in ticks of some milliseconds. */
const THREAD_EFFORT: Effort = { ...EFFORT, sampleMs: 40 };
/** Bytes of weights that stay in the nearer caches of a processor, in its last one, and in memory. */
const SIZES = [2 ** 20, 2 ** 23, 2 ** 26];

/**
 * Measures the roofline of one machine in some ten seconds: the peak of arithmetic and of reading memory, what the kernels reach with
 * weights of a format and attention of a shape, and what a layer takes besides. Times are processor time of the thread where the host
 * says it (Node from 23.9 on); elsewhere the clock's, in the fastest of some samples, as other programs only make them slower.
 * @param kernels With `models`, `quantized` for formats other than "f32", and `latent` for latents.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `NO_MODELS`, `NO_QUANTIZED`, `NO_LATENT`, `OUT_OF_MEMORY` or
 * `RELEASED`; `NO_CLOCK` where the clock stands still while code runs.
 * @example
 * import { loadKernels } from "headwise";
 * import { configure, measureRoofline } from "headwise/configure";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const options = { parameterBudget: 1e6, seqLen: 256, target: "browser", weights: "f32" } as const;
 * const { speed } = configure({ ...options, roofline: await measureRoofline(kernels) });
 * console.log(speed !== undefined && speed.decodeTokensPerSecond > 0); // true
 * kernels.release();
 */
export async function measureRoofline(kernels: Kernels, options: RooflineOptions = {}): Promise<Roofline> {
  const where = "measureRoofline";
  expectKernels(where, kernels);
  const given = readFields(where, "options", options, OPTIONS);
  const { weights = "f32", cache = "f32", dModel = 1024, numHeads = 12, headDim = 64 } = given;
  const { projection = { kind: "mha", numKvHeads: numHeads } } = given;
  expectOneOf(where, "options.weights", weights, WEIGHT_FORMATS);
  expectOneOf(where, "options.cache", cache, CACHE_FORMATS);
  for (const [name, value] of Object.entries({ dModel, numHeads })) expectInt(where, `options.${name}`, value);
  expectEven(where, "options.headDim", headDim);
  expectProjection(where, "options.projection", projection, numHeads);
  const loads = await rooflineLoads(where, kernels, { weights, cache, dModel, numHeads, headDim, projection }, SIZES);
  try {
    const clock = clockOf(kernels);
    const rates = await timeLoads([...loads.prompt, ...loads.token], clock ? THREAD_EFFORT : EFFORT, clock);
    if (!rates) throw stoppedClock(where);
    return loads.read(rates.map(({ ms, bestMs }) => (clock ? ms : bestMs) / 1000));
  } finally {
    loads.release();
  }
}

/** What is thrown where no time passes while code runs. */
export function stoppedClock(where: string): HeadwiseError {
  return new HeadwiseError(
    "NO_CLOCK",
    `${where}: clock expected to advance while code runs, got one that stands still`,
  );
}

/** The processor time of this thread, if it is the one that computes. */
export const clockOf = ({ threads }: Kernels): Clock | undefined => (threads.used === 1 ? threadClock() : undefined);
