import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import type { Context } from "../suite.ts";
import { expectEqual, expectSameBits, expectThrown, expectTrue } from "./expect.ts";
import { GROUPED, weightsOf } from "./layers.ts";

/** What is over stays over, says so, and gives its memory back. */
export async function checkRelease({ headwise, doctor, kernels, start, check }: Context): Promise<void> {
  const { attend, createAttention, createCache } = headwise;
  const weights = weightsOf(GROUPED, 9);
  const x = createRandom(10).floats(6 * 64);
  const released = (text: string | RegExp) => ({ kind: "RELEASED", text });

  await check("release: an attention and a cache may be released twice, and used no more", async () => {
    const before = kernels.usedBytes;
    const attention = createAttention(kernels, GROUPED, weights);
    const cache = createCache(attention, { maxSeqLen: 8 });
    for (const thing of [cache, cache, attention, attention]) thing.release();
    expectEqual("released", cache.released && attention.released, true);
    await expectThrown(() => attend(attention, x), released("attend: attention was released"));
    await expectThrown(() => createCache(attention, { maxSeqLen: 1 }), released("createCache: attention was released"));
    await expectThrown(() => cache.read(), released(/was released$/));
    expectEqual("usedBytes", kernels.usedBytes, before);
  });
  await check("release: a call in slices ends when its cache goes", async () => {
    const attention = createAttention(kernels, GROUPED, weights);
    const cache = createCache(attention, { maxSeqLen: 400 });
    const onProgress = () => cache.release();
    const long = createRandom(11).floats(400 * 64);
    const run = () => headwise.attendAsync(attention, long, { cache, sliceMs: 0.01, onProgress });
    await expectThrown(run, released(/cache was released$/));
    attention.release();
  });
  await check("release: Symbol.dispose, or what stands for it, releases", () => {
    const attention = createAttention(kernels, GROUPED, weights);
    const dispose = Symbol.dispose ?? Symbol.for("Symbol.dispose");
    (attention as unknown as Record<symbol, () => void>)[dispose]?.();
    expectTrue("released", attention.released);
  });
  await check("release: fifty layers and caches one after the other take the memory of one", () => {
    const round = () => {
      const attention = createAttention(kernels, GROUPED, weights);
      const cache = createCache(attention, { maxSeqLen: 1000 });
      const y = attend(attention, x, { cache });
      cache.release();
      attention.release();
      return y;
    };
    const first = round();
    const { memoryBytes, usedBytes } = kernels;
    for (let i = 0; i < 49; i++) expectSameBits(`round ${i}`, round(), first);
    expectEqual("memoryBytes", kernels.memoryBytes, memoryBytes);
    expectEqual("usedBytes", kernels.usedBytes, usedBytes);
  });
  await check("release: kernels may be released twice; nothing made on them works after that", async () => {
    const own = await start({ deterministic: true });
    const attention = createAttention(own, GROUPED, weights);
    const cache = createCache(attention, { maxSeqLen: 8 });
    attend(attention, x, { cache });
    own.release();
    own.release();
    expectEqual("released", own.released, true);
    await expectThrown(() => own.memoryBytes, released("kernels: used after release"));
    await expectThrown(() => attend(attention, x, { cache }), released(/^attend: .*was released$/));
    await expectThrown(() => doctor.selfTest(headwise, own), released("selfTest: kernels was released"));
    for (const thing of [cache, attention]) thing.release();
  });
  await check("release: two engines share nothing", async () => {
    const [one, two] = [await start(), await start()];
    const [a, b] = [one, two].map((own) => createAttention(own, GROUPED, weights));
    const want = attend(a!, x);
    one.release();
    expectSameBits("the other", attend(b!, x), want);
    two.release();
  });
  await check("release: ten engines one after the other", async () => {
    const sizes = new Set<string>();
    for (let i = 0; i < 10; i++) {
      const own = await start();
      sizes.add(`${own.usedBytes} of ${own.memoryBytes}`);
      own.release();
    }
    expectEqual("bytes of fresh ones, all alike", sizes.size, 1);
  });
}
