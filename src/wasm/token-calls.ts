// The kernel calls of a token. The tokens of a sequence make the same calls with the same addresses, and only their position
// differs; where states exchange two places with each token, that holds for every other token, and both have calls of their own.
// So the steps that describe layers for any number of rows run for two positions, with kernels that note their calls and do nothing
// else. Where the notes differ, they contain the position. From then on, a token is a loop over what was noted: a product pushes what
// the host works with out of the processor's caches, and a list of numbers is less to bring back.

import type { Steps } from "../base/util/steps.ts";
import type { KernelTable } from "./abi.ts";
import type { Kernels } from "./kernels.ts";

type Kernel = (...args: number[]) => void;

/** The calls of a token. */
export interface TokenCalls {
  /** The kernels that are called, by name: functions would keep the memory of kernels that were released. */
  readonly names: readonly (keyof KernelTable)[];
  /**
   * One after the other: WORDS, the element of memory that words of a struct are written to, how many, and the words; which of
   * `names` is called, with how many arguments, and the arguments; STEP.
   */
  readonly numbers: Float64Array;
  /** The operations of each step. */
  readonly flops: readonly number[];
  /** The elements of `numbers` that grow with the position. */
  readonly moving: readonly number[];
  /** The position that `numbers` has. */
  position: number;
}

/** Not the number of a kernel. */
const WORDS = -1;
const STEP = -2;

/**
 * Plans the calls of the token at `position`, and of later ones, whose steps are those of `stepsAt`. Undefined if they do not
 * depend on the position alone. The steps must not read what kernels write, nor write to memory but through its `view()`.
 */
export function planToken(
  kernels: Kernels,
  position: number,
  stepsAt: (position: number) => Steps,
): TokenCalls | undefined {
  const names: (keyof KernelTable)[] = [];
  // Its neighbour on the same page.
  const other = position ^ 1;
  const { numbers, flops } = noteCalls(kernels, names, stepsAt(position));
  const { numbers: others } = noteCalls(kernels, names, stepsAt(other));
  if (others.length !== numbers.length) return undefined;
  const moving: number[] = [];
  for (const [i, number] of numbers.entries()) {
    const difference = (others[i] as number) - number;
    if (difference === other - position) moving.push(i);
    else if (difference !== 0) return undefined;
  }
  return { names, numbers: Float64Array.from(numbers), flops, moving, position };
}

/** Runs steps with kernels that note their calls, and a view that notes what is written to structs. */
function noteCalls({ table, memory }: Kernels, names: (keyof KernelTable)[], steps: Steps) {
  const numbers: number[] = [];
  const flops: number[] = [];
  /** The element of `numbers` that counts the last words, and the element of memory behind these. */
  let count = 0;
  let next = 0;
  const noteWord = (address: number) => {
    const at = address / 4;
    if (at !== next) count = numbers.push(WORDS, at, 0) - 1;
    numbers[count] = numbers.push(memory.words()[at] as number) - count - 1;
    next = at + 1;
  };
  const note = (...what: number[]) => {
    numbers.push(...what);
    next = 0;
  };
  const noteOf = (name: keyof KernelTable): Kernel => {
    return (...args) => {
      if (!names.includes(name)) names.push(name);
      note(names.indexOf(name), args.length, ...args);
    };
  };
  const own = { ...table };
  try {
    memory.replaceView(watchedView(memory.view().buffer, noteWord));
    for (const name of Object.keys(own) as (keyof KernelTable)[]) Object.assign(table, { [name]: noteOf(name) });
    for (const each of steps) {
      note(STEP);
      flops.push(each);
    }
  } finally {
    memory.replaceView();
    Object.assign(table, own);
  }
  return { numbers, flops };
}

/** A view of a memory that gives `written` the address of each word that is stored through it. */
function watchedView(buffer: ArrayBufferLike, written: (at: number) => void): DataView {
  const view = new DataView(buffer);
  const watched = (name: "setInt32" | "setUint32" | "setFloat32") => (at: number, value: number) => {
    DataView.prototype[name].call(view, at, value, true);
    written(at);
  };
  const [setInt32, setUint32, setFloat32] = [watched("setInt32"), watched("setUint32"), watched("setFloat32")];
  return Object.assign(view, { setInt32, setUint32, setFloat32 });
}

/** Runs the calls for the token at `position`. */
export function* repeatCalls({ table, memory }: Kernels, calls: TokenCalls, position: number): Steps {
  const { names, numbers, flops, moving } = calls;
  const kernels = names.map((name) => (table as Record<keyof KernelTable, Kernel>)[name]);
  for (const i of moving) numbers[i] = (numbers[i] as number) + position - calls.position;
  calls.position = position;
  let words = memory.words();
  let step = 0;
  for (let i = 0; i < numbers.length; ) {
    // Integers, which index faster than the floats that they are read as.
    const kind = (numbers[i] as number) | 0;
    if (kind === STEP) {
      yield flops[step++] as number;
      // What ran between the steps may have grown the memory.
      words = memory.words();
      i++;
    } else if (kind === WORDS) {
      i = writeWords(words, numbers, i + 1);
    } else {
      const count = (numbers[i + 1] as number) | 0;
      callKernel(kernels[kind] as Kernel, numbers, i + 2, count);
      i += 2 + count;
    }
  }
}

/** Writes the words at element `i`, where their place stands. Returns the element behind them. */
function writeWords(to: Int32Array, numbers: Float64Array, i: number): number {
  const at = (numbers[i] as number) | 0;
  const size = (numbers[i + 1] as number) | 0;
  for (let word = 0; word < size; word++) to[at + word] = numbers[i + 2 + word] as number;
  return i + 2 + size;
}

/**
 * A call with as many arguments as it has, since threads count them, and without a list of them, which would be garbage. One with five
 * is given eight: its rows are too few to be shared among threads.
 */
function callKernel(kernel: Kernel, args: Float64Array, i: number, count: number): void {
  const [a, b, c] = [args[i], args[i + 1], args[i + 2]] as [number, number, number];
  const [d, e, f] = [args[i + 3], args[i + 4], args[i + 5]] as [number, number, number];
  if (count === 6) kernel(a, b, c, d, e, f);
  else if (count === 7) kernel(a, b, c, d, e, f, args[i + 6] as number);
  else kernel(a, b, c, d, e, f, args[i + 6] as number, args[i + 7] as number);
}
