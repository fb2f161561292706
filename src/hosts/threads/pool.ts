// The thread pool of an engine, and the queue in shared memory by which threads share work.

import { scriptName } from "../../base/platform/workers.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import { KERNEL_NAMES, type KernelTable, LinearShape, MOST_ARGUMENTS, SCRATCH_ARGUMENT } from "../../wasm/abi.ts";
import type { StartedInstance } from "../../wasm/modules.ts";

// How the threads of an engine share work: a control block in their shared memory, of words that only Atomics touch, of
// records of what is to be done, and of shapes that these records point to.
//
// A job is a list of tiles, each a call of a kernel on a part of a range. The main thread writes one record a tile, then
// stores `left`, then `next`, then raises `epoch`. Whoever finds next > 0 takes tile next - 1 by one atomic subtraction;
// when all tiles are taken, `left` counts those that still run. The orders in which this can happen:
//
// - A worker subtracts before `next` is stored: it finds 0 or less and takes nothing, and the store wipes out what it
//   subtracted. After: it takes a tile of the new job, whose records and `left` were stored before `next`. It does not
//   matter which job it woke for. No tile is taken twice, because subtractions are atomic and a job stores `next` once.
// - A record is written while a worker reads it: only the holder of a tile reads its record, before it counts `left`
//   down, and a new job is written only after `left` has become 0.
// - A worker goes to sleep as a job begins: it read `epoch` before it looked at `next`. If it then missed the new
//   `next`, epoch is raised after its reading, and Atomics.wait on the value it read returns at once.
// - The main thread goes to sleep as the last tile ends: it waits on the value of `left` it has just seen. If that was
//   counted down meanwhile the wait returns at once, and who counts it down to 0 wakes it.
// - What a tile wrote is seen by the main thread, because it reads the `left` that the worker stored after it.
//
// `next` falls by one a worker beyond 0 at each job's end, and starts anew with the next job.

/** The words, 64 bytes apart so that no two share a cache line. */
const WORD = 16;
export const EPOCH = 0;
export const NEXT: number = WORD;
const LEFT: number = 2 * WORD;
/** 1 when the workers are to end. */
const STOPPED: number = 3 * WORD;
/** 1 + the number of a kernel that failed in a worker; behind it the length of the error's text, and the text. */
const FAILED: number = 4 * WORD;
const TEXT = FAILED + 2;
const TEXT_LENGTH = 3 * WORD - 2;
const WORDS = 8 * WORD;

/**
 * Numbers of a record: the kernel, bytes that its scratch moves on with each thread (no two threads may share it), and its
 * arguments. Doubles hold addresses and floats exactly.
 */
const RECORD: number = 2 + MOST_ARGUMENTS;
const ARGUMENTS = 2;

/** The most tiles of a job. */
export const TILES = 256;

const RECORDS_AT = 4 * WORDS;
const SHAPES_AT: number = RECORDS_AT + 8 * RECORD * TILES;

/** Where a tile of a projection has its shape. It may be written while no job runs. */
function shapeOf(control: number, tile: number): number {
  return control + SHAPES_AT + LinearShape.bytes * tile;
}

/** Views of a control block. Growth leaves views of shared memory valid, so they may be kept. */
interface Control {
  readonly words: Int32Array;
  readonly records: Float64Array;
}

/** The script of the workers. One of another version may have other numbers of kernels and another control block. */
export const SCRIPT: string = scriptName("headwise/worker");

/** What a worker gets when it starts. */
export interface WorkerStart {
  /** The script that it must be. */
  readonly script: string;
  readonly modules: readonly WebAssembly.Module[];
  readonly memory: WebAssembly.Memory;
  /** Address of the control block. */
  readonly control: number;
  /** 1 and up: 0 is the main thread. */
  readonly thread: number;
  /** Microseconds to look for the next job before sleeping. */
  readonly lookFor: number;
}

type AnyKernel = (...args: number[]) => void;

/** The kernels in the order of their numbers, undefined for those of modules that were not loaded. */
function numbered(table: KernelTable): readonly AnyKernel[] {
  return KERNEL_NAMES.map((name) => table[name] as AnyKernel);
}

