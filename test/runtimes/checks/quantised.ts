import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import { FloatDigest } from "../../../src/tools/diagnostics/self-test.ts";
import type { Context } from "../suite.ts";
import { expectEqual, expectSameBits, expectTrue, expectWithin } from "./expect.ts";
import { decodeRows, GROUPED, weightsOf } from "./layers.ts";

const TOKENS = 24;

/** Weights and caches in fewer bits. Returns a digest of what they give in the simd build. */
export async function checkQuantised({ headwise, models, kernels, exact, check }: Context): Promise<string> {
  const weights = weightsOf(GROUPED, 5);
  const x = createRandom(6).floats(TOKENS * 64);
  const whole = headwise.createAttention(kernels, GROUPED, weights);
  const want = headwise.attend(whole, x);
  const digest = new FloatDigest();
  const relative = (got: Float32Array) =>
    Math.sqrt(sum(got.map((value, i) => (value - want[i]!) ** 2)) / sum(want.map((value) => value ** 2)));

  // How far each is from the float32 layer, as measured on this one in both builds. Half and twice as much are accepted:
  // a format that was not used would be nearer.
  for (const [format, error] of [
    ["f16", 2.9e-4],
    ["bf16", 2.2e-3],
    ["q8", 5.1e-3],
    ["q8-row", 5.5e-3],
    ["q4", 0.103],
  ] as const)
    await check(`quantised: ${format} weights are smaller, close, and the same by prefill and by decode`, () => {
      const attention = headwise.createAttention(kernels, GROUPED, weights, { weights: format });
      const cache = headwise.createCache(attention, { maxSeqLen: TOKENS });
      try {
        expectTrue("fewer bytes than f32", attention.bytes < 0.6 * whole.bytes);
        expectEqual("formats.q", attention.formats.q, format);
        const y = headwise.attend(attention, x);
        expectWithin("relative error", relative(y), error / 2, 2 * error);
        expectSameBits("decode", decodeRows(attention, cache, x, 10), y);
      } finally {
        cache.release();
        attention.release();
      }
    });
  for (const [format, error] of [
    ["f16", 1.7e-4],
    ["q8", 3.8e-3],
    ["q4", 6.6e-2],
  ] as const)
    await check(`quantised: a cache of ${format} is smaller, close, and the same by prefill and by decode`, () => {
      const [once, steps] = [0, 1].map(() => headwise.createCache(whole, { maxSeqLen: 256, format }));
      const plain = headwise.createCache(whole, { maxSeqLen: 256 });
      try {
        expectTrue("fewer bytes than f32", once!.bytes < 0.6 * plain.bytes);
        const y = headwise.attend(whole, x, { cache: once! });
        expectWithin("relative error", relative(y), error / 2, 2 * error);
        expectSameBits("decode", decodeRows(whole, steps!, x, 7), y);
        expectSameBits("keys", steps!.read().key.data, once!.read().key.data);
      } finally {
        for (const cache of [once!, steps!, plain]) cache.release();
      }
    });
  await check("quantised: a cache whose tokens age goes on with the same bits", () => {
    const format = [
      { keys: "f32", values: "f32", tokens: 128 },
      { keys: "q8", values: "q4" },
    ] as const;
    const long = createRandom(7).floats(300 * 64);
    const [once, steps] = [0, 1].map(() => headwise.createCache(whole, { maxSeqLen: 300, format }));
    const y = headwise.attend(whole, long, { cache: once! });
    expectSameBits("decode", decodeRows(whole, steps!, long, 290), y);
    expectEqual("stages", once!.format.length, 2);
    for (const cache of [once!, steps!]) cache.release();
  });
  for (const format of ["f32", "f16", "q8", "q4"] as const)
    await check(`quantised: a cache of ${format} goes on from its pages with the same bits`, () => {
      const rows = createRandom(8).floats(140 * 64);
      const [first, second] = [0, 1].map(() => headwise.createCache(whole, { maxSeqLen: 141, format }));
      headwise.attend(whole, rows, { cache: first! });
      const pages = models.exportPages(first!);
      expectEqual("pages", pages.length, 2);
      models.importPages(second!, structuredClone(pages), 140);
      expectEqual("length", second!.length, 140);
      const token = rows.subarray(0, 64);
      const want = headwise.attend(whole, token, { cache: first! });
      expectSameBits("y", headwise.attend(whole, token, { cache: second! }), want);
      for (const cache of [first!, second!]) cache.release();
    });
  await check("quantised: plan says the bytes that are taken", () => {
    const { weights: bytes } = headwise.plan(GROUPED, { maxSeqLen: 8, qLen: 1, weights: "q8" });
    const attention = headwise.createAttention(kernels, GROUPED, weights, { weights: "q8" });
    expectEqual("bytes", attention.bytes, bytes);
    attention.release();
  });
  for (const format of ["q8", "q4", "f16"] as const) {
    const attention = headwise.createAttention(exact, GROUPED, weights, { weights: format });
    const cache = headwise.createCache(attention, { maxSeqLen: TOKENS, format });
    digest.add(headwise.attend(attention, x, { cache }));
    for (const { bytes } of models.exportPages(cache)) digest.add(new Float32Array(bytes.slice().buffer));
    cache.release();
    attention.release();
  }
  whole.release();
  return digest.toString();
}

const sum = (values: Float32Array) => values.reduce((total, value) => total + value, 0);
