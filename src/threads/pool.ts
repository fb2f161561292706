import { HeadwiseError } from "../util/errors.ts";
import type { KernelTable } from "../wasm/abi.ts";
import type { StartedInstance } from "../wasm/instantiate.ts";
import {
  CONTROL_BYTES,
  type Control,
  createLooking,
  EPOCH,
  KERNEL_NAMES,
  LEFT,
  NEXT,
  numbered,
  RECORD,
  runTiles,
  STOPPED,
  shapeOf,
  takeFailure,
  viewControl,
} from "./work-queue.ts";

/**
 * Microseconds that a worker looks for the next job, and that the main thread looks for the end of one, before they sleep.
 * Waking up takes tens of microseconds; what a call does between two kernels, up to some hundred; the last tiles, ten.
 */
const LOOK_FOR_JOB = 200;
const LOOK_FOR_END = 50;

/** A worker that can be ended. */
interface PoolWorker {
  terminate(): void;
}

/** The threads of an engine, the calling one among them: runs a list of tiles on all of them and returns when all are done. */
export class ThreadPool {
  readonly #shared: StartedInstance;
  readonly #control: Control;
  readonly #kernels: ReturnType<typeof numbered>;
  readonly #workers: Set<PoolWorker> = new Set();
  readonly #mayWait: boolean;
  readonly #patienceMs: number;
  readonly #lookForEnd: ReturnType<typeof createLooking>;
  /** Address of the control block. */
  readonly at: number;
  /** Microseconds that workers look for a job before they sleep. */
  readonly lookFor: number;
  /** One more than the highest number of a thread. */
  #threads = 1;
  #lost = 0;
  #own = { at: 0, bytes: 0 };

  /**
   * @param crowded More threads than processors: who looks for work then keeps others from working.
   * @param patienceMs Milliseconds without a finished tile after which workers are given up.
   */
  constructor(where: string, shared: StartedInstance, crowded: boolean, patienceMs: number) {
    this.#shared = shared;
    this.at = shared.memory.allocate(where, CONTROL_BYTES);
    this.lookFor = crowded ? 0 : LOOK_FOR_JOB;
    this.#control = viewControl(shared.wasmMemory.buffer, this.at);
    this.#control.words.fill(0);
    this.#kernels = numbered(shared.kernels);
    this.#mayWait = mayWait(this.#control.words);
    this.#lookForEnd = createLooking(crowded ? 0 : LOOK_FOR_END);
    this.#patienceMs = patienceMs;
  }

  /** Threads that work now. */
  get size(): number {
    return 1 + this.#workers.size;
  }

  /** Workers that were lost since the start. */
  get lost(): number {
    return this.#lost;
  }

  /** Counts worker number `thread` in, which is ready. */
  join(worker: PoolWorker, thread: number): void {
    this.#workers.add(worker);
    this.#threads = Math.max(this.#threads, thread + 1);
  }

  /** Counts a worker out that ended by itself. */
  leave(worker: PoolWorker): void {
    if (this.#workers.delete(worker)) this.#lost++;
  }

  /** Ends all workers. */
  release(): void {
    const { words } = this.#control;
    Atomics.store(words, STOPPED, 1);
    Atomics.add(words, EPOCH, 1);
    Atomics.notify(words, EPOCH);
    for (const worker of this.#workers) worker.terminate();
    this.#workers.clear();
  }

  /** `bytes`, a multiple of 64, for each thread, one behind the other, content unspecified; undefined when there are none. */
  own(bytes: number): number | undefined {
    const all = bytes * this.#threads;
    const { memory } = this.#shared;
    if (all > this.#own.bytes) {
      try {
        const at = memory.allocate("kernels", all);
        if (this.#own.bytes > 0) memory.free(this.#own.at);
        this.#own = { at, bytes: all };
      } catch {
        return undefined;
      }
    }
    return this.#own.at;
  }

  /** Where tile i of the next job has its shape, if it needs one of its own. */
  shapeOf(i: number): number {
    return shapeOf(this.at, i);
  }

  /**
   * Runs a kernel on each tile, its arguments, from the first to the last as threads become free. Scratch moves on by `own`
   * bytes with each thread. Throws what a tile throws on this thread, KERNEL_FAILED for one on another, and
   * WORKER_LOST when a worker does not finish.
   */
  run(kernel: keyof KernelTable, own: number, tiles: readonly (readonly number[])[]): void {
    const { words, records } = this.#control;
    const number = KERNEL_NAMES.indexOf(kernel);
    for (const [i, tile] of tiles.entries()) {
      const at = (tiles.length - 1 - i) * RECORD;
      records[at] = number;
      records[at + 1] = own;
      records.set(tile, at + 2);
    }
    Atomics.store(words, LEFT, tiles.length);
    Atomics.store(words, NEXT, tiles.length);
    Atomics.add(words, EPOCH, 1);
    Atomics.notify(words, EPOCH, tiles.length - 1);
    let failure: { readonly error: unknown } | undefined;
    runTiles(this.#control, this.#kernels, 0, (_, error) => {
      failure ??= { error };
    });
    this.#join();
    const theirs = takeFailure(this.#control);
    if (failure) throw failure.error;
    if (!theirs) return;
    const text = `${theirs.kernel}: failed in a worker thread (${theirs.text}); this call gave no result`;
    throw new HeadwiseError("KERNEL_FAILED", text);
  }

  /** Returns when no tile runs any more. */
  #join(): void {
    const { words } = this.#control;
    const done = () => Atomics.load(words, LEFT) === 0;
    if (this.#lookForEnd(done)) return;
    let left = -1;
    let since = 0;
    for (let now = Atomics.load(words, LEFT); now > 0; now = Atomics.load(words, LEFT)) {
      if (now !== left) {
        left = now;
        since = performance.now();
      } else if (performance.now() - since > this.#patienceMs) this.#giveUp();
      if (this.#mayWait) Atomics.wait(words, LEFT, now, this.#patienceMs / 10);
    }
  }

  /** A worker that is terminated finishes nothing more, so from here on this thread is alone. */
  #giveUp(): never {
    this.#lost += this.#workers.size;
    this.release();
    throw new HeadwiseError(
      "WORKER_LOST",
      "kernels: a worker thread stopped answering; this call gave no result and the cache is as it was; the engine goes on with one thread",
    );
  }
}

/** Whether this thread may sleep: a page's own may not. */
function mayWait(words: Int32Array): boolean {
  try {
    return Atomics.wait(words, LEFT, -1, 0) === "not-equal";
  } catch {
    return false;
  }
}
