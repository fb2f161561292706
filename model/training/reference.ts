import type { Tensor } from "./safetensors.ts";

// The model once more, in plain loops and float64, from the tensors of the file alone. It shares no
// code with model.ts, so that the two can check each other.

export type Weights = ReadonlyMap<string, Tensor>;

const dModel = 64;
const numHeads = 4;
const headDim = 16;
const numLayers = 2;
const ropeTheta = 10_000;
const normEps = 1e-5;

export interface Output {
  /** [seqLen][vocabSize] */
  readonly logits: Float64Array[];
  /** What each query attends to: maps[layer][head][query][key], 0 for keys after the query. */
  readonly maps: Float64Array[][][];
}

export function referenceForward(weights: Weights, tokens: readonly number[]): Output {
  const get = (name: string): Float32Array => {
    const tensor = weights.get(`${name}.weight`);
    if (!tensor) throw new RangeError(`referenceForward: weights expected a tensor ${name}.weight`);
    return tensor.data;
  };
  const embedding = get("model.embed_tokens");
  let x = tokens.map((token) => Float64Array.from(embedding.subarray(token * dModel, (token + 1) * dModel)));
  const maps: Float64Array[][][] = [];

  for (let layer = 0; layer < numLayers; layer++) {
    const name = `model.layers.${layer}`;
    const normed = x.map((row) => rmsNorm(row, get(`${name}.input_layernorm`)));
    const project = (w: string) => normed.map((row) => linear(get(`${name}.self_attn.${w}_proj`), row));
    const q = project("q").map(rotate);
    const k = project("k").map(rotate);
    const v = project("v");

    const merged = tokens.map(() => new Float64Array(dModel));
    const layerMaps: Float64Array[][] = [];
    for (let head = 0; head < numHeads; head++) {
      const from = head * headDim;
      layerMaps.push(
        q.map((query, at) => {
          const map = softmax(k.map((key, j) => (j > at ? -Infinity : dot(query, key, from) / Math.sqrt(headDim))));
          for (let j = 0; j <= at; j++) {
            for (let i = from; i < from + headDim; i++) merged[at]![i]! += map[j]! * v[j]![i]!;
          }
          return map;
        }),
      );
    }
    maps.push(layerMaps);

    const wo = get(`${name}.self_attn.o_proj`);
    x = x.map((row, at) => linear(wo, merged[at]!).map((y, i) => row[i]! + y));
  }
  const logits = x.map((row) => linear(get("lm_head"), rmsNorm(row, get("model.norm"))));
  return { logits, maps };
}

/** y[out] = w[out, in] x[in] */
function linear(w: Float32Array, x: Float64Array): Float64Array {
  const y = new Float64Array(w.length / x.length);
  for (let o = 0; o < y.length; o++) {
    let sum = 0;
    for (let i = 0; i < x.length; i++) sum += w[o * x.length + i]! * x[i]!;
    y[o] = sum;
  }
  return y;
}

function rmsNorm(x: Float64Array, gain: Float32Array): Float64Array {
  let sum = 0;
  for (const value of x) sum += value * value;
  const inverse = 1 / Math.sqrt(sum / x.length + normEps);
  return x.map((value, i) => value * inverse * gain[i]!);
}

/** In each head, turns the pair (i, i + headDim / 2) by position * theta^(-2i / headDim). */
function rotate(row: Float64Array, position: number): Float64Array {
  const half = headDim / 2;
  const out = new Float64Array(row.length);
  for (let from = 0; from < row.length; from += headDim) {
    for (let i = 0; i < half; i++) {
      const angle = position * ropeTheta ** ((-2 * i) / headDim);
      const a = row[from + i]!;
      const b = row[from + half + i]!;
      out[from + i] = a * Math.cos(angle) - b * Math.sin(angle);
      out[from + half + i] = b * Math.cos(angle) + a * Math.sin(angle);
    }
  }
  return out;
}

function dot(a: Float64Array, b: Float64Array, from: number): number {
  let sum = 0;
  for (let i = from; i < from + headDim; i++) sum += a[i]! * b[i]!;
  return sum;
}

function softmax(scores: readonly number[]): Float64Array {
  const largest = Math.max(...scores);
  const powers = Float64Array.from(scores, (score) => Math.exp(score - largest));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / sum);
}
