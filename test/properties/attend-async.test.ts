// attendAsync: the bits of attend, whatever runs between its slices, and nothing left behind when it ends early.

import { describe, expect, test } from "vitest";
import {
  type Attention,
  attend,
  attendAsync,
  attendMany,
  createAttention,
  createCache,
  type HeadwiseErrorCode,
  type Kernels,
} from "../../src/entries/core.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomLayer, randomWeights, shippedBuilds } from "../support/layers.ts";
import { sampledSeeds } from "../support/sampled.ts";

/** Ends a slice after every step. */
const SHORT = 1e-9;

/** A layer wide enough for its projections and its attention to take several steps. */
function wideLayer(kernels: Kernels): { attention: Attention; x: Float32Array } {
  const random = createRandom(11);
  const config = { dModel: 512, numHeads: 8, numKvHeads: 2, causal: true };
  return {
    attention: createAttention(kernels, config, randomWeights(random, config)),
    x: floats(random, 300 * 512),
  };
}

describe.each(shippedBuilds)("in the %s build", (build) => {
  test("slices give the bits of one call, also with other calls between them", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of sampledSeeds(0, 19, 8)) {
      const { attention, random } = randomLayer(kernels, seed + 3000);
      const { dModel } = attention.config;
      const x = floats(random, random.int(1, 600) * dModel);
      const once = attend(attention, x);
      const others = floats(random, 70 * dModel);
      let between = 0;
      using cache = createCache(attention, { maxSeqLen: 700 });
      const y = await attendAsync(attention, x, {
        cache,
        sliceMs: SHORT,
        onProgress() {
          attend(attention, others);
          between++;
        },
      });
      expect(between).toBeGreaterThan(1);
      expect(firstDifference(y, once), `seed ${seed}`).toBe(-1);
      expect(cache.length).toBe(x.length / dModel);
      attention.release();
    }
  });

  test("large projections and segments are cut into steps without changing a bit", async () => {
    using kernels = await kernelsOf(build);
    const { attention, x } = wideLayer(kernels);
    const progress: number[] = [];
    const { usedBytes } = kernels;
    const y = await attendAsync(attention, x, { sliceMs: SHORT, onProgress: (done) => progress.push(done) });
    expect(kernels.usedBytes).toBe(usedBytes);
    expect(firstDifference(y, attend(attention, x))).toBe(-1);
    expect(progress.length).toBeGreaterThan(12);
    expect(progress.every((done, i) => done > (progress[i - 1] ?? 0))).toBe(true);
    // The last step is counted too, and reported once.
    expect(progress.filter((done) => done === 1)).toEqual([progress.at(-1)]);
    expect(progress.at(-2)).toBeLessThan(1);
  });
});

test("other tasks run between slices", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, x } = wideLayer(kernels);
  let turns = 0;
  let running = true;
  const turn = () => {
    turns++;
    if (running) setImmediate(turn);
  };
  setImmediate(turn);
  await attendAsync(attention, x, { sliceMs: SHORT });
  running = false;
  expect(turns).toBeGreaterThan(10);
});

test("aborting after any step leaves the cache and the memory as they were, and trying again gives the same bits", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, x } = wideLayer(kernels);
  const { dModel } = attention.config;
  using cache = createCache(attention, { maxSeqLen: 310 });
  const begin = x.subarray(0, 10 * dModel);
  const whole = attend(attention, Float32Array.from([...begin, ...x]));
  attend(attention, begin, { cache });
  const { usedBytes } = kernels;
  for (let last = 1; ; last += 7) {
    const stop = new AbortController();
    let steps = 0;
    const onProgress = () => {
      if (++steps === last) stop.abort(new Error(`after step ${last}`));
    };
    const options = { cache, sliceMs: SHORT, signal: stop.signal, onProgress };
    const ended = await attendAsync(attention, x, options).catch((reason: Error) => reason);
    expect(kernels.usedBytes).toBe(usedBytes);
    if (ended instanceof Error) {
      expect(ended.message).toBe(`after step ${last}`);
      expect(cache.length).toBe(10);
      continue;
    }
    expect(last).toBeGreaterThan(20);
    expect(cache.length).toBe(310);
    expect(firstDifference(ended, whole.subarray(begin.length))).toBe(-1);
    break;
  }
});

