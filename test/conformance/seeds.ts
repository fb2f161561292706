import {
  type AttentionConfig,
  type AttentionWeights,
  attend,
  attendWithMaps,
  createAttention,
  createLinear,
  type Kernels,
  linear,
  type Mask,
  scaledDotProductAttention,
  type Tensor,
} from "../../src/entries/core.ts";
import { splitHeads } from "../../src/entries/index.ts";
import { identity } from "./arrays.ts";
import type { Case, Outcome, Values } from "./case.ts";
import { product } from "./case.ts";

/** The tutorials' attention modules. They differ in names, layout, rank and mask; each spelling maps to one thing here. */
export function tutorialAttention(kernels: Kernels, c: Case): Outcome {
  const x = c.floats(["x", "X", "x_in"].find((name) => c.has(name)) ?? "x");
  const dModel = x.shape.at(-1)!;
  const batch = x.shape.length === 3 ? x.shape[0]! : undefined;
  const numHeads = c.someNumber("num_heads", "n_heads");
  const config: AttentionConfig = {
    dModel,
    numHeads,
    numKvHeads: c.number("n_kv_heads"),
    causal: c.flag("is_causal"),
  };
  const weights = tutorialWeights(c);
  const options = { batch, ...tutorialMask(c) };
  const attention = createAttention(kernels, config, weights);
  // With the output projection replaced by the identity, what comes out is the heads side by side.
  const heads = createAttention(kernels, config, { ...weights, wo: identity(weights.wo.shape[0]!), bo: undefined });
  try {
    const { y, maps } = attendWithMaps(attention, x.data, options);
    const output: Values = { data: y, shape: x.shape };
    const concat: Tensor = { data: attend(heads, x.data, options), shape: x.shape };
    return {
      outputs: {
        ...Object.fromEntries(["out", "output", "y", "y_out"].map((name) => [name, output])),
        ...Object.fromEntries(["weights", "attn"].map((name) => [name, maps])),
        concat,
        out_h: headsOf(kernels, concat, numHeads),
      },
    };
  } finally {
    heads.release();
    attention.release();
  }
}

/** x [..., in] · W. */
export function matMul(kernels: Kernels, c: Case): Outcome {
  const x = c.floats("x0");
  const layout = c.text("layout").includes("out,in") ? "out-in" : "in-out";
  using layer = createLinear(kernels, { weight: c.floats("W"), layout });
  const data = linear(layer, x.data);
  return { outputs: { q0: { data, shape: [...x.shape.slice(0, -1), layer.outputs] } } };
}

/** Softmax over the last axis: the weights of queries and keys that are all zero, with the logits as bias. */
export function softmax(kernels: Kernels, c: Case): Outcome {
  const logits = c.floats("logits");
  const axis = c.number("axis") ?? -1;
  if (axis !== -1 && axis !== logits.shape.length - 1)
    throw new RangeError(`${c.entry.name}: axis expected the last one`);
  const kvLen = logits.shape.at(-1)!;
  const qLen = product(logits.shape.slice(0, -1));
  const zeros = (length: number): Tensor => ({ data: new Float32Array(length), shape: [1, 1, length, 1] });
  const { scores } = scaledDotProductAttention(kernels, zeros(qLen), zeros(kvLen), zeros(kvLen), {
    bias: { data: logits.data, shape: [qLen, kvLen] },
    scores: "weights",
  });
  return { outputs: { weights: { data: scores!.data, shape: logits.shape } } };
}

function tutorialWeights(c: Case): AttentionWeights & { wo: Tensor } {
  const bias = (name: string): Float32Array | undefined => c.floatsIfAny(`${name}.bias`)?.data;
  const [q, k, v, o] = ["q", "k", "v", "o"].map(
    (letter) =>
      [`W_${letter}.weight`, `W_${letter}`, `W${letter}`]
        .filter((name) => c.has(name))
        .map((name) => c.floats(name))[0],
  );
  return {
    // torch.nn.Linear keeps [out, in]; `x @ W` wants [in, out].
    layout: c.text("layout").includes("in,out") ? "in-out" : "out-in",
    ...(c.has("qkv.weight")
      ? { wqkv: c.floats("qkv.weight"), bqkv: bias("qkv") }
      : { wq: q!, wk: k!, wv: v!, bq: bias("W_q"), bk: bias("W_k"), bv: bias("W_v") }),
    wo: o!,
    bo: bias("W_o"),
  };
}

/** Distinguished by the words of the attribute: added, or True = masked, or 0 = masked. -1e9 excludes just as -inf does. */
function tutorialMask(c: Case): { keep?: Mask; drop?: Mask; bias?: Tensor } {
  if (!c.has("mask")) return {};
  const words = c.text("mask");
  if (/\badd(ed|itive)\b/.test(words)) return { bias: c.floats("mask") };
  return words.startsWith("True = masked") ? { drop: c.booleans("mask") } : { keep: c.booleans("mask") };
}

/** [..., length, heads·size] -> [..., heads, length, size], a batch row at a time. */
function headsOf(kernels: Kernels, { data, shape }: Tensor, numHeads: number): Values {
  const [length, width] = shape.slice(-2) as [number, number];
  const heads = new Float32Array(data.length);
  for (let at = 0; at < data.length; at += length * width) {
    const rows = { data: data.subarray(at, at + length * width), shape: [length, width] };
    heads.set(splitHeads(kernels, rows, numHeads).data, at);
  }
  return { data: heads, shape: [...shape.slice(0, -2), numHeads, length, width / numHeads] };
}
