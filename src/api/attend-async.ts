import type { Attention } from "../attention/attention.ts";
import { restorePages } from "../cache/aging.ts";
import { type AttendOptions, checkGiven, commit, expectAttention, readAttend } from "../forward/call.ts";
import { forward, passFlops } from "../forward/forward.ts";
import { arraysOf, expectKeptArrays } from "../forward/given-call.ts";
import { checkSlices, runSlices, SLICE_OPTIONS, type SliceOptions, stepFlopsOf } from "../forward/slices.ts";
import { expectAlive } from "../util/lifetime.ts";

/** Options of `attendAsync`: those of `attend`, and how the call is sliced. */
export type AttendAsyncOptions = AttendOptions & SliceOptions;

/**
 * `attend` in time slices. It yields to the event loop between slices, so that pages stay responsive and servers answer
 * other requests. The result has the bits of `attend`.
 *
 * x and everything in `options` must not change before the promise settles, nor may their arrays be detached or resized.
 * Until then the cache is in use, and other calls that would disturb this one throw `IN_USE`: nothing may truncate the cache,
 * and nothing else may append to it while this call appends. If its tokens change format as they age (see
 * `CacheOptions.format`) or are dropped behind a window (see `CacheOptions.truncatable`), nothing else may read or attend to
 * it while this call appends, and nothing may append to it while this call only reads.
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
  const read = readAttend(where, x, options, SLICE_OPTIONS);
  const slices = checkSlices(where, read.options);
  const checked = checkGiven(where, attention, read);
  const expectKept = expectKeptArrays(where, arraysOf(read));
  const { cache, out } = checked;
  // `out` is written last, when nothing can abort the call any more.
  const call = { ...checked, out: undefined };
  const stepFlops = stepFlopsOf(attention.kernels);
  const all = passFlops(attention, call, stepFlops);
  const expectActive = () => {
    slices.signal?.throwIfAborted();
    expectAttention(where, attention);
    if (cache) expectAlive(where, "cache", cache);
    expectKept();
  };
  const hold = cache && (call.newKeys > 0 ? "appending" : "reading");
  if (hold) cache.holds[hold]++;
  const steps = forward(attention, [call], { where, stepFlops, ownScratch: true });
  try {
    const { ys } = await runSlices(steps, all, slices, expectActive);
    expectActive();
    const y = ys[0] as Float32Array;
    out?.set(y);
    commit([call]);
    return checked.given ?? y;
  } finally {
    steps.return(undefined as never);
    if (hold) cache.holds[hold]--;
    if (cache && !cache.released && !attention.kernels.released)
      restorePages(attention.kernels, cache.pages, cache.length);
  }
}