test("out is written when nothing can end the call any more, also where it is x", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, x } = wideLayer(kernels);
  const once = attend(attention, x);
  const [before, stop] = [x.slice(), new AbortController()];
  const onProgress = (done: number) => {
    if (done === 1) stop.abort(new Error("late"));
  };
  const options = { out: x, sliceMs: SHORT, signal: stop.signal };
  await expect(attendAsync(attention, x, { ...options, onProgress })).rejects.toThrow("late");
  expect(firstDifference(x, before)).toBe(-1);
  expect(await attendAsync(attention, x, { out: x, sliceMs: SHORT })).toBe(x);
  expect(firstDifference(x, once)).toBe(-1);
});

test("masks are written in steps too, and change no bit", async () => {
  using kernels = await kernelsOf("simd");
  const random = createRandom(5);
  const config = { dModel: 32, numHeads: 32, headDim: 4, causal: true };
  const attention = createAttention(kernels, config, randomWeights(random, config));
  const tokens = 900;
  const x = floats(random, tokens * 32);
  const keep = { data: Uint8Array.from({ length: 32 * tokens }, () => random.int(0, 1)), shape: [32, 1, tokens] };
  const bias = { data: floats(random, tokens * tokens), shape: [tokens, tokens] };
  const reports: number[] = [];
  const options = { keep, bias, sliceMs: SHORT, onProgress: (done: number) => reports.push(done) };
  const y = await attendAsync(attention, x, options);
  expect(firstDifference(y, attend(attention, x, { keep, bias }))).toBe(-1);
  const bare: number[] = [];
  await attendAsync(attention, x, { sliceMs: SHORT, onProgress: (done) => bare.push(done) });
  expect([reports.at(-1), bare.at(-1)]).toEqual([1, 1]);
  expect(reports.length).toBeGreaterThan(bare.length);
});

test("a signal that was aborted before rejects before anything runs", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, x } = wideLayer(kernels);
  const signal = AbortSignal.abort();
  await expect(attendAsync(attention, x, { signal })).rejects.toBe(signal.reason);
});

test("while it runs the cache serves no other call, and afterwards it does", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, x } = wideLayer(kernels);
  using cache = createCache(attention, { maxSeqLen: 302 });
  const token = x.subarray(0, 512);
  const running = attendAsync(attention, x, { cache, sliceMs: SHORT });
  const text = "cache expected one that no unfinished call is using";
  expect(() => attend(attention, token, { cache })).toThrow(`attend: ${text}`);
  expect(() => attendMany(attention, [{ x: token, cache }])).toThrow(`attendMany, call 0: ${text}`);
  expect(() => cache.truncate(0)).toThrow(`truncate: ${text}`);
  await expect(attendAsync(attention, token, { cache })).rejects.toThrow(`attendAsync: ${text}`);
  await running;
  attend(attention, token, { cache });
  expect(cache.length).toBe(301);
});

test("while it only reads a cache, others may append to it and none may shorten it", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, x } = wideLayer(kernels);
  using cache = createCache(attention, { maxSeqLen: 40 });
  attend(attention, x.subarray(0, 30 * 512), { cache });
  const read = { cache, append: false, align: "end" } as const;
  const once = attend(attention, x, read);
  const running = attendAsync(attention, x, { ...read, sliceMs: SHORT });
  attend(attention, x.subarray(0, 512), { cache });
  expect(() => cache.truncate(3)).toThrow("truncate: cache expected one that no unfinished call is using");
  expect(firstDifference(await running, once)).toBe(-1);
  cache.truncate(3);
});

test.each([
  ["attention", (kernels: Kernels, attention: Attention) => [attention, kernels] as const],
  ["attention.kernels", (kernels: Kernels) => [kernels] as const],
])("releasing %s meanwhile ends it with RELEASED", async (name, released) => {
  using kernels = await kernelsOf("simd");
  const { attention, x } = wideLayer(kernels);
  const onProgress = () => {
    for (const one of released(kernels, attention)) one.release();
  };
  const error = await attendAsync(attention, x, { sliceMs: SHORT, onProgress }).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: "RELEASED" satisfies HeadwiseErrorCode });
  expect((error as Error).message).toBe(`attendAsync: ${name} was released`);
});

test("releasing the cache meanwhile ends it, and its memory serves others unharmed", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, x } = wideLayer(kernels);
  const cache = createCache(attention, { maxSeqLen: 300 });
  const once = attend(attention, x);
  let other: Promise<Float32Array> | undefined;
  const onProgress = () => {
    cache.release();
    other ??= attendAsync(attention, x, { sliceMs: SHORT });
  };
  await expect(attendAsync(attention, x, { cache, sliceMs: SHORT, onProgress })).rejects.toThrow(
    "attendAsync: cache was released",
  );
  expect(firstDifference((await other) as Float32Array, once)).toBe(-1);
});

