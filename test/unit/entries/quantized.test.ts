// Kernels in modules: what those of floats refuse before anything changes, what `quantized` must be, and who may share it.

import { expect, test } from "vitest";
import {
  attend,
  createAttention,
  createCache,
  type HeadwiseError,
  type Kernels,
  loadKernels,
  type StoredTensor,
  type WeightTensor,
} from "../../../src/entries/core.ts";
import { loadKernels as loadDefault } from "../../../src/entries/index.ts";
import { quantizeReport } from "../../../src/entries/quantized.ts";
import { createShardedAttention } from "../../../src/entries/shards.ts";
import { loadKernels as loadThreads } from "../../../src/entries/threads.ts";
import { quantizeTensor, toFloats } from "../../../src/entries/weights.ts";
import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import type { QuantizedKernels } from "../../../src/wasm/modules.ts";
import { floats } from "../../support/harness.ts";
import { firstDifference, matrix, quantized, randomWeights, shippedBuilds } from "../../support/layers.ts";
import { modulesOf, quantizedOf, wasmOf } from "../../support/modules.ts";

const random = createRandom(5);
const config = { dModel: 64, numHeads: 2, causal: true };
const weights = randomWeights(random, config);
const x = floats(random, 5 * 64);

const known = (what: string, format: string, loader = "loadKernels(") =>
  `format of ${what} expected "f32", the only format of these kernels, got "${format}"; ` +
  `${loader}{ quantized }), from headwise/quantized, loads the others`;

/** The error that `work` throws, by code and text, and what it took of the kernels. */
function refused(kernels: Kernels, work: () => unknown): { code: string; message: string } {
  const before = [kernels.usedBytes, kernels.memoryBytes];
  let error: unknown;
  try {
    work();
  } catch (caught) {
    error = caught;
  }
  expect([kernels.usedBytes, kernels.memoryBytes]).toEqual(before);
  const { code, message } = error as HeadwiseError;
  return { code, message };
}

test("kernels of floats refuse weights of every other format, asked for or stored, before anything changes", async () => {
  using kernels = await loadKernels({ module: wasmOf("simd") });
  expect(kernels.quantized).toBe(false);
  for (const format of ["f16", "bf16", "q8", "q8-row", "q4"] as const)
    for (const [asked, part] of [
      [format, "wq"],
      [{ v: format }, "wv"],
      [{ o: format }, "wo"],
    ] as const)
      expect(refused(kernels, () => createAttention(kernels, config, weights, { weights: asked }))).toEqual({
        code: "NO_QUANTIZED",
        message: `createAttention: ${known(part, format)}`,
      });
  const bytes = { Q8_0: 128 * 34, Q4_0: 128 * 18 };
  for (const [dtype, format] of [
    ["Q8_0", "q8"],
    ["Q4_0", "q4"],
  ] as const) {
    const stored: StoredTensor = { name: "w", dtype, shape: [64, 64], bytes: new Uint8Array(bytes[dtype]) };
    expect(refused(kernels, () => createAttention(kernels, config, { ...weights, wk: stored }))).toEqual({
      code: "NO_QUANTIZED",
      message: `createAttention: ${known("wk", format)}`,
    });
    // As floats they are welcome.
    createAttention(kernels, config, { ...weights, wk: stored }, { weights: "f32" }).release();
  }
});

test.each(["F16", "BF16"] as const)("kernels of floats widen stored %s, with the bits of its floats", async (dtype) => {
  using kernels = await loadKernels({ module: wasmOf("simd") });
  const stored = quantizeTensor(weights.wk as WeightTensor, dtype);
  const run = (wk: WeightTensor) => {
    using attention = createAttention(kernels, config, { ...weights, wk });
    return { y: attend(attention, x), formats: attention.formats };
  };
  const [got, want] = [run(stored), run({ data: toFloats(stored), shape: [64, 64] })];
  expect(got.formats.k).toBe("f32");
  expect(got.y).toEqual(want.y);
});

