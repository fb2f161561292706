// What statistics of attention cost: scaledDotProductAttention with them beside the same call without, in one process and by turns.

import { createKvCache, type Kernels, type SdpaOptions, scaledDotProductAttention } from "../../src/entries/core.ts";
import { type StatisticsOptions, scaledDotProductAttentionWithStatistics } from "../../src/entries/inspect.ts";
import { loadBuild } from "../lib/builds.ts";
import { part } from "../lib/part.ts";
import { randomFloats } from "../lib/random.ts";
import { type CostRow, columns, costs, expectBits } from "./masks.ts";

const BASE: StatisticsOptions = { first: 4, last: 64 };
const WANTED: Readonly<Record<string, StatisticsOptions>> = {
  statistics: BASE,
  "topK 8": { ...BASE, topK: 8 },
  received: { ...BASE, received: true },
  "topK 8, received": { ...BASE, topK: 8, received: true },
};

interface Shape {
  readonly name: string;
  readonly heads: number;
  readonly kvHeads: number;
  readonly qLen: number;
  readonly kvLen: number;
  readonly left?: number;
}

const DIM = 64;
const SHAPES: readonly Shape[] = [
  { name: "8 heads, T = 2048", heads: 8, kvHeads: 8, qLen: 2048, kvLen: 2048 },
  { name: "32 / 8 heads, T = 1024", heads: 32, kvHeads: 8, qLen: 1024, kvLen: 1024 },
  { name: "8 heads, T = 2048, window 256", heads: 8, kvHeads: 8, qLen: 2048, kvLen: 2048, left: 255 },
  { name: "32 / 8 heads, 1 token of 4096", heads: 32, kvHeads: 8, qLen: 1, kvLen: 4096 },
];

/** Causal attention without statistics, then with each kind. A single token attends to a cache, which forgets it again. */
function statisticsLoads(kernels: Kernels, { name, heads, kvHeads, qLen, kvLen, left }: Shape) {
  const tensor = (count: number, len: number, seed: number) => {
    return { data: randomFloats(count * len * DIM, seed), shape: [count, len, DIM] };
  };
  const past = kvLen - qLen;
  const cache = past > 0 ? createKvCache(kernels, { numKvHeads: kvHeads, headDim: DIM, maxSeqLen: kvLen }) : undefined;
  const options: SdpaOptions = { causal: true, ...(left && { window: { left } }), ...(cache && { cache }) };
  if (cache)
    scaledDotProductAttention(
      kernels,
      tensor(heads, past, 1),
      tensor(kvHeads, past, 2),
      tensor(kvHeads, past, 3),
      options,
    );
  const inputs = [tensor(heads, qLen, 4), tensor(kvHeads, qLen, 5), tensor(kvHeads, qLen, 6)] as const;
  const outputOf = (wanted?: StatisticsOptions): Float32Array => {
    const { output } = wanted
      ? scaledDotProductAttentionWithStatistics(kernels, ...inputs, options, wanted)
      : scaledDotProductAttention(kernels, ...inputs, options);
    cache?.truncate(past);
    return output.data;
  };
  for (const [what, wanted] of Object.entries(WANTED)) expectBits(what, outputOf(wanted), outputOf());
  const loads = Object.entries(WANTED).map(([what, wanted]) => {
    return { name: `${name}: ${what}`, work: 1, run: () => void outputOf(wanted) };
  });
  return { loads: [{ name: "plain", work: 1, run: () => void outputOf() }, ...loads], cache };
}

/** Calls with statistics, relative to the same call without. */
export const statistics = part(
  "statistics",
  columns("time/plain"),
  async function* rows(context): AsyncGenerator<CostRow> {
    for (const name of context.builds) {
      const { host } = await loadBuild(name);
      for (const shape of context.quick ? SHAPES.slice(0, 1) : SHAPES) {
        const { loads, cache } = statisticsLoads(host, shape);
        yield* costs(context, name, loads);
        cache?.release();
      }
      host.release();
    }
  },
);
