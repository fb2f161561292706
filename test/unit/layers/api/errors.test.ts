// The texts of errors, call by call. They are part of the API: each names the function, the argument, the rule and the
// value, and the call leaves everything as it was.

import { expect, test } from "vitest";
import * as core from "../../../../src/entries/core.ts";
import {
  type Attention,
  type Cache,
  HeadwiseError,
  type HeadwiseErrorCode,
  type KvCache,
  type Tensor,
} from "../../../../src/entries/core.ts";
import * as doctor from "../../../../src/entries/doctor.ts";
import type { CachePage } from "../../../../src/entries/models.ts";
import * as sessions from "../../../../src/entries/models.ts";
import * as weightsapi from "../../../../src/entries/weights.ts";
import { firstDifference, kernelsOf } from "../../../support/layers.ts";

type Loose<T = unknown> = (...args: readonly unknown[]) => T;
type Row = readonly [call: () => unknown, kind: typeof TypeError | typeof RangeError | HeadwiseErrorCode, text: string];
const headwise = { ...core, ...doctor, ...sessions, ...weightsapi };

// Callers from JavaScript: any argument may be anything.
const loose = headwise as unknown as Record<
  Exclude<keyof typeof headwise, "createAttention" | "createCache" | "createKvCache">,
  Loose
> & {
  readonly createAttention: Loose<Attention>;
  readonly createCache: Loose<Cache>;
  readonly createKvCache: Loose<KvCache>;
};

const {
  attend,
  attendMany,
  attendWithMaps,
  createAttention,
  createCache,
  createKvCache,
  scaledDotProductAttention,
  applyRope,
} = loose;

const { splitHeads, mergeHeads, plan, alibiSlopes, ropeTables, permuteRope, fromHfConfig } = loose;
const { convertToGqa, convertToMla, countParameters } = loose;

// Fields that there are, as a misspelt one makes them read.
const CONFIG =
  "dModel, numHeads, numKvHeads, headDim, valueDim, kdim, vdim, causal, window, scale, softcap, alibi, rope, qkNorm, addZeroAttn, fused";

const WEIGHTS = "wq, wk, wv, wqkv, wo, bq, bk, bv, bqkv, bo, qNorm, kNorm, sinkLogits, biasK, biasV, layout";
const CALL = "batch, cache, append, keys, values, kvLengths, align, keep, drop, bias, positions, out, path";

const SDPA =
  "causal, window, scale, softcap, alibi, keep, drop, bias, align, kvLengths, layout, sinkLogits, past, cache, present, scores, lse";

const { exportPages, importPages } = loose;
const { readSafetensors, readAttentionWeights, toFloats, selfTest, writeSafetensors } = loose;
const f = (length: number) => new Float32Array(length);
const t = (...shape: number[]): Tensor => ({ data: f(shape.reduce((a, b) => a * b, 1)), shape });
const config = { dModel: 12, numHeads: 3 };
const weights = { wq: t(12, 12), wk: t(12, 12), wv: t(12, 12), wo: t(12, 12) };
const fused = { wq: undefined, wk: undefined, wv: undefined };

function messageOf(run: () => unknown): { error: Error; kind: unknown } {
  try {
    run();
  } catch (error) {
    const thrown = error as Error;
    return { error: thrown, kind: thrown instanceof HeadwiseError ? thrown.code : thrown.constructor };
  }
  throw new Error(`accepted: ${run}`);
}

