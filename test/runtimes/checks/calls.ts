import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import type { Context } from "../suite.ts";
import { expectEqual, expectSameBits, expectThrown, expectTrue, expectWithin } from "./expect.ts";
import { decodeRows, GROUPED, weightsOf, withLayer } from "./layers.ts";

/** The ways to call a layer: each gives the bits that one prefill gives. */
export async function checkCalls(context: Context): Promise<void> {
  await checkCaches(context);
  await checkMany(context);
  await checkAsync(context);
  await checkAlone(context);
}

async function checkCaches({ headwise, kernels, check }: Context): Promise<void> {
  const { attend, createCache } = headwise;
  const x = createRandom(11).floats(140 * 64);

  await check("calls: prefill, chunks and decode across a page give the same bits", () =>
    withLayer(kernels, GROUPED, (attention) => {
      const whole = attend(attention, x);
      const cache = createCache(attention, { maxSeqLen: 140 });
      expectSameBits("decode", decodeRows(attention, cache, x, 120), whole);
      cache.truncate(0);
      for (let at = 0; at < 140; at += 35)
        expectSameBits(
          `chunk at ${at}`,
          attend(attention, x.subarray(at * 64, (at + 35) * 64), { cache }),
          whole.subarray(at * 64, (at + 35) * 64),
        );
    }),
  );
  await check("calls: truncate and replay give the same bits", () =>
    withLayer(kernels, GROUPED, (attention) => {
      const cache = createCache(attention, { maxSeqLen: 20 });
      const first = decodeRows(attention, cache, x.subarray(0, 20 * 64), 8).subarray(8 * 64);
      cache.truncate(8);
      expectEqual("length", cache.length, 8);
      expectSameBits("again", attend(attention, x.subarray(8 * 64, 20 * 64), { cache }), first);
    }),
  );
  await check("calls: padding of a batch may hold NaN", () =>
    withLayer(kernels, GROUPED, (attention) => {
      const [long, short] = [x.subarray(0, 5 * 64), x.subarray(0, 3 * 64)];
      const both = new Float32Array(2 * 5 * 64).fill(Number.NaN);
      both.set(long);
      both.set(short, 5 * 64);
      const y = attend(attention, both, { batch: 2, kvLengths: [5, 3] });
      expectSameBits("long", y.subarray(0, 5 * 64), attend(attention, long));
      expectSameBits("short", y.subarray(5 * 64, 8 * 64), attend(attention, short));
    }),
  );
  await check("calls: out is written, also where it is x itself", () =>
    withLayer(kernels, GROUPED, (attention) => {
      const want = attend(attention, x);
      const own = x.slice();
      expectTrue("the array that was given", attend(attention, own, { out: own }) === own);
      expectSameBits("out", own, want);
    }),
  );
  await check("calls: results are arrays of their own, not windows into wasm memory", () =>
    withLayer(kernels, GROUPED, (attention) => {
      const y = attend(attention, x);
      expectEqual("bytes behind it", y.buffer.byteLength, y.byteLength);
      const before = y.slice();
      const cache = createCache(attention, { maxSeqLen: 20_000 });
      attend(attention, x, { cache });
      expectSameBits("after memory grew", y, before);
      const { key } = cache.read();
      expectEqual("key", key.shape.join(), "1,2,140,8");
      expectEqual("bytes behind it", key.data.buffer.byteLength, key.data.byteLength);
      cache.release();
    }),
  );
  await check("calls: keys of an encoder are projected once", () =>
    withLayer(kernels, { dModel: 64, numHeads: 4, kdim: 48, vdim: 48 }, (attention) => {
      const keys = createRandom(12).floats(20 * 48);
      const rows = x.subarray(0, 2 * 64);
      const once = attend(attention, rows, { keys });
      const cache = createCache(attention, { maxSeqLen: 20 });
      expectSameBits("first", attend(attention, rows.subarray(0, 64), { keys, cache }), once.subarray(0, 64));
      expectSameBits("second", attend(attention, rows.subarray(64), { cache, append: false }), once.subarray(64));
    }),
  );
  await check("calls: maps are weights, and y has the bits of attend", () =>
    withLayer(kernels, GROUPED, (attention) => {
      const rows = x.subarray(0, 12 * 64);
      const { y, maps } = headwise.attendWithMaps(attention, rows);
      expectSameBits("y", y, attend(attention, rows));
      expectEqual("shape", maps.shape.join(), "8,12,12");
      for (let row = 0; row < 8 * 12; row++) {
        const weights = maps.data.subarray(row * 12, (row + 1) * 12);
        expectWithin(
          `row ${row}`,
          weights.reduce((sum, w) => sum + w, 0),
          1 - 1e-5,
          1 + 1e-5,
        );
        expectTrue(
          "later keys have no weight",
          weights.subarray((row % 12) + 1).every((w) => w === 0),
        );
      }
    }),
  );
}