test("what onProgress throws ends it and the cache is as it was, also at the end", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, x } = wideLayer(kernels);
  using cache = createCache(attention, { maxSeqLen: 300 });
  const { usedBytes } = kernels;
  for (const at of [0, 1]) {
    const onProgress = (done: number) => {
      if (done >= at) throw new Error("enough");
    };
    await expect(attendAsync(attention, x, { cache, sliceMs: SHORT, onProgress })).rejects.toThrow("enough");
    expect([cache.length, cache.holds, kernels.usedBytes]).toEqual([0, { appending: 0, reading: 0 }, usedBytes]);
  }
});

test.each(["x", "keys", "keep", "bias", "out"])(
  "%s that is lost meanwhile ends it, and nothing has changed",
  async (lost) => {
    using kernels = await kernelsOf("simd");
    const { attention, x } = wideLayer(kernels);
    const Resizable = ArrayBuffer as unknown as new (bytes: number, options: { maxByteLength: number }) => ArrayBuffer;
    for (const [resized, at] of [
      [true, 0],
      [false, 0],
      [false, 1],
    ] as const) {
      using cache = createCache(attention, { maxSeqLen: 300 });
      const own = (array: Float32Array) => {
        const bytes = array.byteLength;
        const copy = new Float32Array(new Resizable(bytes, { maxByteLength: bytes }), 0, array.length);
        copy.set(array);
        return copy;
      };
      const arrays = {
        x: own(x),
        keys: own(x),
        keep: own(new Float32Array(75)),
        bias: own(new Float32Array(300)),
        out: own(x),
      };
      const before = arrays.out.slice();
      const { x: rows, keys, keep, bias, out } = arrays;
      const { usedBytes } = kernels;
      const lose = (done: number) => {
        const { buffer } = arrays[lost as keyof typeof arrays];
        if (done < at) return;
        if (resized) (buffer as unknown as { resize(bytes: number): void }).resize(4);
        else if (buffer.byteLength > 0) structuredClone(buffer, { transfer: [buffer as ArrayBuffer] });
      };
      const masks = {
        keep: { data: new Uint8Array(keep.buffer).fill(1), shape: [300] },
        bias: { data: bias, shape: [300] },
      };
      const options = { ...masks, cache, keys, out, sliceMs: SHORT, onProgress: lose };
      await expect(attendAsync(attention, rows, options)).rejects.toThrow(
        new RegExp(`^attendAsync: ${lost} expected to keep its \\d+ elements until the promise settles, got 0$`),
      );
      expect([cache.length, cache.holds, kernels.usedBytes]).toEqual([0, { appending: 0, reading: 0 }, usedBytes]);
      if (lost !== "out") expect(firstDifference(out, before)).toBe(-1);
    }
  },
);

test("wrong options reject with their rule and value", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, x } = wideLayer(kernels);
  const call = attendAsync as (...args: readonly unknown[]) => Promise<Float32Array>;
  const rows: readonly (readonly [options: unknown, kind: typeof TypeError | typeof RangeError, text: string])[] = [
    [null, TypeError, "options expected an object, got null"],
    [
      { slicems: 3 },
      TypeError,
      'options expected only signal, onProgress, sliceMs, batch, cache, append, keys, values, kvLengths, align, keep, drop, bias, positions, out, path, got "slicems": use sliceMs',
    ],
    [{ sliceMs: 0 }, RangeError, "sliceMs expected a finite number > 0, got 0"],
    [{ sliceMs: "8" }, TypeError, 'sliceMs expected a finite number > 0, got "8"'],
    [{ signal: new AbortController() }, TypeError, "signal expected an AbortSignal, got AbortController"],
    [{ onProgress: 1 }, TypeError, "onProgress expected a function, got 1"],
    [{ batch: 7 }, RangeError, "x expected a multiple of batch (7) x dModel (512) floats, got 153600"],
  ];
  for (const [options, kind, text] of rows) {
    const error = await call(attention, x, options).catch((reason: unknown) => reason);
    expect((error as Error).message).toBe(`attendAsync: ${text}`);
    expect(error).toBeInstanceOf(kind);
  }
  await expect(call({}, x)).rejects.toThrow(
    "attendAsync: attention expected what createAttention or createLatentAttention gives, got Object",
  );
});
