// Whole decoders with the shapes of real models and random weights: prompts, and single tokens behind 128 and 1024 others, beside
// reading the same weights.

import { FORMATS, type PackedLinear, type WeightFormat } from "../../src/layers/linear/formats.ts";

import { linearFlops } from "../../src/layers/linear/products.ts";
import type { Model } from "../../src/models/blocks/model.ts";
import { forward } from "../../src/models/decoder/forward.ts";
import { createSession, type Session } from "../../src/models/decoder/session.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { type Build, loadBuild } from "../lib/builds.ts";
import type { Region } from "../lib/case.ts";
import { arithmeticPeak, readingPeak, totalBytes } from "../lib/limits.ts";
import { type Effort, type Load, measure } from "../lib/measure.ts";
import { type Column, fasterBuild, part } from "../lib/part.ts";
import { HYBRID_CONFIGS, MODEL_CONFIGS, randomModel } from "../lib/random-model.ts";

interface DecoderRow {
  readonly model: string;
  readonly weights: string;
  readonly work: string;
  readonly ms: number;
  readonly tokensPerSecond: number;
  readonly bestTokensPerSecond: number;
  readonly peak: "stream" | "fma";
  readonly percent: number;
}

const columns: readonly Column<DecoderRow>[] = [
  ["model", 14, (row) => row.model],
  ["weights", 13, (row) => row.weights],
  ["work", 26, (row) => row.work],
  ["ms", 8, (row) => row.ms.toFixed(2)],
  ["tokens/s", 9, (row) => row.tokensPerSecond.toFixed(1)],
  ["best", 7, (row) => row.bestTokensPerSecond.toFixed(1)],
  ["peak", 7, (row) => row.peak],
  ["% of peak", 10, (row) => row.percent.toFixed(0)],
];

const MEASURED = [
  ["f32", "exact"],
  ["q8", "exact"],
  ["q8-row", "exact"],
  ["q8-row", "fast"],
  ["q4", "exact"],
  ["q4", "fast"],
] as const;

/** Tokens that fit beside the timed ones. */
const MOST_TOKENS = 1300;

const idsOf = (model: Model, count: number) => Array.from({ length: count }, (_, i) => (i * 7919) % model.vocabSize);

/** The panels that a token reads. */
function weightsOf({ weights }: Model): { regions: Region[]; flops: number } {
  const { blocks, head } = weights;
  const linears = blocks.flatMap(({ attention, mlp }) => [
    ...attention.mixer.linears(attention),
    ...(mlp ? [...mlp.inputs, mlp.down] : []),
  ]);
  const regions = [...linears, head].map(({ w, panels, k, format }: PackedLinear) => ({
    at: w,
    length: panels * FORMATS[format].panelBytes(k),
  }));
  return { regions, flops: linears.reduce((sum, linear) => sum + linearFlops(linear, 1), 0) };
}

async function timed(
  names: Pick<DecoderRow, "model" | "weights" | "work" | "peak">,
  tokens: number,
  load: Load,
  peak: Load,
  effort: Effort,
): Promise<DecoderRow> {
  const { rate, bestRate, ratio } = await measure(load, peak, effort);
  const perSecond = (units: number) => (tokens * units) / load.work;
  const tokensPerSecond = perSecond(rate);
  return {
    ...names,
    ...{ ms: (1000 * tokens) / tokensPerSecond, tokensPerSecond, percent: 100 * ratio },
    bestTokensPerSecond: perSecond(bestRate),
  };
}

/** A prompt, and a token behind `past` others, whose session is cut back each time. */
async function* rowsOf(build: Build, model: Model, name: string, weights: string, effort: Effort) {
  const { regions, flops } = weightsOf(model);
  const session: Session = createSession(model, { maxSeqLen: MOST_TOKENS });
  const names = { model: name, weights };
  const prompt = idsOf(model, 128);
  const prefill = () => {
    session.truncate(0);
    forward(session, prompt);
  };
  const work = { work: flops * prompt.length, run: prefill };
  yield timed({ ...names, work: "prompt of 128", peak: "fma" }, prompt.length, work, arithmeticPeak(build), effort);
  const peak = await readingPeak(build, regions, effort);
  for (const past of [128, 1024]) {
    session.truncate(0);
    forward(session, idsOf(model, past));
    const token = () => {
      forward(session, [past % model.vocabSize]);
      session.truncate(past);
    };
    const step = { work: totalBytes(regions), run: token };
    yield timed({ ...names, work: `a token behind ${past}`, peak: "stream" }, 1, step, peak, effort);
  }
  session.release();
}

export const decoders = part("decoders", columns, async function* rows(context) {
  if (context.quick) return;
  for (const [name, config] of Object.entries({ ...MODEL_CONFIGS, ...HYBRID_CONFIGS }))
    for (const [format, activations] of MEASURED) {
      const weights = `${format} ${activations}`;
      if (!context.wants(`${name} ${weights}`)) continue;
      const build = await loadBuild(fasterBuild(context));
      const options = { weights: format as WeightFormat, activations };
      const model = await loadModel(build.host, randomModel(config), options);
      yield* rowsOf(build, model, name, weights, context.effort);
      build.host.release();
    }
});