async function checkMany({ headwise, kernels, check }: Context): Promise<void> {
  const { attend, attendMany, createCache } = headwise;
  const x = createRandom(13).floats(40 * 64);
  await check("calls: several conversations at once get the bits each has alone", () =>
    withLayer(kernels, GROUPED, (attention) => {
      const caches = [3, 17, 40].map((maxSeqLen) => createCache(attention, { maxSeqLen }));
      const rows = caches.map(({ maxSeqLen }) => x.subarray(0, maxSeqLen * 64));
      const ys = attendMany(
        attention,
        rows.map((own, i) => ({ x: own, cache: caches[i]! })),
      );
      for (const [i, own] of rows.entries()) {
        expectSameBits(`call ${i}`, ys[i]!, attend(attention, own));
        expectEqual("length", caches[i]!.length, own.length / 64);
      }
    }),
  );
  await check("calls: an error in one of them names it and leaves all caches", () =>
    withLayer(kernels, GROUPED, async (attention) => {
      const caches = [4, 4].map((maxSeqLen) => createCache(attention, { maxSeqLen }));
      const wrong = () =>
        attendMany(attention, [
          { x: x.subarray(0, 2 * 64), cache: caches[0]! },
          { x: x.subarray(0, 5 * 64), cache: caches[1]! },
        ]);
      await expectThrown(wrong, {
        kind: "CACHE_FULL",
        text: "attendMany, call 1: past 0 + qLen 5 exceeds maxSeqLen 4",
      });
      expectEqual("lengths", caches.map(({ length }) => length).join(), "0,0");
    }),
  );
}

async function checkAsync({ headwise, kernels, check }: Context): Promise<void> {
  const { attend, attendAsync, createCache } = headwise;
  const x = createRandom(14).floats(600 * 64);
  await check("calls: slices give the bits of one go, and progress ends at 1", () =>
    withLayer(kernels, GROUPED, async (attention) => {
      const done: number[] = [];
      const cache = createCache(attention, { maxSeqLen: 600 });
      const y = await attendAsync(attention, x, { cache, sliceMs: 1, onProgress: (part) => done.push(part) });
      expectSameBits("y", y, attend(attention, x));
      expectEqual("length", cache.length, 600);
      expectEqual("progress", done.at(-1), 1);
      expectTrue(
        "progress rises",
        done.every((part, i) => i === 0 || part >= done[i - 1]!),
      );
    }),
  );
  await check("calls: two at once keep apart", () =>
    withLayer(kernels, GROUPED, async (attention) => {
      const halves = [x.subarray(0, 300 * 64), x.subarray(300 * 64)];
      const ys = await Promise.all(halves.map((own) => attendAsync(attention, own, { sliceMs: 1 })));
      for (const [i, own] of halves.entries()) expectSameBits(`call ${i}`, ys[i]!, attend(attention, own));
    }),
  );
  await check("calls: aborted before it begins, it rejects with the reason", () =>
    withLayer(kernels, GROUPED, (attention) =>
      expectThrown(() => attendAsync(attention, x, { signal: AbortSignal.abort(new RangeError("no more")) }), {
        kind: "RangeError",
        text: "no more",
      }),
    ),
  );
  await check("calls: aborted on the way, the cache is as it was", () =>
    withLayer(kernels, GROUPED, async (attention) => {
      const stop = new AbortController();
      const cache = createCache(attention, { maxSeqLen: 610 });
      const before = attend(attention, x.subarray(0, 10 * 64), { cache }).slice();
      const onProgress = () => stop.abort(new RangeError("stopped"));
      const run = () => attendAsync(attention, x, { cache, signal: stop.signal, onProgress });
      await expectThrown(run, { kind: "RangeError", text: "stopped" });
      expectEqual("length", cache.length, 10);
      cache.truncate(0);
      expectSameBits("again", attend(attention, x.subarray(0, 10 * 64), { cache }), before);
    }),
  );
  await check("calls: an error in onProgress ends the call", () =>
    withLayer(kernels, GROUPED, (attention) => {
      const onProgress = () => {
        throw new RangeError("from outside");
      };
      return expectThrown(() => attendAsync(attention, x, { onProgress }), {
        kind: "RangeError",
        text: "from outside",
      });
    }),
  );
}

