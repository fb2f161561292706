import type { Attention } from "../attention/attention.ts";
import { restorePages } from "../cache/aging.ts";
import { type AttendOptions, checkGiven, commit, expectAttention, readAttend } from "../forward/call.ts";
import { forward, passFlops } from "../forward/forward.ts";
import { expectKeptArrays } from "../forward/given-call.ts";
import { yieldToEventLoop } from "../platform/event-loop.ts";
import { expectFinite, expectFunction, expectRecord, expectSignal } from "../util/errors.ts";
import { expectAlive } from "../util/lifetime.ts";

/** Options of `attendAsync`: those of `attend`, and how the call is sliced. */
export interface AttendAsyncOptions extends AttendOptions {
  /** Aborts the call between two slices: it rejects with the signal's reason, and the cache is unchanged. */
  readonly signal?: AbortSignal;
  /** Called after every slice with the fraction of the work that is done: above 0, and 1 at the end. */
  readonly onProgress?: (done: number) => void;
  /** Milliseconds of work between two yields to the event loop. Default 8, half a frame at 60 frames a second. */
  readonly sliceMs?: number;
}

/**
 * Floating-point operations of a step for each thread: less than a millisecond on a desktop, a few on a phone, so that
 * slices have about the length asked for. The least step is six rows of attention over all keys.
 */
const STEP_FLOPS = 2 ** 25;

/**
 * `attend` in time slices. It yields to the event loop between slices, so that pages stay responsive and servers answer
 * other requests. The result has the bits of `attend`.
 *
 * x and everything in `options` must not change before the promise settles, nor may their arrays be detached or resized. Until then the cache is in use, and other calls
 * that would disturb this one throw `IN_USE`: nothing may truncate the cache, and nothing else may append to it while this
 * call appends. If its tokens change format as they age (see `CacheOptions.format`), nothing else may read or attend to it
 * while this call appends, and nothing may append to it while this call only reads.
 * @param x Input rows [batch, qLen, dModel].
 * @returns Output rows y [batch, qLen, dModel]: `options.out` where it is given, else a new array.
 * @throws The same errors as `attend`, the signal's reason, whatever `onProgress` throws, RangeError if x or an array in
 * `options` is detached or resized before the end, and HeadwiseError `RELEASED` if the attention, its kernels or the cache are
 * released before. The cache and `out` are then unchanged.
 * @example
 * import { attendAsync, createAttention, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const stop = new AbortController();
 * const y = await attendAsync(attention, new Float32Array(400), { signal: stop.signal });
 * console.log(y.length); // 400
 * kernels.release();
 */
export async function attendAsync(
  attention: Attention,
  x: Float32Array,
  options: AttendAsyncOptions = {},
): Promise<Float32Array> {
  const where = "attendAsync";
  expectRecord(where, "options", options);
  const { signal, onProgress, sliceMs: given, ...rest } = options;
  const sliceMs = given === undefined ? 8 : expectFinite(where, "sliceMs", given, true);
  if (signal !== undefined) expectSignal(where, signal);
  if (onProgress !== undefined) expectFunction(where, "onProgress", onProgress);
  signal?.throwIfAborted();
  const read = readAttend(where, x, rest, ["signal", "onProgress", "sliceMs"]);
  const checked = checkGiven(where, attention, read);
  const expectKept = expectKeptArrays(where, read);
  const { cache, out } = checked;
  // `out` is written last, when nothing can abort the call any more.
  const call = { ...checked, out: undefined };
  const stepFlops = STEP_FLOPS * attention.kernels.threads.used;
  const all = passFlops(attention, call, stepFlops);
  const expectActive = () => {
    signal?.throwIfAborted();
    expectAttention(where, attention);
    if (cache) expectAlive(where, "cache", cache);
    expectKept();
  };
  const hold = cache && (call.newKeys > 0 ? "appending" : "reading");
  if (hold) cache.holds[hold]++;
  const steps = forward(attention, [call], { where, stepFlops, ownScratch: true });
  try {
    let flops = 0;
    for (let end = performance.now() + sliceMs; ; ) {
      const { done, value } = steps.next();
      if (done) {
        onProgress?.(1);
        expectActive();
        const y = value.ys[0] as Float32Array;
        out?.set(y);
        commit([call]);
        return checked.given ?? y;
      }
      flops += value;
      if (flops >= all || performance.now() < end) continue;
      onProgress?.(flops / all);
      await yieldToEventLoop();
      expectActive();
      end = performance.now() + sliceMs;
    }
  } finally {
    steps.return(undefined as never);
    if (hold) cache.holds[hold]--;
    if (cache && !cache.released && !attention.kernels.released)
      restorePages(attention.kernels, cache.pages, cache.length);
  }
}
