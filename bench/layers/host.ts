// What a decode step of a small layer takes besides its kernels: the same kernel calls alone, by turns with the step.

import { attend, createAttention, createCache } from "../../src/entries/core.ts";
import { type Build, type BuildName, loadBuild } from "../lib/builds.ts";
import { recordCalls } from "../lib/kernel-calls.ts";
import { compare, type Load } from "../lib/measure.ts";
import { type Column, part } from "../lib/part.ts";
import { type LayerShape, tinyLayer } from "../lib/shapes.ts";
import { configOf, weightsOf } from "./layer.ts";
import { inputRows } from "./oracle.ts";

interface HostRow {
  readonly layer: string;
  readonly build: BuildName;
  /** Microseconds of a step, of its kernels, and their difference. */
  readonly us: number;
  readonly kernels: number;
  readonly host: number;
}

const columns: readonly Column<HostRow>[] = [
  ["one token", 32, (row) => row.layer],
  ["build", 7, (row) => row.build],
  ["us", 6, ({ us }) => us.toFixed(2)],
  ["kernels", 7, ({ kernels }) => kernels.toFixed(2)],
  ["host", 6, ({ host }) => host.toFixed(2)],
];

const PAST = 100;
/** Tokens after which the cache is truncated. */
const STEPS = 64;

const shapes: readonly LayerShape[] = [
  tinyLayer,
  { ...tinyLayer, model: "a layer of 64 with RoPE", ropeTheta: 10_000 },
  { ...tinyLayer, model: "a layer of 256", dModel: 256 },
];

function loadsOf(build: Build, shape: LayerShape): { loads: Load[]; release: () => void } {
  const attention = createAttention(build.host, configOf(shape), weightsOf(shape));
  const cache = createCache(attention, { maxSeqLen: PAST + STEPS });
  const x = inputRows(PAST + 1, shape.dModel);
  attend(attention, x.subarray(0, PAST * shape.dModel), { cache });
  const last = x.subarray(PAST * shape.dModel);
  const out = new Float32Array(shape.dModel);
  const run = () => {
    if (cache.length === PAST + STEPS) cache.truncate(PAST);
    attend(attention, last, { cache, out });
  };
  run();
  // Those of a token in the middle.
  cache.truncate(PAST);
  for (let i = 0; i < STEPS / 2; i++) run();
  const kernels = recordCalls(build, run, () => true);
  const release = () => {
    cache.release();
    attention.release();
  };
  return { loads: [run, kernels].map((each) => ({ work: 1, run: each })), release };
}

export const host = part("host", columns, async function* rows({ effort, builds, wants }): AsyncGenerator<HostRow> {
  for (const shape of shapes)
    for (const name of builds) {
      if (!wants(`${shape.model} ${name}`)) continue;
      const build = await loadBuild(name);
      const { loads, release } = loadsOf(build, shape);
      const [step, alone] = await compare(loads, effort);
      const [us, kernels] = [1e6 / step!.rate, 1e6 / alone!.rate];
      yield { layer: shape.model, build: name, us, kernels, host: us - kernels };
      release();
      build.host.release();
    }
});
