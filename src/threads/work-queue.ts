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

import { scriptName } from "../platform/workers.ts";
import { KERNELS, type KernelTable, LINEAR_SHAPE_BYTES, MOST_ARGUMENTS, SCRATCH_ARGUMENT } from "../wasm/abi.ts";

/** The words, 64 bytes apart so that no two share a cache line. */
const WORD = 16;
export const EPOCH = 0;
export const NEXT: number = WORD;
export const LEFT: number = 2 * WORD;
/** 1 when the workers are to end. */
export const STOPPED: number = 3 * WORD;
/** 1 + the number of a kernel that failed in a worker; behind it the length of the error's text, and the text. */
export const FAILED: number = 4 * WORD;
const TEXT = FAILED + 2;
const TEXT_LENGTH = 3 * WORD - 2;
const WORDS = 8 * WORD;

/**
 * Numbers of a record: the kernel, bytes that its scratch moves on with each thread (no two threads may share it), and its
 * arguments. Doubles hold addresses and floats exactly.
 */
export const RECORD: number = 2 + MOST_ARGUMENTS;
const ARGUMENTS = 2;

/** The most tiles of a job. */
export const TILES = 256;

const RECORDS_AT = 4 * WORDS;
const SHAPES_AT: number = RECORDS_AT + 8 * RECORD * TILES;
export const CONTROL_BYTES: number = SHAPES_AT + LINEAR_SHAPE_BYTES * TILES;

/** Where a tile of a projection has its shape. It may be written while no job runs. */
export function shapeOf(control: number, tile: number): number {
  return control + SHAPES_AT + LINEAR_SHAPE_BYTES * tile;
}

/** Views of a control block. Growth leaves views of shared memory valid, so they may be kept. */
export interface Control {
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

/** Kernels by number, those of modules that were not loaded too. */
export const KERNEL_NAMES: readonly (keyof KernelTable)[] = Object.values(KERNELS).flat();

/** The kernels in the order of their numbers. */
export function numbered(table: KernelTable): readonly AnyKernel[] {
  return KERNEL_NAMES.map((name) => table[name] as AnyKernel);
}

export function viewControl(buffer: ArrayBufferLike, at: number): Control {
  return {
    words: new Int32Array(buffer, at, WORDS),
    records: new Float64Array(buffer, at + RECORDS_AT, RECORD * TILES),
  };
}

/** Takes tiles and runs them until all are taken. `fail` is called for those that throw; they count as done. */
export function runTiles(
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
export function leaveFailure({ words }: Control, kernel: number, error: unknown): void {
  if (Atomics.compareExchange(words, FAILED, 0, kernel + 1) !== 0) return;
  const text = String(error).slice(0, TEXT_LENGTH);
  for (let i = 0; i < text.length; i++) words[TEXT + i] = text.charCodeAt(i);
  words[FAILED + 1] = text.length;
}

/** The failure that a worker left in the job that just ended. */
export function takeFailure({ words }: Control): { readonly kernel: string; readonly text: string } | undefined {
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
export function createLooking(most: number): (done: () => boolean) => boolean {
  let microseconds = most;
  return (done) => {
    const found = spin(microseconds, done);
    microseconds = found ? Math.min(most, 2 * microseconds) : Math.max(most / 16, microseconds / 2);
    return found;
  };
}
