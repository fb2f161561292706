import type { Tensor } from "../../../src/entries/core.ts";
import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import type { Context } from "../suite.ts";
import { type Expected, expectEqual, expectThrown } from "./expect.ts";
import { GROUPED, weightsOf } from "./layers.ts";

type Loose = Record<string, (...args: readonly unknown[]) => unknown>;

/** Wrong input of a dozen kinds: the type or code that is thrown, and its exact words. */
export async function checkErrors({ headwise, kernels, start, check }: Context): Promise<void> {
  // Callers from JavaScript: any argument may be anything.
  const loose = headwise as unknown as Loose;
  const attention = headwise.createAttention(kernels, GROUPED, weightsOf(GROUPED, 1));
  const cache = headwise.createCache(attention, { maxSeqLen: 4 });
  const floats = await start({ quantized: undefined });
  const plain = headwise.createAttention(floats, GROUPED, weightsOf(GROUPED, 1));
  const x = createRandom(2).floats(3 * 64);
  headwise.attend(attention, x, { cache });
  const make = (config: object, weights: object = {}) =>
    loose.createAttention?.(kernels, { ...GROUPED, ...config }, { ...weightsOf(GROUPED, 1), ...weights });
  const tensor = (...shape: number[]): Tensor => ({ data: new Float32Array(shape.reduce((a, b) => a * b, 1)), shape });

  const calls: Readonly<
    Record<string, readonly [call: () => unknown, kind: Expected["kind"], text: Expected["text"]]>
  > = {
    "a length that is no multiple": [
      () => headwise.attend(attention, new Float32Array(100)),
      "RangeError",
      "attend: x expected a multiple of dModel (64) floats, got 100",
    ],
    "an array of another kind": [
      () => loose.attend?.(attention, [1, 2]),
      "TypeError",
      "attend: x expected Float32Array, got Array",
    ],
    "no attention": [
      () => loose.attend?.({}, x),
      "TypeError",
      "attend: attention expected what createAttention or createLatentAttention gives, got Object",
    ],
    "a misspelt option": [
      () => loose.attend?.(attention, x, { cahce: cache }),
      "TypeError",
      /^attend: options expected only .*, got "cahce"$/,
    ],
    "a full cache": [
      () => headwise.attend(attention, x, { cache }),
      "CACHE_FULL",
      "attend: past 3 + qLen 3 exceeds maxSeqLen 4",
    ],
    "heads that do not group": [
      () => make({ numKvHeads: 3 }),
      "RangeError",
      /^createAttention: numHeads expected a multiple of numKvHeads \(3\), got 8/,
    ],
    "RoPE without a pairing": [
      () => make({ rope: { theta: 100 } }),
      "RangeError",
      'createAttention: rope.pairing expected "half" or "interleaved" (no default), got undefined',
    ],
    "a matrix of another shape": [
      () => make({}, { wk: tensor(64, 16) }),
      "RangeError",
      "createAttention: wk expected shape [16, 64], got [64, 16]",
    ],
    "an unknown weight": [
      () => make({}, { bQ: new Float32Array(64) }),
      "TypeError",
      /^createAttention: weights expected only .*, got "bQ": use bq$/,
    ],
    "no kernels": [
      () => loose.createAttention?.({}, GROUPED, weightsOf(GROUPED, 1)),
      "TypeError",
      "createAttention: kernels expected what loadKernels gives, got Object",
    ],
    "a cache without a size": [
      () => loose.createCache?.(attention, {}),
      "TypeError",
      /^createCache: .*maxSeqLen expected an integer >= 1, got undefined$/,
    ],
    "a cache of an unknown format": [
      () => loose.createCache?.(attention, { maxSeqLen: 4, format: "q5" }),
      "RangeError",
      /^createCache: .*format.* got "q5"$/,
    ],
    "threads that are no number": [
      () => start({ threads: 0 }),
      "RangeError",
      'loadKernels: threads expected "auto" or an integer from 1 to 64, got 0',
    ],
    "an unknown option of loadKernels": [
      () => start({ simd: true }),
      "TypeError",
      /^loadKernels: options expected only .*, got "simd"$/,
    ],
    "bytes that are not wasm": [
      () => start({ module: new TextEncoder().encode("<!doctype html>") }),
      "NOT_WASM",
      'loadKernels: module expected bytes that begin 00 61 73 6d, got 3c 21 64 6f 63 74 79 70 65 20 68 74 ("<!doctype ht")',
    ],
    "a page where wasm should be": [
      () => start({ module: new Response("<!doctype html>", { headers: { "Content-Type": "text/html" } }) }),
      "NOT_WASM",
      /^loadKernels: module expected bytes that begin 00 61 73 6d, got 3c 21 64 6f .*"<!doctype ht".*200.*text\/html/,
    ],
    "an answer that says no": [
      () => start({ module: Promise.resolve(new Response("gone", { status: 404 })) }),
      "NOT_WASM",
      /^loadKernels: module .*404/,
    ],
    "quantised weights on kernels of floats": [
      () => loose.createAttention?.(floats, GROUPED, weightsOf(GROUPED, 1), { weights: "q8" }),
      "NO_QUANTIZED",
      /^createAttention: .*headwise\/quantized/,
    ],
    "a quantised cache on kernels of floats": [
      () => loose.createCache?.(plain, { maxSeqLen: 4, format: "q4" }),
      "NO_QUANTIZED",
      /^createCache: .*headwise\/quantized/,
    ],
  };
  for (const [name, [call, kind, text]] of Object.entries(calls))
    await check(`errors: ${name}`, () => expectThrown(call, { kind, text }));
  await check("errors: none of them changed the cache, and one that fits still goes", () => {
    expectEqual("length", cache.length, 3);
    headwise.attend(attention, x.subarray(0, 64), { cache });
    expectEqual("length", cache.length, 4);
  });
  await check("errors: kernels say whether they know quantised formats", () =>
    expectEqual("quantized", `${kernels.quantized} ${floats.quantized}`, "true false"),
  );
  floats.release();
  cache.release();
  attention.release();
}
