// Engines with one thread, with two, and with "auto", in one process and by turns.

import type { AttendOptions, Kernels } from "../../src/entries/core.ts";
import { type Comparison, compare, type Load } from "../lib/measure.ts";
import { type Column, part } from "../lib/part.ts";
import { gpt2Layer, type LayerWork, llamaLayer, tinyLayer } from "../lib/shapes.ts";
import { twoThreadPeaks } from "../peaks/two-threads.ts";
import { configOf, weightsOf } from "./layer.ts";
import { inputRows } from "./oracle.ts";

type Entry = typeof import("../../src/entries/threads.ts");

/** The option `threads` of each engine, in the order of the columns. */
const requests = [1, 2, "auto"] as const;
const PAST = 1024;

interface ThreadsRow {
  readonly work: string;
  /** Milliseconds on one thread. */
  readonly ms: number;
  /** The speed of two threads over that of one: median, and the range of the middle 80 %. */
  readonly two: number;
  readonly low: number;
  readonly high: number;
  /** The same of "auto", and the number of its threads. */
  readonly auto: number | null;
  readonly autoThreads: number | null;
}

const columns: readonly Column<ThreadsRow>[] = [
  ["work", 32, (row) => row.work],
  ["ms on one", 9, ({ ms }) => (ms < 100 ? ms.toPrecision(3) : ms.toFixed(0))],
  ["two", 5, (row) => row.two.toFixed(2)],
  ["spread", 9, (row) => `${row.low.toFixed(2)}-${row.high.toFixed(2)}`],
  ["auto", 5, ({ auto }) => auto?.toFixed(2) ?? ""],
  ["threads", 7, ({ autoThreads }) => autoThreads?.toString() ?? ""],
];

const works: readonly LayerWork[] = [
  { shape: tinyLayer, tokens: 1 },
  { shape: tinyLayer, tokens: 16 },
  { shape: gpt2Layer, tokens: 1 },
  { shape: gpt2Layer, tokens: 16 },
  { shape: gpt2Layer, tokens: 128, quick: true },
  { shape: gpt2Layer, tokens: 512 },
  { shape: gpt2Layer, tokens: 2048 },
  { shape: llamaLayer, tokens: 128 },
  { shape: llamaLayer, tokens: 512 },
  { shape: llamaLayer, tokens: 1, past: PAST },
];

const nameOf = ({ shape, tokens, past }: LayerWork) =>
  `${shape.model} ${past === undefined ? `T=${tokens}` : `one token past ${past}`}`;

/** The work on one engine, and its output after a run. */
function loadOf(entry: Entry, kernels: Kernels, { shape, tokens, past = 0 }: LayerWork): Load & { out: Float32Array } {
  const attention = entry.createAttention(kernels, configOf(shape), weightsOf(shape));
  const x = inputRows(past + tokens, shape.dModel);
  const out = new Float32Array(tokens * shape.dModel);
  const options: AttendOptions = { out };
  const cache = past > 0 ? entry.createCache(attention, { maxSeqLen: past + tokens }) : undefined;
  if (cache) entry.attend(attention, x.subarray(0, past * shape.dModel), { cache });
  const last = x.subarray(past * shape.dModel);
  const run = () => {
    cache?.truncate(past);
    entry.attend(attention, last, { ...options, cache });
  };
  return { out, work: 1, run };
}

function rowOf(work: string, [one, two, auto]: readonly Comparison[], autoThreads: number | null): ThreadsRow {
  const { ratio, low, high } = two!;
  return { work, ms: 1000 / one!.rate, two: ratio, low, high, auto: auto?.ratio ?? null, autoThreads };
}

export const threads = part("threads", columns, async function* rows({ quick, effort, wants }) {
  const url = new URL("../../dist/threads.js", import.meta.url);
  const peaksName = "two loops of fma";
  if (wants(peaksName)) {
    const { alone, together, release } = await twoThreadPeaks();
    const [one, two] = await compare([alone, together], effort);
    yield rowOf(peaksName, [{ ...one!, rate: one!.rate / alone.work }, two!], null);
    release();
  }
  const entry: Entry = await import(url.href);
  for (const work of works) {
    if ((quick && !work.quick) || !wants(nameOf(work))) continue;
    const engines = await Promise.all(requests.map((threads) => entry.loadKernels({ threads })));
    for (const [i, { threads }] of engines.entries())
      if (threads.used !== requests[i] && requests[i] !== "auto")
        throw new Error(`bench: ${requests[i]} threads were requested and ${threads.used} run: ${threads.reason}`);
    const loads = engines.map((kernels) => loadOf(entry, kernels, work));
    for (const { run } of loads) run();
    const [first, ...others] = loads.map(({ out }) => new Int32Array(out.buffer));
    if (others.some((bits) => bits.some((bit, i) => bit !== first![i])))
      throw new Error(`bench: the bits of ${nameOf(work)} depend on the threads`);
    yield rowOf(nameOf(work), await compare(loads, effort), engines.at(-1)!.threads.used);
    for (const kernels of engines) kernels.release();
  }
});