test("kernels of floats refuse caches and trials of every other format, before anything changes", async () => {
  using kernels = await loadKernels({ module: wasmOf("relaxed") });
  const attention = createAttention(kernels, config, weights);
  createCache(attention, { maxSeqLen: 9, format: "f32" }).release();
  for (const [format, part, name] of [
    ["q8", "keys", "q8"],
    [{ keys: "f32", values: "f16" }, "values", "f16"],
    [
      [
        { keys: "f32", values: "f32", tokens: 128 },
        { keys: "q4", values: "q8" },
      ],
      "keys",
      "q4",
    ],
  ] as const)
    expect(refused(kernels, () => createCache(attention, { maxSeqLen: 9, format }))).toEqual({
      code: "NO_QUANTIZED",
      message: `createCache: ${known(part, name)}`,
    });
  expect(refused(kernels, () => quantizeReport(attention, x, { trials: [{}, { weights: { k: "q4" } }] }))).toEqual({
    code: "NO_QUANTIZED",
    message: `quantizeReport: ${known("wk", "q4")}`,
  });
  expect(refused(kernels, () => quantizeReport(attention, x, { trials: [{ cache: "q8" }] }))).toEqual({
    code: "NO_QUANTIZED",
    message: `quantizeReport: ${known("keys", "q8")}`,
  });
});

test("shards of floats refuse other weights before they start, and with `quantized` they take them", async () => {
  const create = createShardedAttention(config, weights, { weights: { o: "q8" } });
  await expect(create).rejects.toMatchObject({
    code: "NO_QUANTIZED",
    message: `createShardedAttention: ${known("wo", "q8", "createShardedAttention(config, weights, ")}`,
  });
  using attention = await createShardedAttention(config, weights, { weights: { o: "q8" }, shards: 1, quantized });
  expect(attention.shards.used).toBe(1);
});

test.each(shippedBuilds)(
  "modules, bytes and the modules inlined in headwise/quantized give the same bits in %s",
  async (build) => {
    const { weights: ofWeights, caches } = quantizedOf(build);
    const compiled = {
      weights: new WebAssembly.Module(ofWeights as BufferSource),
      caches: new WebAssembly.Module(caches as BufferSource),
    };
    const given: QuantizedKernels[] = [quantized, { [build]: { weights: ofWeights, caches } }, { [build]: compiled }];
    const ys: Float32Array[] = [];
    for (const choice of given) {
      using kernels = await loadKernels({ module: wasmOf(build), quantized: choice });
      expect([kernels.build, kernels.quantized]).toEqual([build, true]);
      const attention = createAttention(kernels, config, weights, { weights: "q4" });
      ys.push(attend(attention, x, { cache: createCache(attention, { maxSeqLen: 9, format: "q8" }) }));
    }
    expect(ys.slice(1).map((y) => firstDifference(y, ys[0] as Float32Array))).toEqual([-1, -1]);
  },
);

test("floats have the same bits with the other modules and without", async () => {
  const ys: Float32Array[] = [];
  for (const choice of [{}, { quantized }]) {
    using kernels = await loadDefault(choice);
    const attention = createAttention(kernels, config, weights);
    ys.push(attend(attention, x, { cache: createCache(attention, { maxSeqLen: 9 }) }));
  }
  expect(firstDifference(ys[0] as Float32Array, ys[1] as Float32Array)).toBe(-1);
});

test("threads know quantized formats, and refuse them without", async () => {
  using alone = await loadDefault({ quantized });
  using kernels = await loadThreads({ threads: 3, quantized });
  expect([kernels.quantized, kernels.threads.used]).toEqual([true, 3]);
  const large = { dModel: 256, numHeads: 4, causal: true };
  const wide = randomWeights(random, large);
  const rows = floats(random, 300 * 256);
  const [want, got] = [alone, kernels].map((engine) => {
    const attention = createAttention(engine, large, wide, { weights: "q8" });
    return attend(attention, rows, { cache: createCache(attention, { maxSeqLen: 300, format: "q4" }) });
  });
  expect(firstDifference(got as Float32Array, want as Float32Array)).toBe(-1);
  using floatsOnly = await loadThreads({ threads: 2 });
  expect([floatsOnly.quantized, floatsOnly.threads.used]).toEqual([false, 2]);
  expect(() => createAttention(floatsOnly, large, wide, { weights: "f16" })).toThrow(known("wq", "f16"));
});