function viewControl(buffer: ArrayBufferLike, at: number): Control {
  return {
    words: new Int32Array(buffer, at, WORDS),
    records: new Float64Array(buffer, at + RECORDS_AT, RECORD * TILES),
  };
}

/** Takes tiles and runs them until all are taken. `fail` is called for those that throw; they count as done. */
function runTiles(
  { words, records }: Control,
  kernels: readonly AnyKernel[],
  thread: number,
  fail: (kernel: number, error: unknown) => void,
): void {
  for (let tile = Atomics.sub(words, NEXT, 1); tile > 0; tile = Atomics.sub(words, NEXT, 1)) {
    const at = (tile - 1) * RECORD;
    const kernel = records[at]!;
    const a = at + ARGUMENTS;
    const scratch = records[a + SCRATCH_ARGUMENT]! + thread * records[at + 1]!;
    try {
      // Always MOST_ARGUMENTS: a kernel ignores arguments that it does not have.
      kernels[kernel]!(
        records[a]!,
        records[a + 1]!,
        records[a + 2]!,
        scratch,
        records[a + 4]!,
        records[a + 5]!,
        records[a + 6]!,
        records[a + 7]!,
      );
    } catch (error) {
      fail(kernel, error);
    }
    if (Atomics.sub(words, LEFT, 1) === 1) Atomics.notify(words, LEFT);
  }
}

/** Records that a kernel failed; of several failures the first stays. */
function leaveFailure({ words }: Control, kernel: number, error: unknown): void {
  if (Atomics.compareExchange(words, FAILED, 0, kernel + 1) !== 0) return;
  const text = String(error).slice(0, TEXT_LENGTH);
  for (let i = 0; i < text.length; i++) words[TEXT + i] = text.charCodeAt(i);
  words[FAILED + 1] = text.length;
}

/** The failure that a worker left in the job that just ended. */
function takeFailure({ words }: Control): { readonly kernel: string; readonly text: string } | undefined {
  const failed = Atomics.exchange(words, FAILED, 0);
  if (failed === 0) return undefined;
  const text = String.fromCharCode(...words.subarray(TEXT, TEXT + words[FAILED + 1]!));
  return { kernel: KERNEL_NAMES[failed - 1] as string, text };
}

/** Tells the processor that this thread only looks again and again, where the engine can. */
const pause: () => void = (Atomics as { pause?: () => void }).pause ?? (() => {});

/** Looks until `done` or until some microseconds have passed. Returns whether it is done. */
function spin(microseconds: number, done: () => boolean): boolean {
  const end = performance.now() + microseconds / 1000;
  do {
    // Clocks cost more than looking.
    for (let i = 0; i < 32; i++) {
      if (done()) return true;
      pause();
    }
  } while (performance.now() < end);
  return false;
}

/**
 * A way to look for something before sleeping, for up to `most` microseconds: shorter each time that it was in vain, since
 * a thread that looks may be in the way of the very thread it waits for, and longer again each time that it was not.
 */
function createLooking(most: number): (done: () => boolean) => boolean {
  let microseconds = most;
  return (done) => {
    const found = spin(microseconds, done);
    microseconds = found ? Math.min(most, 2 * microseconds) : Math.max(most / 16, microseconds / 2);
    return found;
  };
}

/**
 * Microseconds that a worker looks for the next job, and that the main thread looks for the end of one, before they sleep.
 * Waking up takes tens of microseconds; what a call does between two kernels, up to some hundred; the last tiles, ten.
 */
const LOOK_FOR_JOB = 200;
const LOOK_FOR_END = 50;

/** What a worker does: runs tiles of one job after the other until the kernels are released. */
export function work(table: KernelTable, { memory, control: at, thread, lookFor }: WorkerStart): void {
  const kernels = numbered(table);
  const control = viewControl(memory.buffer, at);
  const { words } = control;
  const look = createLooking(lookFor);
  while (Atomics.load(words, STOPPED) === 0) {
    const epoch = Atomics.load(words, EPOCH);
    runTiles(control, kernels, thread, (kernel, error) => leaveFailure(control, kernel, error));
    if (!look(() => Atomics.load(words, EPOCH) !== epoch)) Atomics.wait(words, EPOCH, epoch);
  }
}

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
    // Up to the end of the last shape.
    this.at = shared.memory.allocate(where, shapeOf(0, TILES));
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
