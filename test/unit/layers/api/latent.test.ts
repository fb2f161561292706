// The texts of errors of latent attention, call by call: each names the function, the argument, the rule and the value, and
// the call leaves everything as it was.

import { expect, test } from "vitest";
import * as core from "../../../../src/entries/core.ts";
import {
  type Attention,
  type Cache,
  HeadwiseError,
  type HeadwiseErrorCode,
  loadKernels,
  type Tensor,
} from "../../../../src/entries/core.ts";
import type { LatentAttention } from "../../../../src/entries/latent.ts";
import * as latentEntry from "../../../../src/entries/latent.ts";
import { quantizeReport } from "../../../../src/entries/quantized.ts";
import { attendSharded, createShardedAttention } from "../../../../src/entries/shards.ts";
import { firstDifference, kernelsOf } from "../../../support/layers.ts";
import { modulesOf, wasmOf } from "../../../support/modules.ts";

type Loose<T = unknown> = (...args: readonly unknown[]) => T;
type Kind = typeof TypeError | typeof RangeError | HeadwiseErrorCode;
type Row = readonly [call: () => unknown, kind: Kind, text: string];

// Callers from JavaScript: any argument may be anything.
const { attend, attendAsync, attendMany, attendWithMaps, createAttention, createCache } = core as unknown as Record<
  "attend" | "attendAsync" | "attendMany" | "attendWithMaps",
  Loose
> & { readonly createAttention: Loose<Attention>; readonly createCache: Loose<Cache> };
const { createLatentAttention, planLatent } = latentEntry as unknown as {
  readonly createLatentAttention: Loose<LatentAttention>;
  readonly planLatent: Loose;
};

const f = (length: number) => new Float32Array(length);
const t = (...shape: number[]): Tensor => ({ data: f(shape.reduce((a, b) => a * b, 1)).fill(0.1), shape });
const stored = (dtype: string, shape: number[], bytes: number) => ({ dtype, shape, bytes: new Uint8Array(bytes) });
const rope = { theta: 100, pairing: "half" };

/** Keys of 4 + 2, values of 3, from latents of 5. */
const config = { dModel: 8, numHeads: 2, kvLoraRank: 5, nopeDim: 4, ropeDim: 2, valueDim: 3, causal: true, rope };
const weights = { wq: t(12, 8), wkvDown: t(7, 8), kvNorm: f(5).fill(1), wkvUp: t(14, 5), wo: t(8, 6) };
/** The same with queries from latents of 3. */
const lowRank = { wq: undefined, wqDown: t(3, 8), qNorm: f(3).fill(1), wqUp: t(12, 3) };

const CONFIG =
  "dModel, numHeads, kvLoraRank, qLoraRank, nopeDim, ropeDim, valueDim, rope, latentNorm, normEps, causal, scale, softcap";
const WEIGHTS = "wq, wqDown, wqUp, wkvDown, wkvUp, wo, qNorm, kvNorm, bq, bqDown, bkvDown, bo, layout";
const FORMATS = '"f32" or "f16" or "bf16" or "q8" or "q8-row" or "q4"';

function thrownBy(run: () => unknown): { message: string; kind: unknown } {
  try {
    run();
  } catch (error) {
    return { message: (error as Error).message, kind: kindOf(error as Error) };
  }
  throw new Error(`accepted: ${run}`);
}

const kindOf = (error: Error) => (error instanceof HeadwiseError ? error.code : error.constructor);