async function checkAlone({ headwise, kernels, weights, check }: Context): Promise<void> {
  const { scaledDotProductAttention } = headwise;
  const { floats } = createRandom(15);
  const heads = (count: number, len: number) => ({ data: floats(count * len * 4), shape: [1, count, len, 4] });

  await check("core: a result by hand", () => {
    const q = { data: Float32Array.of(1, 0, 0, 1), shape: [1, 1, 2, 2] };
    const v = { data: Float32Array.of(1, 2, 3, 4), shape: [1, 1, 2, 2] };
    const { output } = scaledDotProductAttention(kernels, q, q, v, { causal: true, scale: Math.log(3) });
    for (const [i, want] of [1, 2, 2.5, 3.5].entries())
      expectWithin(`[${i}]`, output.data[i]!, want - 1e-6, want + 1e-6);
  });
  await check("core: a key that is not attended may hold anything", () => {
    const ones = { data: new Float32Array(6).fill(1), shape: [1, 1, 3, 2] };
    const v = { data: Float32Array.of(1, 10, Number.NaN, Number.POSITIVE_INFINITY, 4, 40), shape: [1, 1, 3, 2] };
    const keep = { data: Uint8Array.of(1, 0, 1), shape: [3] };
    const { output } = scaledDotProductAttention(kernels, ones, ones, v, { keep });
    expectSameBits("output", output.data, [2.5, 25, 2.5, 25, 2.5, 25]);
    const none = { data: new Uint8Array(3), shape: [3] };
    expectSameBits(
      "no key at all",
      scaledDotProductAttention(kernels, ones, ones, v, { keep: none }).output.data,
      [0, 0, 0, 0, 0, 0],
    );
  });
  await check("core: past, present, scores and log-sum-exp have their shapes", () => {
    const past = { key: heads(3, 5), value: heads(3, 5) };
    const options = { causal: true, past, present: true, scores: "weights", lse: true } as const;
    const got = scaledDotProductAttention(kernels, heads(6, 2), heads(3, 2), heads(3, 2), options);
    const shapes = [got.output, got.present?.key, got.scores, got.lse].map((tensor) => tensor?.shape.join("x"));
    expectEqual("shapes", shapes.join(), "1x6x2x4,1x3x7x4,1x6x2x7,1x6x2");
  });
  await check("heads: split and merge are each other's inverse, and rotating by 0 changes nothing", () => {
    const rows = { data: floats(7 * 24), shape: [7, 24] };
    const apart = headwise.splitHeads(kernels, rows, 3);
    expectEqual("shape", apart.shape.join(), "3,7,8");
    expectSameBits("merged", headwise.mergeHeads(kernels, apart).data, rows.data);
    const x = heads(2, 3);
    const cos = { data: new Float32Array(6).fill(1), shape: [3, 2] };
    const sin = { data: new Float32Array(6), shape: [3, 2] };
    expectSameBits("rotated", headwise.applyRope(kernels, x, { cos, sin, pairing: "half" }).data, x.data);
  });
  await check("plan: the bytes that a layer, its cache and a call take", () => {
    const sizes = headwise.plan(GROUPED, { maxSeqLen: 200, qLen: 3 });
    const before = kernels.usedBytes;
    const attention = headwise.createAttention(kernels, GROUPED, weightsOf(GROUPED, 1));
    expectEqual("weights", kernels.usedBytes - before, sizes.weights);
    const cache = headwise.createCache(attention, { maxSeqLen: 200 });
    expectEqual("cache", kernels.usedBytes - before - sizes.weights, sizes.cache);
    attention.release();
    cache.release();
    expectEqual("all of it given back", kernels.usedBytes, before);
  });
  await check("convertToGqa: heads that agree lose nothing", () => {
    const mha = { dModel: 32, numHeads: 4, causal: true };
    const { wk, wv, ...rest } = weightsOf({ ...mha, numKvHeads: 2 }, 8);
    const twice = (w: typeof wk) => {
      const { data } = w as { data: Float32Array };
      const [a, b] = [data.subarray(0, 256), data.subarray(256)];
      return { data: Float32Array.from([...a, ...a, ...b, ...b]), shape: [32, 32] };
    };
    const { config, relativeError } = weights.convertToGqa({ ...rest, wk: twice(wk), wv: twice(wv) }, mha, 2);
    expectEqual("numKvHeads", config.numKvHeads, 2);
    expectTrue(
      "no error",
      relativeError.key.every((error: number) => error < 1e-6),
    );
  });
}
