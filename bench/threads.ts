// One engine of one thread, one of two and one of as many as it chooses, in turns in one process.

import type { AttendOptions, Kernels } from "../src/entries/core.ts";
import { configOf, weightsOf } from "./block.ts";
import { type Comparison, compare, type Load } from "./measure.ts";
import { inputRows } from "./oracle.ts";
import { type Column, part } from "./part.ts";
import { type BlockShape, gpt2Block, llamaBlock, tinyBlock } from "./shapes.ts";
import { twoPeaks } from "./twice.ts";

type Door = typeof import("../src/entries/threads.ts");

/** What the engines are asked for, in the order of the columns. */
const requests = [1, 2, "auto"] as const;
const PAST = 1024;

interface ThreadsRow {
  readonly work: string;
  /** Milliseconds on one thread. */
  readonly ms: number;
  /** How many times as fast two threads are: median, and the range of the middle 80 %. */
  readonly two: number;
  readonly low: number;
  readonly high: number;
  /** The same of "auto", and how many threads those are. */
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

interface Work {
  readonly shape: BlockShape;
  readonly tokens: number;
  /** Tokens in the cache; without it, a prompt. */
  readonly past?: number;
  readonly quick?: boolean;
}

const works: readonly Work[] = [
  { shape: tinyBlock, tokens: 1 },
  { shape: tinyBlock, tokens: 16 },
  { shape: gpt2Block, tokens: 1 },
  { shape: gpt2Block, tokens: 16 },
  { shape: gpt2Block, tokens: 128, quick: true },
  { shape: gpt2Block, tokens: 512 },
  { shape: gpt2Block, tokens: 2048 },
  { shape: llamaBlock, tokens: 128 },
  { shape: llamaBlock, tokens: 512 },
  { shape: llamaBlock, tokens: 1, past: PAST },
];

const nameOf = ({ shape, tokens, past }: Work) =>
  `${shape.model} ${past === undefined ? `T=${tokens}` : `one token past ${past}`}`;

/** The work on one engine, and its output once it has run. */
function loadOf(door: Door, kernels: Kernels, { shape, tokens, past = 0 }: Work): Load & { out: Float32Array } {
  const attention = door.createAttention(kernels, configOf(shape), weightsOf(shape));
  const x = inputRows(past + tokens, shape.dModel);
  const out = new Float32Array(tokens * shape.dModel);
  const options: AttendOptions = { out };
  const cache = past > 0 ? door.createCache(attention, { maxSeqLen: past + tokens }) : undefined;
  if (cache) door.attend(attention, x.subarray(0, past * shape.dModel), { cache });
  const last = x.subarray(past * shape.dModel);
  const run = () => {
    cache?.truncate(past);
    door.attend(attention, last, { ...options, cache });
  };
  return { out, work: 1, run };
}

function rowOf(work: string, [one, two, auto]: readonly Comparison[], autoThreads: number | null): ThreadsRow {
  const { ratio, low, high } = two!;
  return { work, ms: 1000 / one!.rate, two: ratio, low, high, auto: auto?.ratio ?? null, autoThreads };
}

export const threads = part("threads", columns, async function* rows({ quick, effort, wants }) {
  const url = new URL("../dist/threads.js", import.meta.url);
  const peaksName = "two loops of fma";
  if (wants(peaksName)) {
    const { alone, together, release } = await twoPeaks();
    const [one, two] = await compare([alone, together], effort);
    yield rowOf(peaksName, [{ ...one!, rate: one!.rate / alone.work }, two!], null);
    release();
  }
  const door: Door = await import(url.href);
  for (const work of works) {
    if ((quick && !work.quick) || !wants(nameOf(work))) continue;
    const engines = await Promise.all(requests.map((threads) => door.loadKernels({ threads })));
    for (const [i, { threads }] of engines.entries())
      if (threads.used !== requests[i] && requests[i] !== "auto")
        throw new Error(`bench: ${requests[i]} threads were asked for and ${threads.used} run: ${threads.reason}`);
    const loads = engines.map((kernels) => loadOf(door, kernels, work));
    for (const { run } of loads) run();
    const [first, ...others] = loads.map(({ out }) => new Int32Array(out.buffer));
    if (others.some((bits) => bits.some((bit, i) => bit !== first![i])))
      throw new Error(`bench: the bits of ${nameOf(work)} depend on the threads`);
    yield rowOf(nameOf(work), await compare(loads, effort), engines.at(-1)!.threads.used);
    for (const kernels of engines) kernels.release();
  }
});
