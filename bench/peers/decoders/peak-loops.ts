// The loops that a decoder is compared with, in its own process or page and by turns with it.

import { median } from "../../../src/tools/diagnostics/timing.ts";
import type { PeakLoops } from "../../lib/peak-loops.ts";
import { processorMs } from "../../lib/processor-time.ts";

/** Bytes that are read, in no processor's cache. */
const READ_BYTES = 2 ** 28;
const FLOPS_PER_ROUND = 96;
const ROUNDS = 2_000_000;
/** Calls after which the engine compiles the loops with its best compiler, on another thread. */
const WARM_CALLS = 20;
const PAGE = 2 ** 16;

export interface MachineSpeed {
  /** GB/s of reading, and GFLOP/s of multiply-adds, now. */
  reading(): number;
  arithmetic(): number;
  /** Bytes of memory, and milliseconds, that this took. */
  readonly bytes: number;
  readonly ms: number;
}

export async function startLoops(wasm: BufferSource): Promise<MachineSpeed> {
  const start = performance.now();
  const memory = new WebAssembly.Memory({ initial: READ_BYTES / PAGE + 1 });
  const { instance } = await WebAssembly.instantiate(wasm, { env: { memory } });
  const loops = instance.exports as unknown as PeakLoops;
  // Pages that were never written are all the same one.
  new Uint8Array(memory.buffer).fill(1);
  const rate = (work: number, run: () => unknown) => {
    const begin = processorMs();
    run();
    return work / (processorMs() - begin) / 1e6;
  };
  const streams = [loops.stream_1, loops.stream_4];
  for (let i = 0; i < WARM_CALLS; i++) {
    loops.fma_peak(ROUNDS / 100, 0.5, 1);
    for (const stream of streams) stream(PAGE, READ_BYTES / 256);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  const rates = streams.map((stream) => median([1, 2, 3].map(() => rate(READ_BYTES, () => stream(PAGE, READ_BYTES)))));
  const stream = streams[rates[0]! > rates[1]! ? 0 : 1]!;
  return {
    reading: () => rate(READ_BYTES, () => stream(PAGE, READ_BYTES)),
    arithmetic: () => rate(ROUNDS * FLOPS_PER_ROUND, () => loops.fma_peak(ROUNDS, 0.5, 1)),
    bytes: memory.buffer.byteLength,
    ms: performance.now() - start,
  };
}
