// What a token of a whole decoder takes outside its products and its attention (norms, activations, RoPE, the cache, the choice
// of the next token, and the host): the calls of those kernels alone, by turns with the token.

import type { Model } from "../../src/models/blocks/model.ts";
import { forward } from "../../src/models/decoder/forward.ts";
import { createSession } from "../../src/models/decoder/session.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { type Build, loadBuild } from "../lib/builds.ts";
import { recordCalls } from "../lib/kernel-calls.ts";
import { compare, type Effort } from "../lib/measure.ts";
import { type Column, fasterBuild, part } from "../lib/part.ts";
import { MODEL_CONFIGS, randomModel } from "../lib/random-model.ts";

interface OutsideRow {
  readonly model: string;
  readonly weights: string;
  readonly past: number;
  /** Milliseconds of a token. */
  readonly ms: number;
  /** Percent of them that are neither products nor attention: the median of neighbouring samples. */
  readonly outside: number;
}

const columns: readonly Column<OutsideRow>[] = [
  ["model", 14, (row) => row.model],
  ["weights", 8, (row) => row.weights],
  ["behind", 6, (row) => row.past.toString()],
  ["ms", 6, ({ ms }) => ms.toFixed(2)],
  ["outside, %", 10, (row) => row.outside.toFixed(1)],
];

const FORMATS = ["q8-row", "q4"] as const;
const PASTS = [128, 1024] as const;

const isInside = (kernel: string) => /^(linear|quantize_rows|attention)/.test(kernel);

async function measureToken(build: Build, model: Model, past: number, effort: Effort) {
  const session = createSession(model, { maxSeqLen: past + 1 });
  const prompt = Array.from({ length: past }, (_, i) => (i * 7919) % model.vocabSize);
  forward(session, prompt);
  const token = () => {
    forward(session, [past % model.vocabSize], { top: 1 });
    session.truncate(past);
  };
  const loads = [token, recordCalls(build, token, isInside)].map((run) => ({ work: 1, run }));
  const [whole, inside] = await compare(loads, effort);
  session.release();
  return { past, ms: 1000 / whole!.rate, outside: 100 * (1 - 1 / inside!.ratio) };
}

export const outside = part("outside", columns, async function* rows(context): AsyncGenerator<OutsideRow> {
  if (context.quick) return;
  for (const [name, config] of Object.entries(MODEL_CONFIGS))
    for (const weights of FORMATS) {
      if (!context.wants(`${name} ${weights}`)) continue;
      const build = await loadBuild(fasterBuild(context));
      const model = await loadModel(build.host, randomModel(config), { weights });
      for (const past of PASTS)
        yield { model: name, weights, ...(await measureToken(build, model, past, context.effort)) };
      build.host.release();
    }
});
