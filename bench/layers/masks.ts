// What masks and rows of padding cost: calls with them beside calls without, in one process and by turns.

import {
  attend,
  attendMany,
  createAttention,
  type Kernels,
  type SdpaOptions,
  scaledDotProductAttention,
} from "../../src/entries/core.ts";
import { type BuildName, loadBuild } from "../lib/builds.ts";
import { compare, type Load } from "../lib/measure.ts";
import { type Column, type Context, part } from "../lib/part.ts";
import { randomFloats } from "../lib/random.ts";
import { gpt2Layer } from "../lib/shapes.ts";
import { configOf, weightsOf } from "./layer.ts";
import { inputRows } from "./oracle.ts";

export interface CostRow {
  readonly work: string;
  readonly build: BuildName;
  readonly ms: number;
  /** Time relative to that of the work without masks or padding: median, and the range of the middle 80 %. */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
}

export const columns = (beside: string): readonly Column<CostRow>[] => [
  ["work", 46, (row) => row.work],
  ["build", 7, (row) => row.build],
  ["ms", 7, ({ ms }) => ms.toPrecision(3)],
  [beside, beside.length, (row) => row.ratio.toFixed(3)],
  ["spread", 11, (row) => `${row.low.toFixed(3)}-${row.high.toFixed(3)}`],
];

/** Times works relative to the first of them. */
async function* costs(
  { effort, wants }: Context,
  build: BuildName,
  [first, ...others]: readonly (Load & { readonly name: string })[],
): AsyncGenerator<CostRow> {
  const wanted = others.filter(({ name }) => wants(`${name} ${build}`));
  if (wanted.length === 0) return;
  const results = await compare([first!, ...wanted], effort);
  for (const [i, { name, work }] of wanted.entries()) {
    const { rate, ratio, low, high } = results[i + 1]!;
    yield { work: name, build, ms: (1000 * work) / rate, ratio: 1 / ratio, low: 1 / high, high: 1 / low };
  }
}

export function expectBits(what: string, got: Float32Array, want: Float32Array): void {
  if (got.some((value, i) => !Object.is(value, want[i]))) throw new Error(`bench: other bits with ${what}`);
}

const [HEADS, TOKENS, DIM] = [12, 512, 64];

/** Masks of every shape that has a path of its own: with the values of `bias`, or with `kept` of ten keys kept. */
function masksOf(bias: (length: number) => Float32Array, kept: number): Readonly<Record<string, SdpaOptions>> {
  const random = randomFloats(TOKENS * TOKENS, 9, 1);
  const bits = (length: number) => Uint8Array.from({ length }, (_, i) => Number(random[i]! < kept / 5 - 1));
  const square = [TOKENS, TOKENS];
  return {
    "bias [1, H, T, S]": { bias: { data: bias(HEADS * TOKENS * TOKENS), shape: [1, HEADS, ...square] } },
    "bias [T, S]": { bias: { data: bias(TOKENS * TOKENS), shape: square } },
    "keep [T, S]": { keep: { data: bits(TOKENS * TOKENS), shape: square } },
    "drop [T, S]": { drop: { data: bits(TOKENS * TOKENS).map((bit) => 1 - bit), shape: square } },
    "keep [1, 1, 1, S]": { keep: { data: bits(TOKENS), shape: [1, 1, 1, TOKENS] } },
  };
}

function sdpaLoads(kernels: Kernels, rules: SdpaOptions, name: string) {
  const tensor = (seed: number) => ({
    data: randomFloats(HEADS * TOKENS * DIM, seed),
    shape: [1, HEADS, TOKENS, DIM],
  });
  const [q, k, v] = [tensor(1), tensor(2), tensor(3)];
  const run = (options: SdpaOptions) => scaledDotProductAttention(kernels, q, k, v, { ...rules, ...options });
  const plain = run({}).output.data;
  const neutral = masksOf((length) => new Float32Array(length), 11);
  for (const [mask, options] of Object.entries(neutral)) expectBits(mask, run(options).output.data, plain);
  const works = { ...masksOf((length) => randomFloats(length, 4), 8), "softcap 30": { softcap: 30 } };
  return [
    { name: "plain", work: 1, run: () => run({}) },
    ...Object.entries(works).map(([mask, options]) => ({ name: name + mask, work: 1, run: () => run(options) })),
  ];
}

/** scaledDotProductAttention with masks, relative to the same without. */
export const masks = part("masks", columns("time/plain"), async function* rows(context): AsyncGenerator<CostRow> {
  for (const name of context.builds) {
    const { host } = await loadBuild(name);
    yield* costs(context, name, sdpaLoads(host, {}, `T=${TOKENS} `));
    if (!context.quick) yield* costs(context, name, sdpaLoads(host, { causal: true }, `T=${TOKENS} causal, `));
    host.release();
  }
});

const LENGTHS = [777, 300, 100, 17];

/** A batch with padding, and attendMany, relative to its sequences one by one. */
function raggedLoads(kernels: Kernels, causal: boolean) {
  const { dModel } = gpt2Layer;
  const attention = createAttention(kernels, { ...configOf(gpt2Layer), causal }, weightsOf(gpt2Layer));
  const most = Math.max(...LENGTHS) * dModel;
  const batch = LENGTHS.length;
  const x = inputRows((batch * most) / dModel, dModel);
  const out = new Float32Array(x.length);
  const calls = LENGTHS.map((length, b) => ({
    x: x.subarray(b * most, b * most + length * dModel),
    out: new Float32Array(length * dModel),
  }));
  const alone = () => calls.forEach(({ x, out }) => void attend(attention, x, { out }));
  const ragged = () => void attend(attention, x, { batch, kvLengths: LENGTHS, out });
  const many = () => void attendMany(attention, calls);
  alone();
  ragged();
  for (const [b, { out: want }] of calls.entries())
    expectBits("a ragged batch", out.subarray(b * most, b * most + want.length), want);
  const rules = causal ? "causal" : "not causal";
  return [
    { name: "alone", work: 1, run: alone },
    { name: `kvLengths [${LENGTHS}], ${rules}`, work: 1, run: ragged },
    { name: `attendMany of the four, ${rules}`, work: 1, run: many },
  ];
}

/** attendMany of many single tokens without caches; a unit of work is a thousand calls. */
function manyLoads(kernels: Kernels) {
  const dModel = 64;
  const matrix = (seed: number) => ({ data: randomFloats(dModel * dModel, seed), shape: [dModel, dModel] });
  const weights = { wq: matrix(1), wk: matrix(2), wv: matrix(3), wo: matrix(4) };
  const attention = createAttention(kernels, { dModel, numHeads: 4, causal: true }, weights);
  return [10_000, 40_000].map((count) => {
    const calls = Array.from({ length: count }, () => ({ x: new Float32Array(dModel).fill(1) }));
    const name = `attendMany of ${count} tokens, to 10000`;
    return { name, work: count / 10_000, run: () => void attendMany(attention, calls) };
  });
}

/** Sequences of different lengths together, relative to one by one. */
export const ragged = part("ragged", columns("time/alone"), async function* rows(context): AsyncGenerator<CostRow> {
  for (const name of context.builds) {
    const { host } = await loadBuild(name);
    yield* costs(context, name, raggedLoads(host, true));
    if (!context.quick) {
      yield* costs(context, name, raggedLoads(host, false));
      yield* costs(context, name, manyLoads(host));
    }
    host.release();
  }
});
