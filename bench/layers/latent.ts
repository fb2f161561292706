// A layer of latent attention of the sizes of DeepSeek-V2-Lite: prompts by both paths, in one process and by turns, and
// decode steps with caches of each format.

import { attend, type Cache, createCache } from "../../src/entries/core.ts";
import { createLatentAttention, type LatentAttention } from "../../src/layers/latent/latents.ts";
import { type BuildName, loadBuild } from "../lib/builds.ts";
import { compare, type Load } from "../lib/measure.ts";
import { type Column, part } from "../lib/part.ts";
import { randomFloats } from "../lib/random.ts";

interface LatentRow {
  readonly work: string;
  readonly build: BuildName;
  /** Milliseconds of the first of two: absorbed, or float32. */
  readonly ms: number;
  /** What it is compared with. */
  readonly with: string;
  /** The speed of the other over that of the first: median, and the range of the middle 80 %. */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
}

const columns: readonly Column<LatentRow>[] = [
  ["work", 34, (row) => row.work],
  ["build", 7, (row) => row.build],
  ["ms", 8, ({ ms }) => ms.toPrecision(3)],
  ["compared with", 13, (row) => row.with],
  ["its speed", 9, (row) => row.ratio.toFixed(3)],
  ["spread", 11, (row) => `${row.low.toFixed(3)}-${row.high.toFixed(3)}`],
];

const config = {
  ...{ dModel: 2048, numHeads: 16, kvLoraRank: 512, nopeDim: 128, ropeDim: 64, causal: true },
  rope: { theta: 10_000, pairing: "interleaved" },
} as const;
const { dModel, numHeads, kvLoraRank, nopeDim, ropeDim } = config;

function createLayer({ host }: Awaited<ReturnType<typeof loadBuild>>): LatentAttention {
  const matrix = (rows: number, inputs: number, seed: number) => ({
    data: randomFloats(rows * inputs, seed).map((w) => w / Math.sqrt(inputs)),
    shape: [rows, inputs],
  });
  const weights = {
    wq: matrix(numHeads * (nopeDim + ropeDim), dModel, 1),
    wkvDown: matrix(kvLoraRank + ropeDim, dModel, 2),
    kvNorm: new Float32Array(kvLoraRank).fill(1),
    wkvUp: matrix(2 * numHeads * nopeDim, kvLoraRank, 3),
    wo: matrix(dModel, numHeads * nopeDim, 4),
  };
  return createLatentAttention(host, config, weights, { expanded: true });
}

/** A cache of `past` tokens. */
function cacheOf(layer: LatentAttention, past: number, room: number, format: "f32" | "f16" | "q8" = "f32"): Cache {
  const cache = createCache(layer, { maxSeqLen: past + room, format });
  for (let length = 0; length < past; length += 256)
    attend(layer, randomFloats(Math.min(256, past - length) * dModel, length), { cache });
  return cache;
}

/** New tokens, and the tokens before them: prompts, and turns of a conversation. */
const prompts = [
  ...[32, 128, 512, 2048].map((tokens) => ({ tokens, past: 0 })),
  ...[64, 128, 256, 512].map((tokens) => ({ tokens, past: 4096 })),
];

export const latents = part(
  "latent",
  columns,
  async function* rows({ effort, builds, wants, quick }): AsyncGenerator<LatentRow> {
    for (const name of quick ? [] : builds) {
      const build = await loadBuild(name);
      const layer = createLayer(build);
      for (const { tokens, past } of prompts) {
        const work = past > 0 ? `${tokens} tokens after ${past}` : `prompt of ${tokens} tokens`;
        if (!wants(`${work} ${name}`)) continue;
        const x = randomFloats(tokens * dModel, 5);
        const cache = cacheOf(layer, past, tokens);
        const load = (path: "absorbed" | "expanded"): Load => ({
          work: 1,
          run() {
            attend(layer, x, { cache, path });
            cache.truncate(past);
          },
        });
        const [absorbed, expanded] = await compare([load("absorbed"), load("expanded")], effort);
        yield { work, build: name, ms: 1000 / absorbed!.rate, with: "expanded", ...spread(expanded!) };
        cache.release();
      }
      for (const past of [1024, 8192])
        for (const format of ["f16", "q8"] as const) {
          const work = `decode after ${past} tokens`;
          if (!wants(`${work} ${format} ${name}`)) continue;
          const x = randomFloats(dModel, 6);
          const caches = (["f32", format] as const).map((each) => cacheOf(layer, past, 1, each));
          const loads = caches.map(
            (cache): Load => ({
              work: 1,
              run() {
                attend(layer, x, { cache });
                cache.truncate(past);
              },
            }),
          );
          const [floats, other] = await compare(loads, effort);
          yield { work, build: name, ms: 1000 / floats!.rate, with: `${format} cache`, ...spread(other!) };
          for (const cache of caches) cache.release();
        }
      build.host.release();
    }
  },
);

const spread = ({ ratio, low, high }: Pick<LatentRow, "ratio" | "low" | "high">) => ({ ratio, low, high });
