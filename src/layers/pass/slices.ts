// Asynchronous calls: steps that run in time slices, with yields to the event loop between them.

import { yieldToEventLoop } from "../../base/platform/host.ts";
import { expectFinite, expectFunction, expectSignal, type Global } from "../../base/util/arguments.ts";
import type { WaitingSteps } from "../../base/util/steps.ts";
import type { Kernels } from "../../wasm/kernels.ts";

/** How an asynchronous call is sliced. */
export interface SliceOptions {
  /** Aborts the call between two slices: it rejects with the signal's reason, and nothing has changed. */
  readonly signal?: Global<"AbortSignal"> | undefined;
  /** Called after every slice with the fraction of the work that is done: above 0, and 1 at the end. */
  readonly onProgress?: ((done: number) => void) | undefined;
  /** Milliseconds of work between two yields to the event loop. Default 8, half a frame at 60 frames a second. */
  readonly sliceMs?: number | undefined;
}

/** Fields of SliceOptions. */
export const SLICE_OPTIONS = ["signal", "onProgress", "sliceMs"] as const;

/** Checked SliceOptions. */
export interface Slices extends SliceOptions {
  readonly sliceMs: number;
}

/** Checks how a call is sliced. Throws the signal's reason if it was aborted before. */
export function checkSlices(where: string, { signal, onProgress, sliceMs: given }: SliceOptions): Slices {
  const sliceMs = given === undefined ? 8 : expectFinite(where, "sliceMs", given, true);
  if (signal !== undefined) expectSignal(where, signal);
  if (onProgress !== undefined) expectFunction(where, "onProgress", onProgress);
  signal?.throwIfAborted();
  return { signal, onProgress, sliceMs };
}

/**
 * Floating-point operations of a step for each thread: less than a millisecond on a desktop, a few on a phone, so that
 * slices have about the length asked for. The least step is six rows of attention over all keys.
 */
const STEP_FLOPS = 2 ** 25;

/** The approximate number of floating-point operations of a step on these kernels. */
export function stepFlopsOf({ threads }: Kernels): number {
  return STEP_FLOPS * threads.used;
}

/**
 * Runs all steps, of `all` operations together, and returns their result; if it throws, they free what they hold. `expectActive`
 * throws if the call must not go on; it runs after each yield to the event loop, and the caller runs it once more before it
 * changes anything.
 */
export async function runSlices<T>(
  steps: WaitingSteps<T>,
  all: number,
  { onProgress, sliceMs }: Slices,
  expectActive: () => void,
): Promise<T> {
  let flops = 0;
  try {
    for (let end = performance.now() + sliceMs; ; ) {
      const { done, value } = steps.next();
      if (done) {
        onProgress?.(1);
        return value;
      }
      if (typeof value === "object") await value;
      else flops += value;
      if (flops >= all || performance.now() < end) continue;
      onProgress?.(flops / all);
      await yieldToEventLoop();
      expectActive();
      end = performance.now() + sliceMs;
    }
  } finally {
    steps.return(undefined as never);
  }
}