test("every wrong call throws its exact text and changes nothing", async () => {
  using kernels = await kernelsOf("simd");
  using other = await kernelsOf("simd");
  const attention = createAttention(kernels, config, weights);
  const make = (rules: object, parts: object = {}) =>
    createAttention(kernels, { ...config, ...rules }, { ...weights, ...parts });
  const call = (options: unknown, floats = 36) => attend(attention, f(floats), options);
  const sdpa = (options: object = {}, q = t(1, 2, 3, 4), k = t(1, 1, 3, 4), v = t(1, 1, 3, 4)) =>
    scaledDotProductAttention(kernels, q, k, v, options);
  const rope = (options: object, x = t(1, 1, 3, 4)) =>
    applyRope(kernels, x, { cos: t(3, 2), sin: t(3, 2), pairing: "half", ...options });
  const stored = (dtype: string, shape: number[], bytes: number) => ({ dtype, shape, bytes: new Uint8Array(bytes) });
  const cache = createCache(attention, { maxSeqLen: 4 });
  attend(attention, f(36), { cache });
  const [page] = exportPages(cache) as [CachePage];
  const changed = (word: number, value: number) => {
    const bytes = page.bytes.slice();
    new DataView(bytes.buffer).setUint32(4 * word, value, true);
    return [{ index: 0, bytes }];
  };
  const empty = createCache(attention, { maxSeqLen: 4 });
  const kv = { numKvHeads: 1, headDim: 4, maxSeqLen: 4 };
  const kvCache = createKvCache(kernels, kv);
  const goneKvCache = createKvCache(kernels, kv);
  sdpa({ cache: kvCache }, t(2, 2, 4), t(1, 2, 4), t(1, 2, 4));
  goneKvCache.release();
  const foreignKvCache = createKvCache(other, kv);
  const windowCache = createKvCache(kernels, { ...kv, maxSeqLen: 2000, window: { left: 5 } });
  const prompt = t(1, 300, 4);
  sdpa({ cache: windowCache, window: { left: 5, right: 0 } }, prompt, prompt, prompt);
  const twin = make({});
  const wide = createAttention(
    kernels,
    { ...config, headDim: 6 },
    { wq: t(18, 12), wk: t(18, 12), wv: t(18, 12), wo: t(12, 18) },
  );
  const wideCache = createCache(wide, { maxSeqLen: 4 });
  const causal = make({ causal: true });
  const cross = make({ kdim: 4, vdim: 6 }, { wk: t(12, 4), wv: t(12, 6) });
  const rotating = make({ rope: { theta: 10, pairing: "half" } });
  const rotatingCache = createCache(rotating, { maxSeqLen: 4 });
  attend(rotating, f(36), { cache: rotatingCache });
  const foreign = createAttention(other, config, weights);
  const gone = make({});
  gone.release();
  const goneCache = createCache(attention, { maxSeqLen: 4 });
  goneCache.release();
  const dead = await kernelsOf("simd");
  const deadAttention = createAttention(dead, config, weights);
  const deadCache = createCache(deadAttention, { maxSeqLen: 1 });
  dead.release();
  const y = f(72);
  const detached = <T extends Uint8Array<ArrayBuffer> | Float32Array<ArrayBuffer>>(array: T): T => {
    structuredClone(array.buffer, { transfer: [array.buffer] });
    return array;
  };
  const lost = (length: number) => detached(f(length));
  const copy = { ...attention };
  const yarn = (fields: object) =>
    make({
      rope: { theta: 100, pairing: "half", scaling: { kind: "yarn", factor: 2, originalMaxSeqLen: 8, ...fields } },
    });

  const tables: Readonly<Record<string, readonly Row[]>> = {
    createAttention: [
      [
        () => createAttention(undefined, config, weights),
        TypeError,
        "kernels expected what loadKernels gives, got undefined",
      ],
      [() => createAttention({}, config, weights), TypeError, "kernels expected what loadKernels gives, got Object"],
      [
        () => createAttention(Promise.resolve(kernels), config, weights),
        TypeError,
        "kernels expected what loadKernels gives, got Promise: await it",
      ],
      [
        () => createAttention({ ...kernels }, config, weights),
        TypeError,
        "kernels expected what loadKernels gives, got a copy",
      ],
      [
        () => createAttention(attention, config, weights),
        TypeError,
        "kernels expected what loadKernels gives, got Attention",
      ],
      [
        () => make({}, { wq: { data: lost(144), shape: [12, 12] } }),
        TypeError,
        "wq.data expected Float32Array, got a detached one",
      ],
      [
        () => make({}, { wq: { dtype: "F16", shape: [12, 12], bytes: detached(new Uint8Array(288)) } }),
        TypeError,
        "wq.bytes expected Uint8Array, got a detached one",
      ],
      [() => make({}, { bq: lost(12) }), TypeError, "bq expected Float32Array, got a detached one"],
      [() => make({}, { bq: t(12) }), TypeError, "bq expected Float32Array, got Object: pass its data"],
      [() => make({ alibi: lost(3) }), TypeError, "alibi expected Float32Array, got a detached one"],
      [
        () => make({ rope: { theta: 10, pairing: "half", scaling: { kind: "factors", factors: lost(2) } } }),
        TypeError,
        "rope.scaling.factors expected Float32Array, got a detached one",
      ],
      [
        () => yarn({ mscale: 1e308, mscaleAllDim: 1e308, factor: 1e10 }),
        RangeError,
        "rope.scaling: the factor on scores expected a finite float32 number > 0, got NaN",
      ],
      [
        () => yarn({ attentionFactor: 1e300 }),
        RangeError,
        "rope.scaling: the factor on scores expected a finite float32 number > 0, got Infinity",
      ],
      [
        () => yarn({ betaFast: 1, betaSlow: 2 }),
        RangeError,
        "rope.scaling.betaFast expected a finite number >= betaSlow (2), got 1",
      ],
      [() => make({ fused: "kqv" }), RangeError, 'fused expected "qkv" or "grouped", got "kqv"'],
      [() => createAttention(dead, config, weights), "RELEASED", "kernels was released"],
      [() => createAttention(kernels, undefined, weights), TypeError, "config expected an object, got undefined"],
      [() => createAttention(kernels, config), TypeError, "weights expected an object, got undefined"],
      [
        () => createAttention(kernels, config, weights, { format: "q8" }),
        TypeError,
        'options expected only weights, activations, got "format"',
      ],
      [
        () => createAttention(kernels, config, weights, { weights: 8 }),
        TypeError,
        'options.weights expected "f32" or "f16" or "bf16" or "q8" or "q8-row" or "q4", got 8',
      ],
      [
        () => createAttention(kernels, config, weights, { weights: { wq: "q8" } }),
        TypeError,
        'options.weights expected only q, k, v, o, got "wq"',
      ],
      [
        () => createAttention(kernels, config, weights, { activations: "slow" }),
        RangeError,
        'options.activations expected "exact" or "fast", got "slow"',
      ],
      [
        () => make({}, { wq: stored("I8", [12, 12], 144) }),
        RangeError,
        "wq expected dtype F32, F64, F16, BF16, Q8_0 or Q4_0, got I8",
      ],
      [
        () => make({}, { wq: stored("F16", [12, 12], 144) }),
        RangeError,
        "wq.bytes expected 288 bytes for F16 [12, 12], got 144",
      ],
      [() => make({}, { wq: stored("F16", [144], 288) }), RangeError, "wq expected rank 2, got shape [144]"],
      [() => make({}, { wo: stored("F16", [11, 12], 264) }), RangeError, "wo expected shape [12, 12], got [11, 12]"],
      [
        () => make({}, { wk: stored("Q8_0", [12, 12], 144) }),
        RangeError,
        "wk expected rows of whole blocks of 32, got shape [12, 12]",
      ],
      [
        () => make({}, { wk: { dtype: "F16", shape: [12, 12], bytes: f(144) } }),
        TypeError,
        "wk.bytes expected Uint8Array, got Float32Array",
      ],
      [
        () => make({}, { layout: "in-out", wv: stored("Q4_0", [32, 12], 216) }),
        RangeError,
        'wv expected layout "out-in" for Q4_0, got "in-out"',
      ],
      [() => make({ dModel: "12" }), TypeError, 'dModel expected an integer >= 1, got "12"'],
      [() => make({ dModel: -12 }), RangeError, "dModel expected an integer >= 1, got -12"],
      [() => make({ numHeads: Number.NaN }), RangeError, "numHeads expected an integer from 1 to 65536, got NaN"],
      [() => make({ numHeads: 1.5 }), RangeError, "numHeads expected an integer from 1 to 65536, got 1.5"],
      [() => make({ numHeads: 1e9 }), RangeError, "numHeads expected an integer from 1 to 65536, got 1000000000"],
      [
        () => make({ dModel: 1e9, numHeads: 1e9 }),
        RangeError,
        "numHeads expected an integer from 1 to 65536, got 1000000000",
      ],
      [() => make({ dModel: 10 }), RangeError, "d_model (10) must be divisible by n_heads (3) unless headDim is given"],
      [
        () => make({ dModel: 24, numHeads: 6, numKvHeads: 4 }),
        RangeError,
        "numHeads expected a multiple of numKvHeads (4), got 6",
      ],
      [() => make({ numKvHeads: 0 }), RangeError, "numKvHeads expected an integer >= 1, got 0"],
      [() => make({ numKvHeads: null }), TypeError, "numKvHeads expected an integer >= 1, got null"],
      [() => make({ headDim: 0 }), RangeError, "headDim expected an integer >= 1, got 0"],
      [
        () => make({ headDim: 2 ** 31 }),
        RangeError,
        "headDim expected an integer from 1 to 2147483647, got 2147483648",
      ],
      [() => make({ valueDim: 2.5 }), RangeError, "valueDim expected an integer >= 1, got 2.5"],
      [() => make({ kdim: 0 }), RangeError, "kdim expected an integer >= 1, got 0"],
      [() => make({ vdim: 7n }), TypeError, "vdim expected an integer >= 1, got 7n"],
      [() => make({ causal: "yes" }), TypeError, 'causal expected true or false, got "yes"'],
      [() => make({ window: 4 }), TypeError, "window expected an object, got 4"],
      [() => make({ window: { left: -1 } }), RangeError, "window.left expected an integer >= 0, got -1"],
      [
        () => make({ window: { right: Number.POSITIVE_INFINITY } }),
        RangeError,
        "window.right expected an integer >= 0, got Infinity",
      ],
      [() => make({ scale: 0 }), RangeError, "scale expected a finite float32 number other than 0, got 0"],
      [() => make({ scale: 1e-60 }), RangeError, "scale expected a finite float32 number other than 0, got 1e-60"],
      [() => make({ scale: 2e38 }), RangeError, "scale expected a number from -1e38 to 1e38, got 2e+38"],
      [() => make({ scale: -2e38 }), RangeError, "scale expected a number from -1e38 to 1e38, got -2e+38"],
      [() => make({ softcap: -1 }), RangeError, "softcap expected a finite float32 number > 0, got -1"],
      [() => make({ softcap: null }), TypeError, "softcap expected a finite float32 number > 0, got null"],
      [() => make({ softcap: 2e38 }), RangeError, "softcap expected at most 1e38, got 2e+38"],
      [
        () => make({ scale: 1, softcap: 2 ** -140 }),
        RangeError,
        `scale / softcap expected a finite float32 number other than 0, got ${2 ** 140}`,
      ],
      [
        () => make({ scale: 2 ** -100, softcap: 2 ** 100 }),
        RangeError,
        `scale / softcap expected a finite float32 number other than 0, got ${2 ** -200}`,
      ],
      [() => make({ softcap: 1e300 }), RangeError, "softcap expected a finite float32 number > 0, got 1e+300"],
      [() => make({ alibi: "linear" }), RangeError, 'alibi expected "geometric", got "linear"'],
      [() => make({ alibi: [1, 2, 3] }), TypeError, "alibi expected Float32Array, got Array"],
      [() => make({ alibi: f(2) }), RangeError, "alibi expected one slope per head (3), got 2"],
      [
        () => make({ alibi: Float32Array.of(1, Number.NaN, 1) }),
        RangeError,
        "alibi expected slopes from -1e38 to 1e38, got NaN",
      ],
      [
        () => make({ alibi: Float32Array.of(1, 1, -(2 ** 127)) }),
        RangeError,
        `alibi expected slopes from -1e38 to 1e38, got ${-(2 ** 127)}`,
      ],
      [() => make({ numKVHeads: 3 }), TypeError, `config expected only ${CONFIG}, got "numKVHeads": use numKvHeads`],
      [() => make({ mask: undefined }), TypeError, `config expected only ${CONFIG}, got "mask"`],
      [() => make({ window: { before: 3 } }), TypeError, 'window expected only left, right, got "before"'],
      [
        () => make({ qkNorm: { kind: "full", epsilon: 1e-5 } }),
        TypeError,
        'qkNorm expected only kind, eps, onePlus, got "epsilon"',
      ],
      [
        () => make({ rope: { theta: 100, pairing: "half", ropeDim: 2 } }),
        TypeError,
        'rope expected only theta, pairing, dim, start, scaling, got "ropeDim"',
      ],
      [
        () => make({ rope: { theta: 100, pairing: "half", scaling: { kind: "linear", factor: 2, mscale: 1 } } }),
        TypeError,
        'rope.scaling expected only kind, factor, got "mscale"',
      ],
      [
        () => make({ rope: { theta: 100 } }),
        RangeError,
        'rope.pairing expected "half" or "interleaved" (no default), got undefined',
      ],
      [
        () => make({ rope: { theta: 0, pairing: "half" } }),
        RangeError,
        "rope.theta expected a finite number > 0, got 0",
      ],
      [
        () => make({ rope: { theta: 100, pairing: "half", dim: 3 } }),
        RangeError,
        "rope.dim expected an even integer from 2 to headDim (4), got 3",
      ],
      [
        () => make({ rope: { theta: 100, pairing: "half", dim: 6 } }),
        RangeError,
        "rope.dim expected an even integer from 2 to headDim (4), got 6",
      ],
      [
        () => make({ rope: { theta: 100, pairing: "half", dim: 4, start: 2 } }),
        RangeError,
        "rope.dim expected an even integer from 2 to headDim - start (2), got 4",
      ],
      [
        () => make({ rope: { theta: 100, pairing: "half", start: 1 } }),
        RangeError,
        "rope.dim expected an even integer from 2 to headDim - start (3), got 3",
      ],
      [
        () => make({ rope: { theta: 100, pairing: "half", start: 3 } }),
        RangeError,
        "rope.start expected an integer from 0 to 2, got 3",
      ],
      [
        () => make({ rope: { theta: 100, pairing: "half", scaling: { kind: "dynamic" } } }),
        RangeError,
        'rope.scaling.kind expected "linear" or "ntk" or "llama3" or "yarn" or "factors", got "dynamic"',
      ],
      [
        () => make({ rope: { theta: 100, pairing: "half", scaling: { kind: "linear", factor: 0.5 } } }),
        RangeError,
        "rope.scaling.factor expected a finite number >= 1, got 0.5",
      ],
      [() => make({ qkNorm: { kind: "layer" } }), RangeError, 'qkNorm.kind expected "per-head" or "full", got "layer"'],
      [
        () => make({ qkNorm: { kind: "full", eps: 0 } }),
        RangeError,
        "qkNorm.eps expected a finite float32 number > 0, got 0",
      ],
      [
        () => make({ qkNorm: { kind: "full" } }),
        RangeError,
        "qNorm expected 12 floats for config.qkNorm, got undefined",
      ],
      [() => make({ addZeroAttn: 1 }), TypeError, "addZeroAttn expected true or false, got 1"],
      [() => make({}, { wq: t(12, 11) }), RangeError, "wq expected shape [12, 12], got [12, 11]"],
      [() => make({}, { wo: [] }), TypeError, "wo expected { data, shape }, got Array"],
      [
        () => make({}, { wk: { data: f(3), shape: [12, 12] } }),
        RangeError,
        "wk.data expected 144 floats for shape [12, 12], got 3",
      ],
      [() => make({}, { wk: t(144) }), RangeError, "wk expected rank 2, got shape [144]"],
      [() => make({}, { wv: { data: [], shape: [12, 12] } }), TypeError, "wv.data expected Float32Array, got Array"],
      [() => make({}, { wv: { data: f(144), shape: "12x12" } }), TypeError, 'wv.shape expected an array, got "12x12"'],
      [
        () => make({}, { wv: { data: f(144), shape: [12, -12] } }),
        RangeError,
        "wv.shape[1] expected an integer >= 0, got -12",
      ],
      [() => make({}, { bq: [0] }), TypeError, "bq expected Float32Array, got Array"],
      [() => make({}, { bo: f(11) }), RangeError, "bo expected 12 floats, got 11"],
      [() => make({}, { layout: "nk" }), RangeError, 'weights.layout expected "out-in" or "in-out", got "nk"'],
      [() => make({}, { wqkv: t(36, 12) }), RangeError, "wq expected none beside wqkv, got Object"],
      [() => make({}, { wqkv: t(35, 12), ...fused }), RangeError, "wqkv expected shape [36, 12], got [35, 12]"],
      [() => make({}, { wqkv: t(36, 12), bqkv: f(35), ...fused }), RangeError, "bqkv expected 36 floats, got 35"],
      [
        () => make({ kdim: 6 }, { wqkv: t(36, 12), ...fused }),
        RangeError,
        "wqkv expected kdim and vdim equal to dModel (12), got 6 and 12",
      ],
      [() => make({}, { biasK: f(12) }), RangeError, "biasK and biasV expected both or neither, got biasK alone"],
      [() => make({}, { sinkLogits: f(4) }), RangeError, "sinkLogits expected one per head (3), got 4"],
      [
        () => make({}, { sinkLogits: f(3).fill(Number.POSITIVE_INFINITY) }),
        RangeError,
        "sinkLogits expected logits from -1e38 to 1e38 or -Infinity, got Infinity",
      ],
      [
        () => make({}, { sinkLogits: Float32Array.of(0, -Infinity, -(2 ** 127)) }),
        RangeError,
        `sinkLogits expected logits from -1e38 to 1e38 or -Infinity, got ${-(2 ** 127)}`,
      ],
      [() => make({}, { bqkv: f(36) }), RangeError, "bqkv expected none without wqkv, got Float32Array"],
      [() => make({}, { bQ: f(12) }), TypeError, `weights expected only ${WEIGHTS}, got "bQ": use bq`],
      [() => make({}, { qNorm: f(4) }), RangeError, "qNorm expected none without config.qkNorm, got Float32Array"],
    ],
    createCache: [
      [
        () => createCache(undefined, { maxSeqLen: 4 }),
        TypeError,
        "attention expected what createAttention or createLatentAttention gives, got undefined",
      ],
      [() => createCache(gone, { maxSeqLen: 4 }), "RELEASED", "attention was released"],
      [() => createCache(deadAttention, { maxSeqLen: 4 }), "RELEASED", "attention.kernels was released"],
      [() => createCache(attention), TypeError, "options expected an object, got undefined"],
      [() => createCache(attention, null), TypeError, "options expected an object, got null"],
      [
        () => createCache(attention, { maxSeqLen: 4, batchSize: 2 }),
        TypeError,
        'options expected only maxSeqLen, batch, format, truncatable, got "batchSize"',
      ],
      [() => createCache(attention, {}), TypeError, "maxSeqLen expected an integer >= 1, got undefined"],
      [() => createCache(attention, { maxSeqLen: 0 }), RangeError, "maxSeqLen expected an integer >= 1, got 0"],
      [
        () => createCache(attention, { maxSeqLen: 2 ** 31 }),
        RangeError,
        "maxSeqLen expected an integer from 1 to 2147483647, got 2147483648",
      ],
      [
        () => createCache(attention, { maxSeqLen: 4, batch: 2 ** 31 - 1 }),
        RangeError,
        "batch expected an integer from 1 to 1048576, got 2147483647",
      ],
      [
        () => createCache(attention, { maxSeqLen: 4, truncatable: -1 }),
        RangeError,
        "truncatable expected an integer >= 0, got -1",
      ],
    ],
    createKvCache: [
      [() => createKvCache({}, kv), TypeError, "kernels expected what loadKernels gives, got Object"],
      [() => createKvCache(dead, kv), "RELEASED", "kernels was released"],
      [() => createKvCache(kernels), TypeError, "options expected an object, got undefined"],
      [() => createKvCache(kernels, null), TypeError, "options expected an object, got null"],
      [
        () => createKvCache(kernels, { ...kv, dModel: 4 }),
        TypeError,
        'options expected only numKvHeads, headDim, valueDim, window, maxSeqLen, batch, format, truncatable, got "dModel"',
      ],
      [
        () => createKvCache(kernels, { ...kv, numKvHeads: undefined }),
        TypeError,
        "numKvHeads expected an integer from 1 to 65536, got undefined",
      ],
      [() => createKvCache(kernels, { ...kv, headDim: 0 }), RangeError, "headDim expected an integer >= 1, got 0"],
      [
        () => createKvCache(kernels, { ...kv, valueDim: 1.5 }),
        RangeError,
        "valueDim expected an integer >= 1, got 1.5",
      ],
      [() => createKvCache(kernels, { ...kv, window: 4 }), TypeError, "window expected an object, got 4"],
      [
        () => createKvCache(kernels, { ...kv, window: { left: 4, right: 0 } }),
        TypeError,
        'window expected only left, got "right"',
      ],
      [
        () => createKvCache(kernels, { ...kv, window: {} }),
        TypeError,
        "window.left expected an integer >= 0, got undefined",
      ],
      [
        () => createKvCache(kernels, { ...kv, headDim: 4096, format: "q8" }),
        RangeError,
        'format.keys expected "f32" or "f16" for headDim above 2048, got "q8"',
      ],
    ],
    truncate: [
      [() => cache.truncate(4), RangeError, "length expected an integer from 0 to 3, got 4"],
      [() => cache.truncate("1" as never), TypeError, 'length expected an integer from 0 to 3, got "1"'],
      [() => goneCache.truncate(0), "RELEASED", "cache was released"],
      [() => deadCache.truncate(0), "RELEASED", "cache.kernels was released"],
    ],
    read: [
      [() => goneCache.read(), "RELEASED", "cache was released"],
      [() => deadCache.read(), "RELEASED", "cache.kernels was released"],
    ],
    attendMany: [
      [
        () => attendMany({}, []),
        TypeError,
        "attention expected what createAttention or createLatentAttention gives, got Object",
      ],
      [() => attendMany(attention), TypeError, "calls expected an array, got undefined"],
      [() => attendMany(attention, [{ x: f(12) }, null]), TypeError, "calls[1] expected an object, got null"],
    ],
    "attendMany, call 1": [
      [
        () =>
          attendMany(attention, [
            { x: f(12), out: y.subarray(0, 12) },
            { x: f(12), out: y.subarray(0, 12) },
          ]),
        RangeError,
        "out expected memory apart from out of call 0, got one that overlaps it",
      ],
      [() => attendMany(attention, [{ x: f(12) }, {}]), TypeError, "x expected Float32Array, got undefined"],
      [
        () => attendMany(attention, [{ x: f(12) }, { x: f(12), mask: 1 }]),
        TypeError,
        `options expected only x, ${CALL}, got "mask": use keep or drop`,
      ],
      [
        () => attendMany(attention, [{ x: f(12) }, { x: f(24), cache }]),
        "CACHE_FULL",
        "past 3 + qLen 2 exceeds maxSeqLen 4",
      ],
      [
        () =>
          attendMany(attention, [
            { x: f(12), cache },
            { x: f(12), cache },
          ]),
        RangeError,
        "cache expected one of its own, got that of call 0",
      ],
      [
        () => attendMany(attention, [{ x: y.subarray(0, 12) }, { x: f(12), out: y.subarray(6, 18) }]),
        RangeError,
        "out expected memory apart from x of call 0, got one that overlaps it",
      ],
    ],
    attend: [
      [
        () => attend(undefined, f(12)),
        TypeError,
        "attention expected what createAttention or createLatentAttention gives, got undefined",
      ],
      [
        () => attend({}, f(12)),
        TypeError,
        "attention expected what createAttention or createLatentAttention gives, got Object",
      ],
      [
        () => attend(copy, f(12)),
        TypeError,
        "attention expected what createAttention or createLatentAttention gives, got a copy",
      ],
      [
        () => attend(new Proxy(attention, {}), f(12)),
        TypeError,
        "attention expected what createAttention or createLatentAttention gives, got a copy",
      ],
      [() => call({ cache: Object.create(cache) }), TypeError, "cache expected what createCache gives, got a copy"],
      [() => attend(attention, lost(12)), TypeError, "x expected Float32Array, got a detached one"],
      [() => call({ keys: lost(12) }), TypeError, "keys expected Float32Array, got a detached one"],
      [() => attend(attention, t(12)), TypeError, "x expected Float32Array, got Object: pass its data"],
      [() => attend(attention, Promise.resolve(f(12))), TypeError, "x expected Float32Array, got Promise: await it"],
      [
        () => call({ keep: { data: detached(new Uint8Array(3)), shape: [3] } }),
        TypeError,
        "keep.data expected Uint8Array or an array of booleans, got a detached one",
      ],
      [() => attend(gone, f(12)), "RELEASED", "attention was released"],
      [() => attend(deadAttention, f(12)), "RELEASED", "attention.kernels was released"],
      [() => attend(attention, [1, 2, 3]), TypeError, "x expected Float32Array, got Array"],
      [() => attend(attention, f(13)), RangeError, "x expected a multiple of dModel (12) floats, got 13"],
      [() => attend(attention, f(12), null), TypeError, "options expected an object, got null"],
      [() => attend(attention, f(12), f(12)), TypeError, "options expected an object, got Float32Array"],
      [() => call({ batch: 2 }), RangeError, "x expected a multiple of batch (2) x dModel (12) floats, got 36"],
      [() => call({ batch: 0 }), RangeError, "batch expected an integer from 1 to 1048576, got 0"],
      [() => call({ batch: 1e9 }, 0), RangeError, "batch expected an integer from 1 to 1048576, got 1000000000"],
      [() => call({ cache: {} }), TypeError, "cache expected what createCache gives, got Object"],
      [() => call({ cache: goneCache }, 12), "RELEASED", "cache was released"],
      [() => call({ cache: wideCache }), RangeError, "cache expected one made for this attention, got one of another"],
      [() => call({ cache: kvCache }), TypeError, "cache expected what createCache gives, got KvCache"],
      [
        () => attend(foreign, f(12), { cache }),
        RangeError,
        "cache expected one made for this attention, got one of another",
      ],
      [
        () => attend(twin, f(12), { cache }),
        RangeError,
        "cache expected one made for this attention, got one of another",
      ],
      [() => call({ mask: t(3) }), TypeError, `options expected only ${CALL}, got "mask": use keep or drop`],
      [
        () => call({ cache, kvLengths: [3] }, 12),
        RangeError,
        "kvLengths expected none with a cache that this call appends to: use keep",
      ],
      [
        () => attend(rotating, f(36), { cache: rotatingCache, append: false }),
        RangeError,
        "positions expected with rope and append: false, got undefined",
      ],
      [() => call({ cache }, 24), "CACHE_FULL", "past 3 + qLen 2 exceeds maxSeqLen 4"],
      [() => call({ cache, keys: f(24) }, 12), "CACHE_FULL", "past 3 + keys 2 exceeds maxSeqLen 4"],
      [() => call({ cache, batch: 2 }, 24), RangeError, "batch expected that of the cache (1), got 2"],
      [() => call({ cache, align: "end" }, 12), RangeError, 'align expected none after a past of 3 keys, got "end"'],
      [() => call({ append: false }), RangeError, "append expected true without a cache, got false"],
      [() => call({ append: 0 }), TypeError, "append expected true or false, got 0"],
      [
        () => call({ cache, append: false, keys: f(12) }),
        RangeError,
        "keys expected none with append: false, got Float32Array",
      ],
      [() => call({ values: f(36) }), RangeError, "values expected none without keys, got Float32Array"],
      [() => call({ keys: f(36), values: f(24) }), RangeError, "values expected as many rows as keys (3), got 2"],
      [() => call({ keys: "x" }), TypeError, 'keys expected Float32Array, got "x"'],
      [() => call({ keys: f(35) }), RangeError, "keys expected a multiple of kdim (12) floats, got 35"],
      [() => attend(cross, f(12)), RangeError, "keys expected because kdim (4) is not dModel (12), got undefined"],
      [
        () => attend(cross, f(12), { keys: f(4) }),
        RangeError,
        "values expected because vdim (6) is not kdim (4), got undefined",
      ],
      [
        () => attend(cross, f(12), { keys: f(4), values: f(7) }),
        RangeError,
        "values expected a multiple of vdim (6) floats, got 7",
      ],
      [
        () => attend(causal, f(12), { keys: f(24) }),
        RangeError,
        'align expected "start" or "end" because qLen (1) and kvLen (2) differ, got undefined',
      ],
      [() => call({ kvLengths: [1, 2] }), RangeError, "kvLengths expected one length per sequence (1), got 2"],
      [() => call({ kvLengths: "3" }), TypeError, 'kvLengths expected an array, got "3"'],
      [() => call({ kvLengths: [4] }), RangeError, "kvLengths[0] expected an integer from 0 to 3, got 4"],
      [() => call({ kvLengths: [1.5] }), RangeError, "kvLengths[0] expected an integer from 0 to 3, got 1.5"],
      [() => call({ align: "left" }), RangeError, 'align expected "start" or "end", got "left"'],
      [() => call({ positions: [0, 1, 2] }), RangeError, "positions expected none without config.rope, got Array"],
      [() => attend(rotating, f(36), { positions: [0, 1] }), RangeError, "positions expected 3 integers, got 2"],
      [
        () => attend(rotating, f(36), { positions: [0, -1, 2] }),
        RangeError,
        "positions[1] expected an integer >= 0, got -1",
      ],
      [() => call({ out: f(12) }), RangeError, "out expected 36 floats, got 12"],
      [() => call({ out: [] }), TypeError, "out expected Float32Array, got Array"],
      [
        () => attend(attention, y.subarray(0, 36), { out: y.subarray(12, 48) }),
        RangeError,
        "out expected x itself or memory apart from x, got one that overlaps it",
      ],
      [
        () => call({ out: y.subarray(0, 36), bias: { data: y.subarray(33, 36), shape: [3] } }),
        RangeError,
        "out expected memory apart from bias, got one that overlaps it",
      ],
      [() => call({ keep: [true] }), TypeError, "keep expected an object, got Array"],
      [() => call({ keep: { data: [1, 0, 1], shape: [3] } }), TypeError, "keep.data[0] expected true or false, got 1"],
      [
        () => call({ keep: { data: f(3), shape: [3] } }),
        TypeError,
        "keep.data expected Uint8Array or an array of booleans, got Float32Array",
      ],
      [() => call({ keep: { data: new Uint8Array(3), shape: [] } }), RangeError, "keep expected rank 1 to 4, got []"],
      [
        () => call({ keep: { data: new Uint8Array(2), shape: [3] } }),
        RangeError,
        "keep.data expected 3 elements for shape [3], got 2",
      ],
      [
        () => call({ drop: { data: new Uint8Array(4), shape: [4] } }),
        RangeError,
        "drop expected a shape that broadcasts to [1, 3, 3, 3], got [4]",
      ],
      [
        () => call({ drop: { data: new Uint8Array(6), shape: [2, 3] } }),
        RangeError,
        "drop expected a shape that broadcasts to [1, 3, 3, 3], got [2, 3]",
      ],
      [
        () => call({ bias: { data: f(3), shape: [1, 1, 1, 1, 3] } }),
        RangeError,
        "bias expected rank 1 to 4, got [1, 1, 1, 1, 3]",
      ],
      [
        () => call({ bias: { data: f(27), shape: [3, 3, 3] } }, 24),
        RangeError,
        "bias expected a shape that broadcasts to [1, 3, 2, 2], got [3, 3, 3]",
      ],
      ...["mask", "attn_mask", "key_padding_mask", "attentionMask"].map(
        (name) =>
          [
            () => call({ [name]: null }),
            TypeError,
            `options expected only ${CALL}, got "${name}": use keep or drop`,
          ] as const,
      ),
      [() => call({ kv_lengths: [3] }), TypeError, `options expected only ${CALL}, got "kv_lengths": use kvLengths`],
      [
        () => call({ batch: 3, drop: { data: new Uint8Array(9), shape: [3, 3] } }, 108),
        RangeError,
        "drop expected [1, 1, 3, 3] (by query) or [3, 1, 1, 3] (by sequence), got [3, 3]",
      ],
      [
        () => call({ batch: 3, bias: { data: f(12), shape: [3, 2, 2] } }, 72),
        RangeError,
        "bias expected [1, 3, 2, 2] (by head) or [3, 1, 2, 2] (by sequence), got [3, 2, 2]",
      ],
    ],
    attendWithMaps: [
      [() => attendWithMaps(attention, f(13)), RangeError, "x expected a multiple of dModel (12) floats, got 13"],
    ],
    scaledDotProductAttention: [
      [
        () => scaledDotProductAttention(null, t(1, 1, 1, 1), t(1, 1, 1, 1), t(1, 1, 1, 1)),
        TypeError,
        "kernels expected what loadKernels gives, got null",
      ],
      [() => sdpa({}, t(3, 4)), RangeError, "q expected rank 3 or 4, got shape [3, 4]"],
      [() => sdpa({}, t(2, 3, 4)), RangeError, "k expected rank 3, got shape [1, 1, 3, 4]"],
      [() => sdpa({}, t(2, 3, 4), t(1, 3, 4), t(1, 1, 3, 4)), RangeError, "v expected rank 3, got shape [1, 1, 3, 4]"],
      [() => sdpa({}, t(2, 3, 4), t(1, 3, 4), t(1, 2, 4)), RangeError, "v expected shape [1, 3, 4], got [1, 2, 4]"],
      [
        () => sdpa({ past: { key: t(1, 2, 4), value: t(1, 2, 4) } }),
        RangeError,
        "past.key expected rank 4, got shape [1, 2, 4]",
      ],
      [() => sdpa({ cache: {} }), TypeError, "cache expected what createKvCache gives, got Object"],
      [() => sdpa({ cache: goneKvCache }), "RELEASED", "cache was released"],
      [() => sdpa({ cache: foreignKvCache }), RangeError, "cache expected one of these kernels, got one of others"],
      [
        () => sdpa({ cache: kvCache }, t(2, 2, 3, 4), t(2, 1, 3, 4), t(2, 1, 3, 4)),
        RangeError,
        "k expected shape [1, 1, 3, 4], got [2, 1, 3, 4]",
      ],
      [
        () => sdpa({ cache: kvCache }, t(1, 2, 3, 4), t(1, 2, 3, 4), t(1, 2, 3, 4)),
        RangeError,
        "k expected shape [1, 1, 3, 4], got [1, 2, 3, 4]",
      ],
      [
        () => sdpa({ cache: kvCache }, t(2, 3, 4), t(1, 3, 4), t(1, 3, 5)),
        RangeError,
        "v expected shape [1, 3, 4], got [1, 3, 5]",
      ],
      [
        () => sdpa({ cache: kvCache, past: { key: t(1, 1, 2, 4), value: t(1, 1, 2, 4) } }),
        RangeError,
        "cache expected none with past, got KvCache",
      ],
      [() => sdpa({ cache: kvCache, present: true }), RangeError, "cache expected none with present, got KvCache"],
      [() => sdpa({ cache: kvCache, causal: true }), "CACHE_FULL", "past 2 + keys 3 exceeds maxSeqLen 4"],
      [
        () => sdpa({ cache: kvCache, align: "end" }, t(1, 2, 1, 4), t(1, 1, 1, 4), t(1, 1, 1, 4)),
        RangeError,
        'align expected none after a past of 2 keys, got "end"',
      ],
      [
        () => sdpa({ cache: windowCache, causal: true }),
        RangeError,
        "window.left expected at most 5, that of the cache, got Infinity",
      ],
      [
        () => sdpa({ cache: windowCache, window: { left: 6, right: 0 } }),
        RangeError,
        "window.left expected at most 5, that of the cache, got 6",
      ],
      [
        () => sdpa({ cache: windowCache, window: { left: 5 }, scores: "raw" }),
        RangeError,
        'scores expected "masked" or "weights", got "raw"',
      ],
      [
        () => sdpa({ cache: windowCache, window: { left: 5 } }, t(2, 3, 4), t(1, 200, 4), t(1, 200, 4)),
        RangeError,
        "q expected positions of at least 372, because truncatable of the cache is 128, got 300",
      ],
      [() => sdpa({}, t(1, 0, 3, 4)), RangeError, "q expected 1 to 65536 heads and dim >= 1, got 0 and 4"],
      [() => sdpa({}, t(1, 100000, 0, 4)), RangeError, "q expected 1 to 65536 heads and dim >= 1, got 100000 and 4"],
      [
        () => sdpa({}, t(1, 6, 3, 4), t(1, 4, 3, 4), t(1, 4, 3, 4)),
        RangeError,
        "q expected a multiple of k's heads (4), got 6",
      ],
      [() => sdpa({}, t(1, 2, 3, 4), t(2, 1, 3, 4)), RangeError, "k expected shape [1, 1, 3, 4], got [2, 1, 3, 4]"],
      [() => sdpa({}, t(1, 2, 3, 4), t(1, 1, 3, 5)), RangeError, "k expected shape [1, 1, 3, 4], got [1, 1, 3, 5]"],
      [
        () => sdpa({}, t(1, 2, 3, 4), t(1, 1, 3, 4), t(1, 1, 2, 4)),
        RangeError,
        "v expected shape [1, 1, 3, 4], got [1, 1, 2, 4]",
      ],
      [() => sdpa({ layout: "bsd" }), RangeError, 'layout expected "bhsd" or "bshd", got "bsd"'],
      [
        () => sdpa({ past: { key: t(1, 1, 2, 5), value: t(1, 1, 2, 4) } }),
        RangeError,
        "past.key expected shape [1, 1, 2, 4], got [1, 1, 2, 5]",
      ],
      [
        () => sdpa({ past: { key: t(1, 1, 2, 4), value: t(1, 1, 1, 4) } }),
        RangeError,
        "past.value expected shape [1, 1, 2, 4], got [1, 1, 1, 4]",
      ],
      [() => sdpa({ past: [] }), TypeError, "past expected an object, got Array"],
      [
        () => sdpa({ causal: true }, t(1, 2, 2, 4)),
        RangeError,
        'align expected "start" or "end" because qLen (2) and kvLen (3) differ, got undefined',
      ],
      [
        () => sdpa({ past: { key: t(1, 1, 2, 4), value: t(1, 1, 2, 4) }, align: "start" }),
        RangeError,
        'align expected none after a past of 2 keys, got "start"',
      ],
      [() => sdpa({ sinkLogits: f(1) }), RangeError, "sinkLogits expected one per head (2), got 1"],
      [
        () => sdpa({ sinkLogits: Float32Array.of(1, Number.NaN) }),
        RangeError,
        "sinkLogits expected logits from -1e38 to 1e38 or -Infinity, got NaN",
      ],
      [() => sdpa({ sinks: f(2) }), TypeError, `options expected only ${SDPA}, got "sinks"`],
      [() => sdpa({ softcap: 2e38 }), RangeError, "softcap expected at most 1e38, got 2e+38"],
      [() => sdpa({ alibi: f(3) }), RangeError, "alibi expected one slope per head (2), got 3"],
      [
        () => sdpa({ scores: "logits" }),
        RangeError,
        'scores expected "raw" or "softcapped" or "masked" or "weights", got "logits"',
      ],
      [() => sdpa({ lse: 1 }), TypeError, "lse expected true or false, got 1"],
      [() => sdpa({ present: "no" }), TypeError, 'present expected true or false, got "no"'],
      [() => sdpa({ scale: "0.5" }), TypeError, 'scale expected a finite float32 number other than 0, got "0.5"'],
    ],
    applyRope: [
      [() => rope({ pairing: undefined }), TypeError, 'pairing expected "half" or "interleaved", got undefined'],
      [() => rope({ sin: t(3, 1) }), RangeError, "sin expected shape [3, 2], got [3, 1]"],
      [() => rope({ cos: t(3, 3), sin: t(3, 3) }), RangeError, "cos expected 1 to 2 columns for heads of 4, got 3"],
      [() => rope({ positions: [0, 1, 3] }), RangeError, "positions expected rows of cos below 3, got 3"],
      [() => rope({ positions: [0, 1] }), RangeError, "positions expected 3 integers, got 2"],
      [() => rope({ layout: "sbhd" }), RangeError, 'layout expected "bhsd" or "bshd", got "sbhd"'],
      [() => rope({ dim: 4 }), TypeError, 'options expected only cos, sin, positions, pairing, layout, got "dim"'],
      [() => rope({}, t(1, 1, 4, 4)), RangeError, "positions expected rows of cos below 3, got 3"],
    ],
    exportPages: [
      [() => exportPages({}), TypeError, "cache expected what createCache or createKvCache gives, got Object"],
      [() => exportPages(goneCache), "RELEASED", "cache was released"],
      [() => exportPages(cache, 4), RangeError, "since expected an integer from 0 to 3, got 4"],
      [() => exportPages(cache, "1"), TypeError, 'since expected an integer from 0 to 3, got "1"'],
    ],
    importPages: [
      [() => importPages(null, [], 0), TypeError, "cache expected what createCache or createKvCache gives, got null"],
      [() => importPages(goneCache, [], 0), "RELEASED", "cache was released"],
      [() => importPages(cache, [page], 3), RangeError, "cache expected one without tokens, got 3"],
      [() => importPages(empty, page, 3), TypeError, "pages expected an iterable of { index, bytes }, got Object"],
      [() => importPages(empty, "page", 3), TypeError, 'pages expected an iterable of { index, bytes }, got "page"'],
      [() => importPages(empty, [page], 5), RangeError, "length expected an integer from 0 to 4, got 5"],
      [() => importPages(empty, [page]), TypeError, "length expected an integer from 0 to 4, got undefined"],
      [() => importPages(empty, [], 3), RangeError, "pages expected 1 for length 3, got 0"],
      [() => importPages(empty, [page, page], 3), RangeError, "pages expected 1 for length 3, got more"],
      [() => importPages(empty, [page.bytes], 3), TypeError, "pages[0] expected an object, got Uint8Array"],
      [() => importPages(empty, [undefined, page], 3), TypeError, "pages[0] expected an object, got undefined"],
      [
        () => importPages(empty, [{ ...page, bytes: page.bytes.slice(0, 36) }], 3),
        RangeError,
        `pages[0].bytes expected ${page.bytes.length} bytes, got 36`,
      ],
      [
        () => importPages(empty, [{ ...page, page: 0 }], 3),
        TypeError,
        'pages[0] expected only index, bytes, got "page"',
      ],
      [() => importPages(empty, [{ ...page, index: 1 }], 3), RangeError, "pages[0].index expected 0, got 1"],
      [
        () => importPages(empty, [{ index: 0, bytes: page.bytes.buffer }], 3),
        TypeError,
        "pages[0].bytes expected Uint8Array, got ArrayBuffer",
      ],
      ...(
        [
          [new Uint8Array(0), "no bytes"],
          [changed(0, 0)[0]?.bytes, "00 00 00 00 02 00 00 00"],
          [changed(1, 1)[0]?.bytes, "one of version 1"],
        ] as const
      ).map(
        ([bytes, got]): Row => [
          () => importPages(empty, [{ index: 0, bytes }], 3),
          RangeError,
          `pages[0].bytes expected a page of version 2 of exportPages, got ${got}`,
        ],
      ),
      [() => importPages(empty, changed(3, 64), 3), RangeError, "pages[0].bytes expected PAGE 128, got 64"],
      [() => importPages(empty, changed(4, 2), 3), RangeError, "pages[0].bytes expected batch 1, got 2"],
      [() => importPages(empty, changed(5, 1), 3), RangeError, "pages[0].bytes expected numKvHeads 3, got 1"],
      [() => importPages(empty, changed(6, 8), 3), RangeError, "pages[0].bytes expected headDim 4, got 8"],
      [() => importPages(empty, changed(7, 8), 3), RangeError, "pages[0].bytes expected valueDim 4, got 8"],
      [
        () => importPages(empty, changed(2, 10), 3),
        RangeError,
        'pages[0].bytes expected keys "f32" and values "f32", got keys "q8" and values "q8"',
      ],
      [
        () => importPages(empty, [{ index: 0, bytes: page.bytes.subarray(0, 100) }], 3),
        RangeError,
        `pages[0].bytes expected ${page.bytes.length} bytes, got 100`,
      ],
      [
        () => importPages(empty, [page], 4),
        RangeError,
        "length expected at most 3, the tokens that the pages hold, got 4",
      ],
      [() => importPages(empty, changed(8, 129), 3), RangeError, "pages[0].bytes expected at most 128 tokens, got 129"],
    ],
    splitHeads: [
      [() => splitHeads(kernels, t(3, 10), 3), RangeError, "d_model (10) must be divisible by n_heads (3)"],
      [() => splitHeads(kernels, t(3, 10), "2"), TypeError, 'numHeads expected an integer from 1 to 65536, got "2"'],
      [() => splitHeads(kernels, t(30), 3), RangeError, "x expected rank 2, got shape [30]"],
    ],
    mergeHeads: [
      [() => mergeHeads(kernels, t(3, 10)), RangeError, "x expected rank 3, got shape [3, 10]"],
      [() => mergeHeads(kernels, t(0, 3, 10)), RangeError, "x expected 1 to 65536 heads and dim >= 1, got 0 and 10"],
    ],
    plan: [
      [
        () => plan({ dModel: 10, numHeads: 3 }),
        RangeError,
        "d_model (10) must be divisible by n_heads (3) unless headDim is given",
      ],
      [() => plan(config, { truncatable: 4 }), RangeError, "truncatable expected none without maxSeqLen, got 4"],
      [() => plan(config, { maxSeqLen: 4, qLen: 5 }), RangeError, "maxSeqLen expected an integer >= 5, got 4"],
      [() => plan(config, { batch: 1e9 }), RangeError, "batch expected an integer from 1 to 1048576, got 1000000000"],
      [() => plan(config, null), TypeError, "sizes expected an object, got null"],
      [
        () => plan(config, { kvLen: 4 }),
        TypeError,
        'sizes expected only batch, qLen, maxSeqLen, format, truncatable, keyLen, maps, extraKey, weights, keep, drop, bias, got "kvLen"',
      ],
      [
        () => plan(config, { weights: { q: "q5" } }),
        RangeError,
        'weights.q expected "f32" or "f16" or "bf16" or "q8" or "q8-row" or "q4", got "q5"',
      ],
      [() => plan({ ...config, heads: 3 }), TypeError, `config expected only ${CONFIG}, got "heads"`],
    ],
    alibiSlopes: [
      [() => alibiSlopes(0), RangeError, "numHeads expected an integer from 1 to 65536, got 0"],
      [() => alibiSlopes(1e9), RangeError, "numHeads expected an integer from 1 to 65536, got 1000000000"],
    ],
    ropeTables: [
      [
        () => ropeTables({ theta: 10, pairing: "half", dim: 1e9 }, [0]),
        RangeError,
        "rope.dim expected an integer from 2 to 65536, got 1000000000",
      ],
      [() => ropeTables({ theta: 10, pairing: "half", dim: 4 }, 3), TypeError, "positions expected an array, got 3"],
    ],
    permuteRope: [
      [() => permuteRope(t(6, 2), 4, "half"), RangeError, "weight expected a multiple of numHeads (4) rows, got 6"],
    ],
    convertToGqa: [
      [
        () => convertToGqa(weights, { numHeads: 3 }, 2),
        RangeError,
        "config.numKvHeads expected a multiple of numKvHeads (2), got 3",
      ],
      [() => convertToGqa({ ...weights, wo: 5 }, config, 1), TypeError, "weights.wo expected { data, shape }, got 5"],
      [
        () => convertToGqa(weights, { numHeads: 3 }, 1, { method: "max" }),
        RangeError,
        'options.method expected "mean" or "first" or "svd", got "max"',
      ],
    ],
    convertToMla: [
      [() => convertToMla(weights, config, { rank: "2" }), TypeError, 'rank expected an integer >= 1, got "2"'],
    ],
    countParameters: [
      [() => countParameters({ dModel: 8, heads: 2 }), TypeError, `config expected only ${CONFIG}, got "heads"`],
    ],
    fromHfConfig: [
      [() => fromHfConfig("{"), "BAD_FILE", 'json expected valid JSON, got "{"'],
      [
        () => fromHfConfig({ model_type: "mamba" }),
        "BAD_FILE",
        'model_type expected attention that this package computes, got "mamba", which has state-space layers instead of attention',
      ],
      [
        () => fromHfConfig({ model_type: "lama" }),
        "BAD_FILE",
        'model_type expected a supported one (nearest: "llama"), or options.as with the one whose rules apply, got "lama"',
      ],
      [
        () => fromHfConfig({ model_type: "whisper" }),
        "BAD_FILE",
        'part expected "encoder", "decoder" or "cross" (or a prefix that names one), since "whisper" has all three, got undefined',
      ],
    ],
    readSafetensors: [
      [() => readSafetensors(new Uint8Array(7)), "BAD_FILE", "bytes expected an 8-byte header length, got 7 bytes"],
      [
        () => readSafetensors(Uint8Array.of(255, 255, 255, 255, 255, 255, 255, 255)),
        "BAD_FILE",
        "header length expected <= 100000000 bytes, got 18446744073709551615 (the file begins with ff ff ff ff ff ff ff ff)",
      ],
      [
        () => readSafetensors(Uint8Array.of(3, 0, 0, 0, 0, 0, 0, 0, 123, 125)),
        "BAD_FILE",
        "header length expected <= 2, the bytes after it, got 3",
      ],
      [
        () => readSafetensors("model.safetensors"),
        TypeError,
        'bytes expected Uint8Array or ArrayBuffer, got "model.safetensors"',
      ],
    ],
    readAttentionWeights: [
      [
        () => readAttentionWeights(writeSafetensors({ x: t(2, 2) })),
        "BAD_FILE",
        'names below prefix "" expected one of the known families, got "x"',
      ],
    ],
    toFloats: [[() => toFloats(undefined), TypeError, "tensor expected an object, got undefined"]],
    selfTest: [
      [() => selfTest(core, {}), TypeError, "kernels expected what loadKernels gives, got Object"],
      [() => selfTest({}, kernels), TypeError, "headwise.createAttention expected a function, got undefined"],
    ],
  };
  const before = attend(attention, f(36).fill(1)) as Float32Array;
  const used = kernels.usedBytes;
  for (const [where, rows] of Object.entries(tables))
    for (const [run, kind, text] of rows) {
      const thrown = messageOf(run);
      expect(thrown.error.message).toBe(`${where}: ${text}`);
      expect(thrown.kind, text).toBe(kind);
      expect(kernels.usedBytes, text).toBe(used);
      expect(cache.length, text).toBe(3);
    }
  expect(firstDifference(attend(attention, f(36).fill(1)) as Float32Array, before)).toBe(-1);
});
