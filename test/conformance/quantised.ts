// Matrices and layers on blocks of a file. Expected values are those of activations that are not quantised; the package rounds each row
// of activations to 14 bits before an integer projection, so elements may be off by what that rounding can do, and no more:
// an activation moves by up to half its row's scale, and with it an output by up to scale / 2 · Σ|w|.

import {
  type AttentionConfig,
  type AttentionWeights,
  createAttention,
  createLinear,
  type Kernels,
  linear,
  type StoredTensor,
  type WeightTensor,
} from "../../src/entries/core.ts";
import { quantizeTensor, toFloats } from "../../src/entries/weights.ts";
import { attendReference } from "../../src/reference/attend.ts";
import { projectByTwins, quantizedRows } from "../support/integer-projection.ts";
import type { Case, Outcome, Tolerance, Values } from "./case.ts";
import { firstDifference } from "./compare.ts";
import { decode, decoderConfig, decoderWeights, positions } from "./decoder.ts";

/** Half of a scale, and what float32 adds: scale and factor are off by an ulp each, at most 8191 units. */
const HALF = 0.5 + 3 * 8191 * 2 ** -24;

type Blocks = StoredTensor & { readonly dtype: "Q8_0" | "Q4_0" };
const formatOf = ({ dtype }: Blocks) => (dtype === "Q8_0" ? "q8" : "q4");

function blocksOf(c: Case, name: string): Blocks {
  const dtype = c.text("format");
  if (dtype !== "Q8_0" && dtype !== "Q4_0") throw new RangeError(`${c.entry.name}: no format ${dtype}`);
  const { data, shape } = c.values(name);
  const [rows, width] = shape as [number, number];
  const columns = (width / (dtype === "Q8_0" ? 34 : 18)) * 32;
  return { name, dtype, shape: [rows, columns], bytes: Uint8Array.from(data) };
}

/** Σ|w| of each row. */
function sizes(blocks: Blocks): number[] {
  const [n, k] = blocks.shape as [number, number];
  const w = toFloats(blocks);
  return Array.from({ length: n }, (_, r) =>
    w.subarray(r * k, (r + 1) * k).reduce((sum, one) => sum + Math.abs(one), 0),
  );
}

function differs(name: string, got: ArrayLike<number>, want: ArrayLike<number>): string[] {
  const at = Array.from(want).findIndex((value, i) => !Object.is(value, got[i]));
  return at < 0 ? [] : [`${name}: element ${at} expected the twins' ${want[at]}, got ${got[at]}`];
}

/** x times blocks. */
export function quantMatMul(kernels: Kernels, c: Case): Outcome {
  const blocks = blocksOf(c, "blocks");
  const [n, k] = blocks.shape as [number, number];
  const x = c.floats("x");
  using layer = createLinear(kernels, { weight: blocks });
  const y: Values = { data: linear(layer, x.data), shape: [x.data.length / k, n] };
  const problems = differs("y", y.data, projectByTwins(blocks, formatOf(blocks), x.data));
  const w = c.floatsIfAny("w");
  if (w) problems.push(...differs("blocks", quantizeTensor(w, blocks.dtype).bytes, blocks.bytes));
  const { scales } = quantizedRows(x.data, k);
  const size = sizes(blocks);
  return {
    outputs: { y, w_dequantised: { data: toFloats(blocks), shape: blocks.shape } },
    slack: { y: (i) => HALF * (scales[Math.floor(i / n)] as number) * (size[i % n] as number) },
    problems,
  };
}

/**
 * A layer on blocks, all its tokens at once: prefill and decode give the same bits. What its heads give and what it makes of
 * them is looked at apart:
 *
 * - Keys and values may be off by scale / 2 · Σ|w|, a rotated key by that of both components of its pair.
 * - Heads must be those of a float64 layer on the activations as they are seen (scale · integer), within the tolerance.
 * - y must have the bits that the twins make of these heads.
 * - y may differ from what is expected by scale / 2 · Σ|w| of the output projection, and by as much as a float64 layer on
 *   the activations as seen differs from one on the activations as given.
 */
