import { nn, numpy as np } from "@jax-js/jax";
import type { Random } from "./random.ts";
import { dModel, headDim, normEps, numHeads, numLayers, ropeTheta, shapes } from "./shapes.ts";

export type Parameters = { [name: string]: np.Array };

export function createParameters(random: Random): Parameters {
  const parameters: Parameters = {};
  for (const [name, shape] of Object.entries(shapes)) {
    const values = new Float32Array(shape.reduce((a, b) => a * b));
    // Gains start at one. Matrices keep the size of what they multiply: deviation 1/sqrt(in).
    for (let i = 0; i < values.length; i++) values[i] = shape.length === 1 ? 1 : random.normal() / Math.sqrt(dModel);
    parameters[name] = np.array(values).reshape([...shape]);
  }
  return parameters;
}

/** Constants of one sequence length: cos, sin [seqLen, 1, headDim / 2]; bias [seqLen, seqLen], 0 or far below. */
export type Tables = { cos: np.Array; sin: np.Array; bias: np.Array };

export function createTables(length: number): Tables {
  const half = headDim / 2;
  const angles = Array.from(
    { length: length * half },
    (_, i) => Math.floor(i / half) * ropeTheta ** (-(i % half) / half),
  );
  const table = (f: (angle: number) => number) => np.array(new Float32Array(angles.map(f))).reshape([length, 1, half]);
  const bias = Float32Array.from({ length: length * length }, (_, i) =>
    i % length > Math.floor(i / length) ? -1e9 : 0,
  );
  return { cos: table(Math.cos), sin: table(Math.sin), bias: np.array(bias).reshape([length, length]) };
}

/**
 * tokens [batch, seqLen] int32 -> logits [batch, seqLen, vocabSize].
 * Uses up its arguments, as every function of jax-js does; hence a `.ref` at all uses but the last.
 */
export function forward(parameters: Parameters, tables: Tables, tokens: np.Array): np.Array {
  const p = (name: string) => parameters[`${name}.weight`]!;
  // A gather: a product with one-hot rows would make the backward pass many times slower.
  let x = p("model.embed_tokens").slice(tokens);
  for (let layer = 0; layer < numLayers; layer++) {
    const { cos, sin, bias } =
      layer < numLayers - 1 ? { cos: tables.cos.ref, sin: tables.sin.ref, bias: tables.bias.ref } : tables;
    const l = `model.layers.${layer}`;
    const weights = ["q", "k", "v", "o"].map((w) => p(`${l}.self_attn.${w}_proj`));
    const y = attention(rmsNorm(x.ref, p(`${l}.input_layernorm`)), weights, cos, sin, bias);
    x = x.add(y);
  }
  return linear(rmsNorm(x, p("model.norm")), p("lm_head"));
}

function attention(x: np.Array, [wq, wk, wv, wo]: np.Array[], cos: np.Array, sin: np.Array, bias: np.Array): np.Array {
  const [batch, length] = x.shape as [number, number];
  const split = [batch, length, numHeads, headDim];
  const q = rotate(linear(x.ref, wq!).reshape(split), cos.ref, sin.ref);
  const k = rotate(linear(x.ref, wk!).reshape(split), cos, sin);
  const v = linear(x, wv!).reshape(split);
  const scores = np
    .einsum("bqhd,bkhd->bhqk", q, k)
    .mul(1 / Math.sqrt(headDim))
    .add(bias);
  const maps = nn.softmax(scores, -1); // [batch, numHeads, qLen, kvLen]
  const merged = np.einsum("bhqk,bkhd->bqhd", maps, v).reshape([batch, length, dModel]);
  return linear(merged, wo!);
}

/** Rotates the pairs (i, i + headDim / 2) of x [batch, seqLen, numHeads, headDim]: the "half" pairing. */
function rotate(x: np.Array, cos: np.Array, sin: np.Array): np.Array {
  const half = headDim / 2;
  const a = x.ref.slice([], [], [], [0, half]);
  const b = x.slice([], [], [], [half, headDim]);
  const left = a.ref.mul(cos.ref).sub(b.ref.mul(sin.ref));
  const right = b.mul(cos).add(a.mul(sin));
  return np.concatenate([left, right], -1);
}

/** x [.., in] times w [out, in] transposed. */
function linear(x: np.Array, w: np.Array): np.Array {
  return np.matmul(x, w.transpose());
}

function rmsNorm(x: np.Array, gain: np.Array): np.Array {
  const meanSquare = x.ref.mul(x.ref).mean(-1, { keepdims: true });
  return x.div(np.sqrt(meanSquare.add(normEps))).mul(gain);
}
