// The forward pass of a layer over any number of calls, and how asynchronous calls run theirs.

import { yieldToEventLoop } from "../../base/platform/host.ts";
import { createFloats } from "../../base/tensor/tensor.ts";
import { expectFinite, expectFunction, expectSignal, type Global } from "../../base/util/arguments.ts";
import { CHUNK_ROWS } from "../../base/util/rows.ts";
import type { Steps, WaitingSteps } from "../../base/util/steps.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { aligned } from "../../wasm/memory.ts";
import { isInStep, mostRows } from "../attention/head-passes.ts";
import type { MixerCall, MixerLayer, PassCall, Passes, PassOptions } from "../mixer/mixer.ts";
import { createPageLayout } from "../state/pages.ts";
import { pagesAt, pagesBytes } from "../state/table.ts";
import { clearPadding } from "./call.ts";

/**
 * Appends the keys of all calls, attends, and projects: returns `ys`, one for each call, and `maps`, empty unless
 * requested. The projections of all calls are one list of rows, whose bits do not depend on their neighbours. Caches
 * hold the appended keys once the calls are committed.
 */
export function* forward(
  attention: MixerLayer,
  passes: Passes,
  calls: readonly MixerCall[],
  options: PassOptions,
): Steps<{ ys: Float32Array[]; maps: Float32Array }> {
  const { where, maps: withMaps = false, stepFlops = Infinity, ownScratch = false } = options;
  const { kernels, config, pageShape } = attention;
  const { memory } = kernels;
  const [first] = calls as [MixerCall];
  const { width, columns, bytes, block = 0, run } = passes.prepare(attention, calls, options);
  // Scratch is taken last: once grown it stays so, and nothing may fail after it.
  const ys = calls.map(({ where, out, batch, qLen }) => out ?? createFloats(where, "y", batch * qLen * width));
  const maps = createFloats(where, "maps", withMaps ? first.batch * config.numHeads * first.qLen * columns : 0);
  const layout = createPageLayout(pageShape);
  const bytesOf = ({ cache, batch, target }: MixerCall) => (cache ? 0 : pagesBytes(layout, batch, target.kvLen));
  const groups = groupsOf(calls);
  const pageBytes = Math.max(...groups.map((group) => group.reduce((sum, call) => sum + bytesOf(call), 0)));
  const ownBytes = pageBytes + aligned(block) + (ownScratch ? bytes : 0);
  const own = ownBytes && memory.allocate(where, ownBytes);
  try {
    const blockAt = own + pageBytes;
    const base = ownScratch ? blockAt + aligned(block) : memory.scratch(where, bytes);
    let i = 0;
    for (const group of groups) {
      let at = own;
      const passCalls = group.map((call): PassCall => {
        const pages = call.cache?.pages ?? pagesAt(kernels, at, layout, call.batch, call.target.kvLen);
        at += bytesOf(call);
        call.cache?.begin();
        return {
          call,
          tokens: call,
          pages,
          y: ys[i++] as Float32Array,
          inStep: pages.ages && isInStep(config, call),
        };
      });
      yield* run(passCalls, base, stepFlops, maps, blockAt);
      for (const { call, y } of passCalls) clearPadding(call, y, width);
    }
  } finally {
    if (own && !kernels.released) memory.free(own);
  }
  return { ys, maps };
}

/** Rows with which a group of calls is complete: some chunks, the last of which may be short. */
const GROUP_ROWS = 4 * CHUNK_ROWS;

/** Cuts calls into groups that run one after the other, so that the pages of calls without a cache take bounded memory. */
function groupsOf(calls: readonly MixerCall[]): readonly MixerCall[][] {
  const groups: MixerCall[][] = [];
  let rows = GROUP_ROWS;
  for (const call of calls) {
    if (rows >= GROUP_ROWS) {
      groups.push([]);
      rows = 0;
    }
    groups.at(-1)?.push(call);
    rows += mostRows(call);
  }
  return groups;
}

// Asynchronous calls: steps that run in time slices, with yields to the event loop between them.

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
