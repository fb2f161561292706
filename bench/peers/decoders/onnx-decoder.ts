// A decoder as an ONNX model in the operators of the exports that transformers.js runs: GroupQueryAttention with caches as
// inputs and outputs, and norms fused with sums.

import { writeFileSync } from "node:fs";
import { INT32, INT64, OnnxGraph } from "../onnx-graph.ts";
import { type OnnxFormat, type OnnxWeights, onnxWeights, openExternal } from "./onnx-weights.ts";
import type { RandomWeights } from "./random-weights.ts";
import { type DecoderShape, EMBED, FINAL_NORM, layerPrefix } from "./shape.ts";

const MICROSOFT = "com.microsoft";

/** The weights of a model lie beside it. */
export const dataFileOf = (path: string) => `${path}.data`;

/**
 * Inputs, in this order: ids [1, n], tokens in all minus 1 [1], tokens in all (a scalar), and for each layer the keys and the
 * values so far [1, numKvHeads, past, headDim]. Outputs: the logits of the last token [1, vocabSize], and the caches.
 */
export function writeOnnxDecoder(
  path: string,
  format: OnnxFormat,
  shape: DecoderShape,
  weights: RandomWeights,
  maxSeqLen: number,
): void {
  const graph = new OnnxGraph();
  const named = new Map(weights.tensors.map((tensor) => [tensor.name, tensor]));
  const tensor = (name: string) => named.get(name)!;
  const data = openExternal(graph, dataFileOf(path));
  const store = onnxWeights(graph, format, weights, data.store);

  const ids = graph.input([1, "n"], INT64);
  const lengths = [graph.input([1], INT32), graph.input([], INT32)];
  const cache = [1, shape.numKvHeads, "past", shape.headDim];
  const pasts = Array.from({ length: shape.layers }, () => [graph.input(cache), graph.input(cache)]);
  const angles = angleTables(graph, shape, maxSeqLen);

  let sum = store.rows(ids, tensor(EMBED));
  let branch: string | undefined;
  /** Adds the branch, and normalises the sum. */
  const normed = (name: string) => {
    const gains = store.floats(tensor(name));
    if (branch === undefined) return rmsNorm(graph, sum, gains, shape.eps);
    const attributes = { epsilon: { float: shape.eps } };
    const outputs = graph.node("SkipSimplifiedLayerNormalization", [sum, branch, gains], attributes, 4, MICROSOFT);
    sum = outputs[3]!;
    return outputs[0]!;
  };
  const presents: string[] = [];
  for (let layer = 0; layer < shape.layers; layer++) {
    const at = (name: string) => tensor(`${layerPrefix(layer)}${name}.weight`);
    const rows = normed(at("input_layernorm").name);
    const [q, k, v] = store.linears(rows, [at("self_attn.q_proj"), at("self_attn.k_proj"), at("self_attn.v_proj")]);
    const normedHeads =
      shape.type === "qwen3"
        ? [
            headNorm(graph, q!, store.floats(at("self_attn.q_norm")), shape.numHeads, shape),
            headNorm(graph, k!, store.floats(at("self_attn.k_norm")), shape.numKvHeads, shape),
          ]
        : [q!, k!];
    const [heads, ...present] = graph.node(
      "GroupQueryAttention",
      [...normedHeads, v!, ...pasts[layer]!, ...lengths, ...angles],
      { num_heads: shape.numHeads, kv_num_heads: shape.numKvHeads, do_rotary: 1, rotary_interleaved: 0 },
      3,
      MICROSOFT,
    );
    presents.push(...present);
    branch = store.linears(heads!, [at("self_attn.o_proj")])[0]!;
    branch = mlp(graph, store, normed(at("post_attention_layernorm").name), at);
  }
  const last = graph.constant(BigInt64Array.of(-1n), []);
  const [row] = graph.node("Gather", [normed(FINAL_NORM), last], { axis: 1 });
  const logits = store.head(row!, tensor(EMBED));
  data.close();
  writeFileSync(path, graph.model([logits, ...presents]));
}

export function rmsNorm(graph: OnnxGraph, x: string, gains: string, eps: number): string {
  return graph.node("SimplifiedLayerNormalization", [x, gains], { axis: -1, epsilon: { float: eps } })[0]!;
}

/** An RMS norm of each head. */
function headNorm(graph: OnnxGraph, x: string, gains: string, heads: number, { headDim, eps }: DecoderShape): string {
  const [rows] = graph.node("Reshape", [x, graph.sizes([0, -1, headDim])]);
  return graph.node("Reshape", [rmsNorm(graph, rows!, gains, eps), graph.sizes([0, -1, heads * headDim])])[0]!;
}

type At = (name: string) => Parameters<OnnxWeights["floats"]>[0];

function mlp(graph: OnnxGraph, store: OnnxWeights, rows: string, at: At): string {
  const [gate, up] = store.linears(rows, [at("mlp.gate_proj"), at("mlp.up_proj")]);
  const [sigmoid] = graph.node("Sigmoid", [gate!]);
  const [silu] = graph.node("Mul", [gate!, sigmoid!]);
  const [product] = graph.node("Mul", [silu!, up!]);
  return store.linears(product!, [at("mlp.down_proj")])[0]!;
}

/** Cosines and sines [maxSeqLen, headDim / 2]. */
function angleTables(graph: OnnxGraph, { headDim, theta }: DecoderShape, maxSeqLen: number): string[] {
  const half = headDim / 2;
  const table = (of: (angle: number) => number) =>
    Float32Array.from({ length: maxSeqLen * half }, (_, i) =>
      of(Math.floor(i / half) * theta ** (-2 * ((i % half) / headDim))),
    );
  return [Math.cos, Math.sin].map((of) => graph.constant(table(of), [maxSeqLen, half]));
}