test("loadKernels refuses a wrong quantized with its rule", async () => {
  const [simd, relaxed] = shippedBuilds.map(quantizedOf);
  const { weights: w, caches: c } = simd as ReturnType<typeof quantizedOf>;
  const foreign = Uint8Array.from([0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 2, 7, 1, 1, 97, 1, 98, 0, 0]);
  const rows: readonly [quantized: unknown, kind: unknown, text: string][] = [
    [null, TypeError, "quantized expected an object, got null"],
    [{ fast: {} }, TypeError, 'quantized expected only simd, relaxed, got "fast"'],
    [{ simd: 1 }, TypeError, "quantized.simd expected an object, got 1"],
    [{ relaxed: { weight: w } }, TypeError, 'quantized.relaxed expected only weights, caches, got "weight"'],
    [{}, "NO_QUANTIZED", "quantized.simd expected the modules of the build that runs here, got undefined"],
    [{ relaxed }, "NO_QUANTIZED", "quantized.simd expected the modules of the build that runs here, got undefined"],
    [
      { simd: { weights: w } },
      TypeError,
      "quantized.simd.caches expected WebAssembly.Module or its bytes, got undefined",
    ],
    [
      { simd: { weights: c, caches: w } },
      "ABI_MISMATCH",
      "quantized.simd.weights expected the module of weights, got the module of caches",
    ],
    [
      { simd: { weights: w, caches: w } },
      "ABI_MISMATCH",
      "quantized.simd.caches expected the module of caches, got the module of weights",
    ],
    [
      { simd: { weights: w, caches: wasmOf("simd") } },
      "ABI_MISMATCH",
      "quantized.simd.caches expected the module of caches, got the module of floats",
    ],
    [
      { simd: { weights: w, caches: foreign } },
      "ABI_MISMATCH",
      "quantized.simd expected a module of this package, got one that does not accept its memory",
    ],
    [{ simd: relaxed }, RangeError, "quantized.simd.weights expected a module of the simd build, got one of relaxed"],
    [
      { simd: { weights: "weights.wasm", caches: c } },
      "NOT_WASM",
      'quantized.simd.weights expected a module, its bytes or an inlined module of headwise/quantized, got "weights.wasm"',
    ],
    [
      { simd: { weights: w, caches: Uint8Array.of(60, 33, 68, 79) } },
      "NOT_WASM",
      'quantized.simd.caches expected bytes that begin 00 61 73 6d, got 3c 21 44 4f ("<!DO")',
    ],
  ];
  for (const [given, kind, text] of rows) {
    const error: unknown = await loadKernels({ module: wasmOf("simd"), quantized: given as QuantizedKernels }).catch(
      (reason: unknown) => reason,
    );
    const { message, code } = error as HeadwiseError;
    expect([message, code ?? (error as Error).constructor]).toEqual([`loadKernels: ${text}`, kind]);
  }
});

test("the shape of a matrix is checked before its format", async () => {
  using kernels = await loadKernels({ module: wasmOf("simd") });
  const wrong = { ...weights, wq: matrix(random, 3, 64) };
  expect(() => createAttention(kernels, config, wrong, { weights: "q8" })).toThrow("wq expected shape [64, 64]");
  using all = await loadKernels(modulesOf("simd"));
  expect(() => createAttention(all, config, wrong, { weights: "q8" })).toThrow("wq expected shape [64, 64]");
});

/** What `work` gives while some of what an engine has is something else. */
async function withEngine<T>(scope: object, parts: object, work: () => Promise<T>): Promise<T> {
  const real = Object.fromEntries(Object.keys(parts).map((name) => [name, Reflect.get(scope, name)]));
  try {
    Object.assign(scope, parts);
    return await work();
  } finally {
    Object.assign(scope, real);
  }
}