export function quantDecoderAttention(kernels: Kernels, c: Case): Outcome {
  const config = decoderConfig(c, c.someNumber("num_kv_heads", "num_heads"));
  const blocks = (name: "q" | "k" | "v" | "o") => blocksOf(c, `${name}_proj.blocks`);
  const wo = blocks("o");
  const weights: AttentionWeights = { ...decoderWeights(c, blocks), wo };
  const { dModel } = config;
  const [batch, prefill] = c.shape("x") as [number, number];
  const width = wo.shape[1] as number;
  const outputs = decode(kernels, c, config, weights);
  /** [batch][tokens][..] of what is given for prefill and decode apart. */
  const all = (first: Values, second: Values | undefined) => joinTokens(first, second, batch);
  const x = all(c.floats("x"), c.floatsIfAny("x_decode"));
  const y = all(outputs.y_prefill, outputs.y_decode);
  const tokens = x.length / (batch * dModel);

  // Rows of the identity as output projections show the heads, as many at a time as y has columns.
  const heads = new Float32Array(batch * tokens * width);
  const seenHeads = new Float64Array(heads.length);
  const run = layer64(kernels, c, config, weights);
  const { seen, scales: xScales } = quantizedRows(x, dModel);
  for (let begin = 0; begin < width; begin += dModel) {
    const data = Float32Array.from({ length: dModel * width }, (_, i) =>
      i % width === begin + Math.floor(i / width) ? 1 : 0,
    );
    const shown = decode(kernels, c, config, { ...weights, wo: { data, shape: [dModel, width] }, bo: undefined });
    const part = { got: all(shown.y_prefill, shown.y_decode), want: run(seen, data, undefined) };
    for (let r = 0; r < batch * tokens; r++)
      for (let i = begin; i < Math.min(width, begin + dModel); i++) {
        heads[r * width + i] = part.got[r * dModel + i - begin] as number;
        seenHeads[r * width + i] = part.want[r * dModel + i - begin] as number;
      }
  }
  const tolerance = c.entry.tolerance?.default as Tolerance;
  const ofHeads = { data: heads, shape: [batch * tokens, width] };
  const far = firstDifference("heads", ofHeads, { ...ofHeads, data: seenHeads }, tolerance);
  const bias = weights.bo ?? new Float32Array(dModel);
  const want = projectByTwins(wo, formatOf(wo), heads).map((value, i) => value + (bias[i % dModel] as number));
  const problems = [...(far === undefined ? [] : [far]), ...differs("y", y, want)];

  const { scales } = quantizedRows(heads, width);
  const [exact, rounded] = [x, seen].map((rows) => run(rows, toFloats(wo), weights.bo)) as [Float64Array, Float64Array];
  const sizesOfO = sizes(wo);
  const moved = exact.map((value, i) => {
    const [row, column] = [Math.floor(i / dModel), i % dModel];
    return Math.abs(value - (rounded[i] as number)) + HALF * (scales[row] as number) * (sizesOfO[column] as number);
  });
  const partOf = (first: number, count: number) => (i: number) => {
    const b = Math.floor(i / (count * dModel));
    return moved[(b * tokens + first) * dModel + (i - b * count * dModel)] as number;
  };
  const cached = (name: "k" | "v", dim: number, pair: (d: number) => number) => {
    const size = sizes(blocks(name));
    // [batch][heads][tokens][dim]
    return (i: number) => {
      const [d, t, head] = [i % dim, Math.floor(i / dim) % tokens, Math.floor(i / dim / tokens)];
      const at = (head % (size.length / dim)) * dim;
      const b = Math.floor(head / (size.length / dim));
      const sum = (size[at + d] as number) + (pair(d) === d ? 0 : (size[at + pair(d)] as number));
      return HALF * (xScales[b * tokens + t] as number) * sum;
    };
  };
  const { headDim = dModel / config.numHeads, valueDim = headDim, rope } = config;
  const pair = (d: number) => {
    if (!rope || d >= (rope.dim ?? headDim)) return d;
    return rope.pairing === "interleaved" ? d ^ 1 : (d + (rope.dim ?? headDim) / 2) % (rope.dim ?? headDim);
  };
  return {
    outputs,
    problems,
    slack: {
      y_prefill: partOf(0, prefill),
      y_decode: partOf(prefill, tokens - prefill),
      k_cache: cached("k", headDim, pair),
      v_cache: cached("v", valueDim, (d) => d),
    },
  };
}

/** Tokens of a prefill [batch][..][width] followed by those of the steps after it. */
function joinTokens(first: Values, second: Values | undefined, batch: number): Float32Array {
  const parts = second ? [first, second] : [first];
  return Float32Array.from(
    Array.from({ length: batch }, (_, b) =>
      parts.flatMap(({ data }) => {
        const size = data.length / batch;
        return Array.from(data).slice(b * size, (b + 1) * size);
      }),
    ).flat(),
  );
}

/** The layer in float64 on weights as blocks stand for them: y [batch][tokens] of rows of x, for a given wo. */
function layer64(kernels: Kernels, c: Case, config: AttentionConfig, weights: AttentionWeights) {
  using attention = createAttention(kernels, config, weights);
  const { config: checked } = attention;
  const [batch] = c.shape("x") as [number];
  const floats = (w: WeightTensor | undefined) => toFloats(w as StoredTensor);
  const matrices = { wq: floats(weights.wq), wk: floats(weights.wk), wv: floats(weights.wv) };
  return (x: ArrayLike<number>, wo: Float32Array, bo: Float32Array | undefined): Float64Array => {
    const rows = Array.from(x);
    const size = rows.length / batch;
    const places = positions(c, 0, size / config.dModel);
    const ys = Array.from({ length: batch }, (_, b) => {
      const options = { positions: places, keyPositions: places };
      const own = rows.slice(b * size, (b + 1) * size);
      return attendReference(checked, { ...weights, ...matrices, wo, bo }, own, options).y;
    });
    return Float64Array.from(ys.flatMap((y) => [...y]));
  };
}
