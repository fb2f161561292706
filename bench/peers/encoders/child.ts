// The code of a process of its own, which gets a job as JSON, and prints what it measured.

import { readFileSync } from "node:fs";
import { median } from "../../../src/tools/diagnostics/timing.ts";
import type { PeakLoops } from "../../lib/peak-loops.ts";
import { processorMs } from "../../lib/processor-time.ts";
import { BATCHES, type Job, LENGTHS, type LoadEmbedder, textsOf } from "./embedder.ts";

const ROUNDS = 2_000_000;
/** Of each of a loop's rounds: twelve multiply-adds, or byte products, of vectors. */
const FLOATS = 12 * 4;
const BYTES = 12 * 16;
/** Calls after which the engine compiles the loops with its best compiler, on another thread. */
const WARM_CALLS = 20;
/** Milliseconds of runs before any is timed, in which the engine compiles a peer's wasm with its best compiler. */
const WARM_MS = 2000;
/** The shortest time that is taken. */
const SAMPLE_MS = 40;

export interface Measured {
  /** Texts a second of processor time, and texts for each multiply-add that wasm makes at most in that time. */
  readonly rate: number;
  readonly share: number;
}

export interface Report {
  /** From the start of the process to the first vector. */
  readonly startMs: number;
  /** Products of bytes in the time of a multiply-add of floats. */
  readonly bytes: number;
  readonly cells: readonly Measured[];
  readonly vectors: readonly (readonly number[])[];
}

export async function runChild(load: LoadEmbedder): Promise<void> {
  const job = JSON.parse(process.argv[2] as string) as Job;
  const model = await load(job);
  await model.embed(textsOf(job.task, LENGTHS[0]!).slice(0, 1));
  const startMs = performance.now();

  const vectors: number[][] = [];
  for (const [i, tokens] of LENGTHS.entries())
    for (const vector of await model.embed(textsOf(job.task, tokens).slice(0, i === 0 ? BATCHES[1] : 1)))
      vectors.push([...vector]);

  const loops = await startLoops(job.loops);
  const warm = textsOf(job.task, LENGTHS[0]!).slice(0, BATCHES[1]);
  for (const end = performance.now() + WARM_MS; performance.now() < end; ) await model.embed(warm);
  const cells: Measured[] = [];
  for (const { tokens, texts: size } of job.cells) {
    const all = textsOf(job.task, tokens);
    const samples: Measured[] = [];
    for (const end = processorMs() + job.ms; processorMs() < end || samples.length === 0; ) {
      const before = loops.floats();
      const start = processorMs();
      let count = 0;
      for (; count === 0 || processorMs() - start < SAMPLE_MS; count += size)
        await model.embed(all.slice(count % all.length, (count % all.length) + size));
      const rate = (1000 * count) / (processorMs() - start);
      samples.push({ rate, share: (2 * rate) / (before + loops.floats()) });
    }
    const of = (part: keyof Measured) => median(samples.map((each) => each[part]));
    cells.push({ rate: of("rate"), share: of("share") });
  }
  const report: Report = { startMs, bytes: loops.bytes() / loops.floats(), cells, vectors };
  process.stdout.write(JSON.stringify(report), () => process.exit()); // some leave handles open
}

/** What wasm does at most, a second, now: multiply-adds of floats, and products of bytes. */
async function startLoops(path: string): Promise<{ floats(): number; bytes(): number }> {
  const env = { memory: new WebAssembly.Memory({ initial: 1 }) };
  const { instance } = await WebAssembly.instantiate(readFileSync(path), { env });
  const loops = instance.exports as unknown as PeakLoops;
  const rate = (work: number, run: () => unknown) => {
    const start = processorMs();
    run();
    return (1000 * ROUNDS * work) / (processorMs() - start);
  };
  const floats = () => rate(FLOATS, () => loops.fma_peak(ROUNDS, 0.5, 1));
  const bytes = () => rate(BYTES, () => loops.dot_peak(ROUNDS, 1, 2));
  for (let i = 0; i < WARM_CALLS; i++) {
    floats();
    bytes();
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  return { floats, bytes };
}