test("every wrong call throws its exact text and changes nothing", async () => {
  using kernels = await kernelsOf("simd");
  using without = await loadKernels({ module: wasmOf("simd") });
  using floatsOnly = await loadKernels({ module: wasmOf("simd"), latent: modulesOf("simd").latent });
  const make = (rules: object = {}, parts: object = {}, options?: unknown) =>
    createLatentAttention(kernels, { ...config, ...rules }, { ...weights, ...parts }, options);
  const absorbed = make();
  const attention = make({}, {}, { expanded: true });
  const cache = createCache(attention, { maxSeqLen: 4 });
  attend(attention, f(24).fill(1), { cache });
  const foreignCache = createCache(absorbed, { maxSeqLen: 4 });
  const eye = t(8, 8);
  const plain = createAttention(kernels, { dModel: 8, numHeads: 2 }, { wq: eye, wk: eye, wv: eye, wo: eye });
  const plainCache = createCache(plain, { maxSeqLen: 4 });
  const gone = make();
  gone.release();
  const dead = await kernelsOf("simd");
  const deadAttention = createLatentAttention(dead, config, weights);
  dead.release();
  const call = (options: unknown, layer = attention, floats = 24) => attend(layer, f(floats).fill(1), options);
  const made = (options: object) => createCache(attention, { maxSeqLen: 4, ...options });

  const tables: Readonly<Record<string, readonly Row[]>> = {
    createLatentAttention: [
      [
        () => createLatentAttention(undefined, config, weights),
        TypeError,
        "kernels expected what loadKernels gives, got undefined",
      ],
      [
        () => createLatentAttention(attention, config, weights),
        TypeError,
        "kernels expected what loadKernels gives, got LatentAttention",
      ],
      [
        () => createLatentAttention({ ...kernels }, config, weights),
        TypeError,
        "kernels expected what loadKernels gives, got a copy",
      ],
      [() => createLatentAttention(dead, config, weights), "RELEASED", "kernels was released"],
      [
        () => createLatentAttention(without, config, weights),
        "NO_LATENT",
        "kernels expected ones that were loaded with { latent }, which headwise/latent exports, got kernels without it",
      ],
      [
        () => createLatentAttention(floatsOnly, config, weights, { weights: "q8" }),
        "NO_QUANTIZED",
        'format of q expected "f32", the only format of these kernels, got "q8"; loadKernels({ quantized }), from headwise/quantized, loads the others',
      ],
      [
        () => createLatentAttention(floatsOnly, config, weights, { weights: { o: "f16" } }),
        "NO_QUANTIZED",
        'format of o expected "f32", the only format of these kernels, got "f16"; loadKernels({ quantized }), from headwise/quantized, loads the others',
      ],
      [
        () =>
          createLatentAttention(
            floatsOnly,
            { ...config, kvLoraRank: 32 },
            { ...weights, wkvDown: t(34, 8), kvNorm: f(32), wkvUp: stored("Q8_0", [14, 32], 476) },
          ),
        "NO_QUANTIZED",
        'format of v expected "f32", the only format of these kernels, got "q8"; loadKernels({ quantized }), from headwise/quantized, loads the others',
      ],
      [() => createLatentAttention(kernels), TypeError, "config expected an object, got undefined"],
      [() => createLatentAttention(kernels, config), TypeError, "weights expected an object, got undefined"],
      [() => make({ hidden: 8 }), TypeError, `config expected only ${CONFIG}, got "hidden"`],
      [() => make({ dModel: 0 }), RangeError, "dModel expected an integer >= 1, got 0"],
      [() => make({ dModel: 8.5 }), RangeError, "dModel expected an integer >= 1, got 8.5"],
      [() => make({ dModel: "8" }), TypeError, 'dModel expected an integer >= 1, got "8"'],
      [() => make({ numHeads: 0 }), RangeError, "numHeads expected an integer from 1 to 65536, got 0"],
      [() => make({ numHeads: 65_537 }), RangeError, "numHeads expected an integer from 1 to 65536, got 65537"],
      [() => make({ kvLoraRank: undefined }), TypeError, "kvLoraRank expected an integer >= 1, got undefined"],
      [() => make({ kvLoraRank: 0 }), RangeError, "kvLoraRank expected an integer >= 1, got 0"],
      [() => make({ kvLoraRank: -5 }), RangeError, "kvLoraRank expected an integer >= 1, got -5"],
      [() => make({ qLoraRank: 0 }), RangeError, "qLoraRank expected an integer >= 1, got 0"],
      [() => make({ qLoraRank: null }), TypeError, "qLoraRank expected an integer >= 1, got null"],
      [() => make({ nopeDim: 0 }), RangeError, "nopeDim expected an integer >= 1, got 0"],
      [() => make({ nopeDim: Number.NaN }), RangeError, "nopeDim expected an integer >= 1, got NaN"],
      [() => make({ ropeDim: undefined }), TypeError, "ropeDim expected an integer >= 0, got undefined"],
      [() => make({ ropeDim: -2 }), RangeError, "ropeDim expected an integer >= 0, got -2"],
      [() => make({ ropeDim: 3 }), RangeError, "ropeDim expected an even integer, got 3"],
      [() => make({ ropeDim: 0 }), RangeError, "rope expected none for ropeDim 0, got Object"],
      [() => make({ rope: undefined }), RangeError, "rope expected for ropeDim 2, got undefined"],
      [() => make({ rope: 100 }), TypeError, "rope expected an object, got 100"],
      [() => make({ rope: { ...rope, dim: 2 } }), TypeError, 'rope expected only theta, pairing, scaling, got "dim"'],
      [
        () => make({ rope: { theta: 100 } }),
        RangeError,
        'rope.pairing expected "half" or "interleaved" (no default), got undefined',
      ],
      [() => make({ rope: { ...rope, theta: 0 } }), RangeError, "rope.theta expected a finite number > 0, got 0"],
      [() => make({ valueDim: 0 }), RangeError, "valueDim expected an integer >= 1, got 0"],
      [() => make({ latentNorm: 1 }), TypeError, "latentNorm expected true or false, got 1"],
      [() => make({ normEps: -1 }), RangeError, "normEps expected a finite float32 number > 0, got -1"],
      [() => make({ normEps: 1e-50 }), RangeError, "normEps expected a finite float32 number > 0, got 1e-50"],
      [() => make({ causal: "yes" }), TypeError, 'causal expected true or false, got "yes"'],
      [() => make({ scale: 0 }), RangeError, "scale expected a finite float32 number other than 0, got 0"],
      [() => make({ softcap: -1 }), RangeError, "softcap expected a finite float32 number > 0, got -1"],
      [() => make({ window: { left: 3 } }), TypeError, `config expected only ${CONFIG}, got "window"`],
      [() => make({}, { wk: t(12, 8) }), TypeError, `weights expected only ${WEIGHTS}, got "wk"`],
      [() => make({}, { wq: undefined }), TypeError, "wq expected { data, shape }, got undefined"],
      [() => make({}, { wq: f(96) }), TypeError, "wq expected { data, shape }, got Float32Array"],
      [
        () => make({}, { wq: t(8, 12) }),
        RangeError,
        "wq expected shape [12, 8] (numHeads·(nopeDim + ropeDim) outputs, dModel inputs), got [8, 12]",
      ],
      [() => make({}, { wq: t(96) }), RangeError, "wq expected rank 2, got shape [96]"],
      [
        () => make({}, { wq: stored("I8", [12, 8], 96) }),
        RangeError,
        "wq expected dtype F32, F64, F16, BF16, Q8_0 or Q4_0, got I8",
      ],
      [() => make({}, { wqDown: t(3, 8) }), RangeError, "wqDown expected none without config.qLoraRank, got Object"],
      [() => make({}, { wqUp: t(12, 3) }), RangeError, "wqUp expected none without config.qLoraRank, got Object"],
      [() => make({}, { qNorm: f(3) }), RangeError, "qNorm expected none without config.qLoraRank, got Float32Array"],
      [() => make({}, { bqDown: f(3) }), RangeError, "bqDown expected none without config.qLoraRank, got Float32Array"],
      [
        () => make({ qLoraRank: 3 }),
        RangeError,
        "wq expected none with config.qLoraRank, which takes wqDown and wqUp, got Object",
      ],
      [
        () => make({ qLoraRank: 3 }, { ...lowRank, wqDown: undefined }),
        TypeError,
        "wqDown expected { data, shape }, got undefined",
      ],
      [
        () => make({ qLoraRank: 3 }, { ...lowRank, wqDown: t(4, 8) }),
        RangeError,
        "wqDown expected shape [3, 8] (qLoraRank outputs, dModel inputs), got [4, 8]",
      ],
      [
        () => make({ qLoraRank: 4 }, { ...lowRank, wqDown: t(4, 8) }),
        RangeError,
        "wqUp expected shape [12, 4] (numHeads·(nopeDim + ropeDim) outputs, qLoraRank inputs), got [12, 3]",
      ],
      [
        () => make({ qLoraRank: 3 }, { ...lowRank, qNorm: undefined }),
        RangeError,
        "qNorm expected 3 floats, or latentNorm: false, got undefined",
      ],
      [() => make({ qLoraRank: 3 }, { ...lowRank, qNorm: f(4) }), RangeError, "qNorm expected 3 floats, got 4"],
      [() => make({ qLoraRank: 3 }, { ...lowRank, bqDown: f(8) }), RangeError, "bqDown expected 3 floats, got 8"],
      [
        () => make({}, { wkvDown: t(5, 8) }),
        RangeError,
        "wkvDown expected shape [7, 8] (kvLoraRank + ropeDim outputs, dModel inputs), got [5, 8]",
      ],
      [
        () => make({ kvLoraRank: 6 }),
        RangeError,
        "wkvDown expected shape [8, 8] (kvLoraRank + ropeDim outputs, dModel inputs), got [7, 8]",
      ],
      [
        () => make({ ropeDim: 4 }, { wq: t(16, 8) }),
        RangeError,
        "wkvDown expected shape [9, 8] (kvLoraRank + ropeDim outputs, dModel inputs), got [7, 8]",
      ],
      [
        () => make({}, { kvNorm: undefined }),
        RangeError,
        "kvNorm expected 5 floats, or latentNorm: false, got undefined",
      ],
      [() => make({}, { kvNorm: f(7) }), RangeError, "kvNorm expected 5 floats, got 7"],
      [() => make({ latentNorm: false }), RangeError, "kvNorm expected none with latentNorm: false, got Float32Array"],
      [
        () => make({}, { wkvUp: t(16, 5) }),
        RangeError,
        "wkvUp expected shape [14, 5] (numHeads·(nopeDim + valueDim) outputs, kvLoraRank inputs), got [16, 5]",
      ],
      [
        () => make({ valueDim: 4 }),
        RangeError,
        "wkvUp expected shape [16, 5] (numHeads·(nopeDim + valueDim) outputs, kvLoraRank inputs), got [14, 5]",
      ],
      [
        () => make({}, { wkvUp: { data: f(70), shape: [5, 14] } }),
        RangeError,
        "wkvUp expected shape [14, 5] (numHeads·(nopeDim + valueDim) outputs, kvLoraRank inputs), got [5, 14]",
      ],
      [
        () => make({}, { layout: "in-out" }),
        RangeError,
        "wq expected shape [8, 12] (numHeads·(nopeDim + ropeDim) outputs, dModel inputs), got [12, 8]",
      ],
      [() => make({}, { layout: "nk" }), RangeError, 'weights.layout expected "out-in" or "in-out", got "nk"'],
      [
        () => make({}, { wo: t(6, 8) }),
        RangeError,
        "wo expected shape [8, 6] (dModel outputs, numHeads·valueDim inputs), got [6, 8]",
      ],
      [() => make({}, { bq: f(8) }), RangeError, "bq expected 12 floats, got 8"],
      [() => make({}, { bkvDown: f(5) }), RangeError, "bkvDown expected 7 floats, got 5"],
      [() => make({}, { bo: [0] }), TypeError, "bo expected Float32Array, got Array"],
      [() => make({}, {}, null), TypeError, "options expected an object, got null"],
      [
        () => make({}, {}, { path: "expanded" }),
        TypeError,
        'options expected only weights, activations, expanded, got "path"',
      ],
      [() => make({}, {}, { expanded: 1 }), TypeError, "options.expanded expected true or false, got 1"],
      [() => make({}, {}, { weights: "q5" }), RangeError, `options.weights expected ${FORMATS}, got "q5"`],
      [
        () => make({}, {}, { weights: { kv: "q8" } }),
        TypeError,
        'options.weights expected only qDown, q, kvDown, k, v, o, got "kv"',
      ],
      [
        () => make({}, {}, { weights: { kvDown: "q5" } }),
        RangeError,
        `options.weights.kvDown expected ${FORMATS}, got "q5"`,
      ],
      [
        () => make({}, {}, { activations: "slow" }),
        RangeError,
        'options.activations expected "exact" or "fast", got "slow"',
      ],
    ],
    createCache: [
      [
        () => createCache({ ...attention }, { maxSeqLen: 4 }),
        TypeError,
        "attention expected what createAttention or createLatentAttention gives, got a copy",
      ],
      [() => createCache(gone, { maxSeqLen: 4 }), "RELEASED", "attention was released"],
      [() => createCache(deadAttention, { maxSeqLen: 4 }), "RELEASED", "attention.kernels was released"],
      [
        () => made({ format: "q4" }),
        RangeError,
        'format expected "f32", "f16" or "q8" for latent attention, got keys "q4" and values "q4"',
      ],
      [() => made({ format: "q5" }), RangeError, 'format expected "f32" or "f16" or "q8" or "q4", got "q5"'],
      [
        () => made({ format: { keys: "f16", values: "q8" } }),
        RangeError,
        'format expected "f32", "f16" or "q8" for latent attention, got keys "f16" and values "q8"',
      ],
      [
        () =>
          made({
            format: [
              { keys: "f32", values: "f32", tokens: 128 },
              { keys: "q8", values: "q8" },
            ],
          }),
        RangeError,
        "format expected one format for latent attention, got stages",
      ],
    ],
    attend: [
      [() => call({ path: "sideways" }), RangeError, 'path expected "absorbed" or "expanded", got "sideways"'],
      [() => call({ path: 1 }), TypeError, 'path expected "absorbed" or "expanded", got 1'],
      [() => call({ path: null }), TypeError, 'path expected "absorbed" or "expanded", got null'],
      [
        () => call({ path: "expanded" }, absorbed),
        RangeError,
        'path expected "absorbed" for a layer that was made without { expanded: true }, got "expanded"',
      ],
      [
        () => attend(plain, f(24), { path: "absorbed" }),
        RangeError,
        'path expected none but for latent attention, got "absorbed"',
      ],
      [() => call({ keys: f(16) }), RangeError, "keys expected none with latent attention, got Float32Array"],
      [
        () => call({ keys: f(24), values: f(24) }),
        RangeError,
        "keys expected none with latent attention, got Float32Array",
      ],
      [() => call({ values: f(24) }), RangeError, "values expected none with latent attention, got Float32Array"],
      [() => call({ cache, append: false }), RangeError, "append expected true with latent attention, got false"],
      [
        () => call({ cache, append: false, positions: [0, 1, 2], align: "start" }),
        RangeError,
        "append expected true with latent attention, got false",
      ],
      [() => call({ append: false }), RangeError, "append expected true with latent attention, got false"],
      [
        () => call({ cache: foreignCache }),
        RangeError,
        "cache expected one made for this attention, got one of another",
      ],
      [() => call({ cache: plainCache }), RangeError, "cache expected one made for this attention, got one of another"],
      [
        () => attend(plain, f(24), { cache }),
        RangeError,
        "cache expected one made for this attention, got one of another",
      ],
      [() => call({ cache }), "CACHE_FULL", "past 3 + qLen 3 exceeds maxSeqLen 4"],
      [() => call({}, attention, 25), RangeError, "x expected a multiple of dModel (8) floats, got 25"],
      [() => call({}, gone), "RELEASED", "attention was released"],
      [() => call({}, deadAttention), "RELEASED", "attention.kernels was released"],
      [() => call({ positions: [0, 1] }), RangeError, "positions expected 3 integers, got 2"],
      [() => call({ batch: 2, cache }), RangeError, "batch expected that of the cache (1), got 2"],
    ],
    attendMany: [
      [
        () => attendMany(attention, [{ x: f(8) }, { x: f(8), path: "expanded" }]),
        RangeError,
        ', call 1: path expected that of call 0 ("absorbed"), got "expanded"',
      ],
      [
        () => attendMany(absorbed, [{ x: f(8), path: "expanded" }]),
        RangeError,
        ', call 0: path expected "absorbed" for a layer that was made without { expanded: true }, got "expanded"',
      ],
      [
        () => attendMany(attention, [{ x: f(8) }, { x: f(8), keys: f(8) }]),
        RangeError,
        ", call 1: keys expected none with latent attention, got Float32Array",
      ],
    ],
    attendWithMaps: [
      [
        () => attendWithMaps(absorbed, f(8), { path: "expanded" }),
        RangeError,
        'path expected "absorbed" for a layer that was made without { expanded: true }, got "expanded"',
      ],
      [
        () => attendWithMaps(attention, f(8), { keys: f(8) }),
        RangeError,
        "keys expected none with latent attention, got Float32Array",
      ],
      [
        () => attendWithMaps(plain, f(8), { path: "expanded" }),
        RangeError,
        'path expected none but for latent attention, got "expanded"',
      ],
    ],
    quantizeReport: [
      [
        () => quantizeReport(attention, f(8)),
        TypeError,
        "attention expected what createAttention gives, got LatentAttention",
      ],
    ],
    planLatent: [
      [() => planLatent(), TypeError, "config expected an object, got undefined"],
      [() => planLatent({ ...config, kvLoraRank: 0 }), RangeError, "kvLoraRank expected an integer >= 1, got 0"],
      [() => planLatent(config, { maxSeqLen: 0 }), RangeError, "maxSeqLen expected an integer >= 1, got 0"],
      [
        () => planLatent(config, { path: "sideways" }),
        RangeError,
        'path expected "absorbed" or "expanded", got "sideways"',
      ],
      [
        () => planLatent(config, { maxSeqLen: 4, format: "q4" }),
        RangeError,
        'format expected "f32", "f16" or "q8" for latent attention, got keys "q4" and values "q4"',
      ],
      [() => planLatent(config, { format: "q8" }), RangeError, 'format expected none without maxSeqLen, got "q8"'],
      [
        () => planLatent(config, { path: "expanded", expanded: false }),
        RangeError,
        'path expected "absorbed" with expanded: false, got "expanded"',
      ],
      [
        () => planLatent(config, { keyLen: 4 }),
        TypeError,
        'sizes expected only batch, qLen, maxSeqLen, format, path, maps, weights, expanded, keep, drop, bias, got "keyLen"',
      ],
      [() => planLatent(config, { weights: "q5" }), RangeError, `weights expected ${FORMATS}, got "q5"`],
      [() => planLatent(config, { weights: { v: 3 } }), TypeError, `weights.v expected ${FORMATS}, got 3`],
    ],
  };
  const used = () => [kernels, without, floatsOnly].map(({ usedBytes, memoryBytes }) => [usedBytes, memoryBytes]);
  const next = () => attend(attention, f(8).fill(1), { cache }) as Float32Array;
  const want = next();
  cache.truncate(3);
  const before = used();
  for (const [where, rows] of Object.entries(tables))
    for (const [run, kind, text] of rows) {
      const message = `${where}${text.startsWith(",") ? "" : ": "}${text}`;
      expect(thrownBy(run)).toEqual({ message, kind });
      expect([used(), cache.length], text).toEqual([before, 3]);
    }

  const rejections: readonly (readonly [run: () => Promise<unknown>, kind: Kind, text: string])[] = [
    [
      () => attendAsync(attention, f(8), { path: "sideways" }) as Promise<unknown>,
      RangeError,
      'attendAsync: path expected "absorbed" or "expanded", got "sideways"',
    ],
    [
      () => attendAsync(absorbed, f(8), { path: "expanded" }) as Promise<unknown>,
      RangeError,
      'attendAsync: path expected "absorbed" for a layer that was made without { expanded: true }, got "expanded"',
    ],
    [
      () => attendAsync(attention, f(8), { keys: f(8) }) as Promise<unknown>,
      RangeError,
      "attendAsync: keys expected none with latent attention, got Float32Array",
    ],
    [
      () => loadKernels({ module: wasmOf("simd"), latent: { relaxed: modulesOf("relaxed").latent.relaxed! } }),
      "NO_LATENT",
      "loadKernels: latent.simd expected the modules of the build that runs here, got undefined",
    ],
    [
      () => loadKernels({ module: wasmOf("simd"), latent: { simd: { latents: wasmOf("latents-relaxed") } } }),
      RangeError,
      "loadKernels: latent.simd.latents expected a module of the simd build, got one of relaxed",
    ],
    [
      () => loadKernels({ module: wasmOf("simd"), latent: { simd: { latents: wasmOf("caches-simd") } } }),
      "ABI_MISMATCH",
      "loadKernels: latent.simd.latents expected the module of latents, got the module of caches",
    ],
  ];
  for (const [run, kind, text] of rejections) {
    const error = await run().then(
      () => new Error("accepted"),
      (reason: Error) => reason,
    );
    expect([error.message, kindOf(error)]).toEqual([text, kind]);
    expect([used(), cache.length], text).toEqual([before, 3]);
  }
  expect(firstDifference(next(), want)).toBe(-1);
});

test("sharded layers have no paths, and take no latent attention", async () => {
  const eye = t(8, 8);
  const rules = { dModel: 8, numHeads: 2 };
  const sharded = await createShardedAttention(rules, { wq: eye, wk: eye, wv: eye, wo: eye }, { shards: 1 });
  const call = attendSharded(sharded, f(8), { path: "absorbed" } as object);
  await expect(call).rejects.toThrow(
    new TypeError(
      'attendSharded: options expected only signal, batch, cache, append, keys, values, kvLengths, align, keep, drop, bias, positions, out, got "path"',
    ),
  );
  sharded.release();
  using kernels = await kernelsOf("simd");
  const attention = createLatentAttention(kernels, config, weights);
  await expect(attendSharded(attention as never, f(8))).rejects.toThrow(
    new TypeError("attendSharded: attention expected what createShardedAttention gives, got LatentAttention"),
  );
});
