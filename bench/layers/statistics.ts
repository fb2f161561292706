// What statistics of attention cost: scaledDotProductAttention with them beside the same call without, in one process and by turns, in
// CPU time.

import { createKvCache, type Kernels, type SdpaOptions, scaledDotProductAttention } from "../../src/entries/core.ts";
import { type StatisticsOptions, scaledDotProductAttentionWithStatistics } from "../../src/tools/inspect/statistics.ts";
import { type BuildName, loadBuild } from "../lib/builds.ts";
import { spreadOf } from "../lib/measure.ts";
import { part } from "../lib/part.ts";
import { randomFloats } from "../lib/random.ts";
import { type CostRow, columns, expectBits } from "./masks.ts";

const BASE: StatisticsOptions = { first: 4, last: 64 };
const WANTED: Readonly<Record<string, StatisticsOptions>> = {
  statistics: BASE,
  "topK 8": { ...BASE, topK: 8 },
  received: { ...BASE, received: true },
  "topK 8, received": { ...BASE, topK: 8, received: true },
};

interface Load {
  readonly name: string;
  run(): void;
}

interface Sampled {
  readonly name: string;
  /** Milliseconds of each sample. */
  readonly times: number[];
  sample(): number;
}

interface Shape {
  readonly name: string;
  readonly heads: number;
  readonly kvHeads: number;
  readonly qLen: number;
  readonly kvLen: number;
  readonly left?: number;
  /** Default 64. */
  readonly dim?: number;
}

const SHAPES: readonly Shape[] = [
  { name: "8 heads, T = 2048", heads: 8, kvHeads: 8, qLen: 2048, kvLen: 2048 },
  { name: "32 / 8 heads, T = 1024", heads: 32, kvHeads: 8, qLen: 1024, kvLen: 1024 },
  { name: "8 heads, T = 2048, window 256", heads: 8, kvHeads: 8, qLen: 2048, kvLen: 2048, left: 255 },
  { name: "32 / 8 heads, 1 token of 4096", heads: 32, kvHeads: 8, qLen: 1, kvLen: 4096 },
  { name: "4 heads of 32, T = 256", heads: 4, kvHeads: 4, qLen: 256, kvLen: 256, dim: 32 },
];

/** Causal attention without statistics, then with each kind. A single token attends to a cache, which forgets it again. */
function statisticsLoads(kernels: Kernels, { name, heads, kvHeads, qLen, kvLen, left, dim = 64 }: Shape) {
  const tensor = (count: number, len: number, seed: number) => {
    return { data: randomFloats(count * len * dim, seed), shape: [count, len, dim] };
  };
  const past = kvLen - qLen;
  const cache = past > 0 ? createKvCache(kernels, { numKvHeads: kvHeads, headDim: dim, maxSeqLen: kvLen }) : undefined;
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
    return { name: `${name}: ${what}`, run: () => void outputOf(wanted) };
  });
  return { loads: [{ name: "plain", run: () => void outputOf() }, ...loads], cache };
}

/** Milliseconds of CPU time: samples take a tenth of a second, in which a shared machine interrupts them. */
function timeOf(run: () => void, repeats: number): number {
  const before = process.cpuUsage();
  for (let i = 0; i < repeats; i++) run();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000 / repeats;
}

const SAMPLE_MS = 60;

/** Times each load beside the first one, by turns. */
function* costs(build: BuildName, loads: readonly Load[], samples: number): Generator<CostRow> {
  const [plain, ...others] = loads.map(({ name, run }) => {
    timeOf(run, 3);
    const repeats = Math.max(1, Math.round(SAMPLE_MS / timeOf(run, 1)));
    return { name, times: [] as number[], sample: () => timeOf(run, repeats) };
  }) as [Sampled, ...Sampled[]];
  for (let i = 0; i < samples; i++) for (const each of [plain, ...others]) each.times.push(each.sample());
  for (const { name, times } of others) {
    const ratio = spreadOf(times.map((ms, i) => ms / plain.times[i]!));
    yield { work: name, build, ms: spreadOf(times).median, ratio: ratio.median, low: ratio.low, high: ratio.high };
  }
}

/** Calls with statistics, relative to the same call without. */
export const statistics = part(
  "statistics",
  columns("time/plain"),
  async function* rows(context): AsyncGenerator<CostRow> {
    for (const name of context.builds) {
      const { host } = await loadBuild(name);
      for (const shape of context.quick ? SHAPES.slice(0, 1) : SHAPES) {
        if (!context.wants(`${shape.name} ${name}`)) continue;
        const { loads, cache } = statisticsLoads(host, shape);
        yield* costs(name, loads, context.quick ? 9 : 25);
        cache?.release();
      }
      host.release();
    }
  },
);