/** What `work` gives where there is no zlib of Node's, as in a browser, but this class of streams. */
const withStream = <T>(DecompressionStream: unknown, work: () => Promise<T>): Promise<T> =>
  withEngine(process, { getBuiltinModule: () => undefined }, () =>
    withEngine(globalThis, { DecompressionStream }, work),
  );

/** As engines had it before they knew deflate-raw. */
class OldStream {
  constructor(format: string) {
    throw new TypeError(`Unsupported compression format: '${format}'`);
  }
}

test.each([undefined, OldStream])("where DecompressionStream is %o, the error names the remedy", async (stream) => {
  await withStream(stream, async () => {
    await expect(loadDefault()).rejects.toMatchObject({
      code: "NO_DECOMPRESSION",
      message: "loadKernels: this engine lacks DecompressionStream of deflate-raw; give headwise/core the modules",
    });
    (await loadKernels(modulesOf("simd"))).release();
    await withEngine(WebAssembly, { validate: () => false }, () =>
      expect(loadDefault()).rejects.toMatchObject({
        code: "NO_SIMD",
        message:
          "loadKernels: this engine lacks WebAssembly SIMD, which Chrome 103, Firefox 113, Safari 16.4, Node 20.19, Deno and Bun have",
      }),
    );
  });
});

test("a relaxed module that is not wasm throws, and the simd one does not replace it", async () => {
  const { weights: w, caches: c } = quantizedOf("relaxed");
  const damaged = wasmOf("caches-relaxed").fill(0xff, 20_000, 20_100);
  const rows: readonly [relaxed: unknown, kind: unknown, text: string][] = [
    [{ weights: 5, caches: c }, TypeError, "weights expected WebAssembly.Module or its bytes, got 5"],
    [
      { weights: new TextEncoder().encode("<!doctype html>"), caches: c },
      "NOT_WASM",
      'weights expected bytes that begin 00 61 73 6d, got 3c 21 64 6f 63 74 79 70 65 20 68 74 ("<!doctype ht")',
    ],
    [
      { weights: w, caches: damaged },
      "NOT_WASM",
      `caches expected bytes that this engine accepts, got ${damaged.length} that it refuses: damaged, or for newer engines`,
    ],
  ];
  for (const [relaxed, kind, text] of rows) {
    const given = { simd: quantized.simd, relaxed } as QuantizedKernels;
    const error: unknown = await loadDefault({ quantized: given }).catch((reason: unknown) => reason);
    const { message, code } = error as HeadwiseError;
    expect([message, code ?? (error as Error).constructor]).toEqual([`loadKernels: quantized.relaxed.${text}`, kind]);
  }
});

test("an engine without byte products runs the simd build, and kernels.reason tells why", async () => {
  const { validate } = WebAssembly;
  const DOT = Buffer.of(0xfd, 0x93, 0x02);
  const withoutDots = (bytes: Uint8Array<ArrayBuffer>) => validate(bytes) && !Buffer.from(bytes).includes(DOT);
  await withEngine(WebAssembly, { validate: withoutDots }, async () => {
    using kernels = await loadDefault({ quantized });
    expect([kernels.build, kernels.reason]).toEqual([
      "simd",
      "this engine has relaxed SIMD in part: it refuses quantized.relaxed.weights",
    ]);
  });
});

test("each part is unpacked once", async () => {
  let unpacked = 0;
  const { DecompressionStream: Real } = globalThis;
  class Counted extends Real {
    constructor(format: CompressionFormat) {
      super(format);
      unpacked++;
    }
  }
  await withStream(Counted, async () => {
    using kernels = await loadDefault({ quantized });
    expect([kernels.build, unpacked]).toEqual(["relaxed", 3]);
  });
  // Where there is a zlib, no stream is made.
  await withEngine(globalThis, { DecompressionStream: undefined }, async () =>
    (await loadDefault({ quantized })).release(),
  );
});
