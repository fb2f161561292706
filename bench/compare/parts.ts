// The parts of the comparison: kernels, whole layers and decode steps in one process, startup in processes of its own.

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { configOf, weightsOf } from "../layers/layer.ts";
import { inputRows } from "../layers/oracle.ts";
import type { BuildName } from "../lib/builds.ts";
import { spreadOf } from "../lib/measure.ts";
import { type Part, part } from "../lib/part.ts";
import { gpt2Layer, type LayerShape, llamaLayer } from "../lib/shapes.ts";
import type { Checkout, Headwise } from "./checkout.ts";
import { columns, type Difference, measurePair, medianOf, type Pair } from "./difference.ts";

/** Cases that both checkouts have, each in its own code; the names of the others are printed. */
export function compareKernels(old: Checkout, now: Checkout): Part {
  return part("kernels", columns, async function* rows({ quick, effort, builds, wants }): AsyncGenerator<Difference> {
    const all = new Set([...old.cases.keys(), ...now.cases.keys()]);
    const chosen = Array.from(all).filter((name) => wants(name) && (!quick || now.cases.get(name)?.quick));
    const common = chosen.filter((name) => old.cases.has(name) && now.cases.has(name));
    const others = chosen.filter((name) => !common.includes(name));
    if (others.length > 0) console.log(`\nin one checkout only: ${others.join("; ")}`);
    for (const build of common.length > 0 ? builds : []) {
      const [prepareOld, prepareNew] = await Promise.all([old.load(build), now.load(build)]);
      for (const work of common) {
        const pair = (): Pair => {
          const both = [prepareOld(work), prepareNew(work)] as const;
          for (const { run, check } of both) {
            run();
            check();
          }
          const [first, second] = both.map(({ run }) => ({ work: 1, run })) as [Pair["old"], Pair["new"]];
          return { old: first, new: second, release: () => both.forEach(({ release }) => void release()) };
        };
        yield { work, build, ...(await measurePair(pair, effort)) };
      }
    }
  });
}

interface LayerWork {
  readonly shape: LayerShape;
  readonly tokens: number;
  /** Tokens in the cache; undefined for a prompt without a cache. */
  readonly past?: number;
  readonly quick?: boolean;
}

const prompts: readonly LayerWork[] = [
  { shape: gpt2Layer, tokens: 16 },
  { shape: gpt2Layer, tokens: 128, quick: true },
  { shape: gpt2Layer, tokens: 512 },
  { shape: llamaLayer, tokens: 128, quick: true },
  { shape: llamaLayer, tokens: 512 },
];

const decodeSteps: readonly LayerWork[] = [
  { shape: gpt2Layer, tokens: 1, past: 1024, quick: true },
  { shape: llamaLayer, tokens: 1, past: 1024, quick: true },
];

/** A layer of one checkout through its public functions. */
async function prepareLayer(headwise: Headwise, build: BuildName, { shape, tokens, past = 0 }: LayerWork) {
  const kernels = await headwise.loadKernels({ deterministic: build === "simd" });
  if (kernels.build !== build) throw new Error(`bench:compare: build ${build} expected, got ${kernels.build}`);
  const attention = headwise.createAttention(kernels, configOf(shape), weightsOf(shape));
  const rows = inputRows(past + tokens, shape.dModel);
  const x = rows.subarray(past * shape.dModel);
  const out = new Float32Array(x.length);
  const cache = past > 0 ? headwise.createCache(attention, { maxSeqLen: past + tokens }) : undefined;
  if (cache) headwise.attend(attention, rows.subarray(0, past * shape.dModel), { cache });
  const run = () => {
    cache?.truncate(past);
    headwise.attend(attention, x, { cache, out });
  };
  return { out, load: { work: 1, run }, release: () => kernels.release() };
}

function sameBits(a: Float32Array, b: Float32Array): boolean {
  const [first, second] = [a, b].map(({ buffer }) => new Uint32Array(buffer)) as [Uint32Array, Uint32Array];
  return first.every((bits, i) => bits === second[i]);
}

function compareLayers(name: string, works: readonly LayerWork[], old: Checkout, now: Checkout): Part {
  return part(name, columns, async function* rows({ quick, effort, builds, wants }): AsyncGenerator<Difference> {
    for (const work of works)
      for (const build of builds) {
        const { shape, tokens, past } = work;
        const label = `${shape.model} ${past === undefined ? `T=${tokens}` : `decode past ${past}`}`;
        if ((quick && !work.quick) || !wants(label)) continue;
        let same = true;
        const pair = async (): Promise<Pair> => {
          const first = await prepareLayer(old.headwise, build, work);
          const second = await prepareLayer(now.headwise, build, work);
          for (const { load } of [first, second]) load.run();
          same &&= sameBits(first.out, second.out);
          return {
            old: first.load,
            new: second.load,
            release() {
              first.release();
              second.release();
            },
          };
        };
        yield { work: label, build, ...(await measurePair(pair, effort)), sameBits: same };
      }
  });
}

export const comparePrompts = (old: Checkout, now: Checkout) => compareLayers("layers", prompts, old, now);
export const compareDecode = (old: Checkout, now: Checkout) => compareLayers("decode", decodeSteps, old, now);

const RUNS = 31;
const QUICK_RUNS = 7;

/** One process from its start to its end, and the sum of the steps from the import to the first result. */
function startOnce({ folder }: Checkout, build: BuildName): readonly number[] {
  const path = join(import.meta.dirname, "../startup/layer.mjs");
  const args = [path, "--dist", join(folder, "dist"), ...(build === "simd" ? ["--deterministic"] : [])];
  const start = performance.now();
  const printed = execFileSync(process.execPath, args, { encoding: "utf8" });
  const whole = performance.now() - start;
  const { inputs: _, ...steps } = JSON.parse(printed) as Record<string, number>;
  return [whole, Object.values(steps).reduce((sum, ms) => sum + ms, 0)];
}

/** Runs processes of both checkouts by turns. */
export function compareStartup(old: Checkout, now: Checkout): Part {
  return part("startup", columns, async function* rows({ quick, builds, wants }): AsyncGenerator<Difference> {
    const works = ["process that runs a layer", "  its import to its first result"];
    for (const build of works.some(wants) ? builds : []) {
      const times = { old: [] as (readonly number[])[], new: [] as (readonly number[])[] };
      for (const checkout of [old, now]) startOnce(checkout, build); // its files are in the system's cache from here on
      for (let run = 0; run < (quick ? QUICK_RUNS : RUNS); run++)
        for (const name of run % 2 === 0 ? (["old", "new"] as const) : (["new", "old"] as const))
          times[name].push(startOnce(name === "old" ? old : now, build));
      for (const [i, work] of works.entries()) {
        const [before, after] = [times.old, times.new].map((all) => all.map((one) => one[i]!)) as [number[], number[]];
        const [oldMs, newMs] = [spreadOf(before).median, spreadOf(after).median];
        const ratios = after.map((value, run) => value / before[run]!);
        yield { work, build, oldMs, newMs, ...medianOf(ratios), best: Math.min(...after) / Math.min(...before) };
      }
    }
  });
}
