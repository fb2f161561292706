// MiniLM's shape as an ONNX model in the operators of the exports that transformers.js runs after ONNX Runtime's optimizer has
// fused them: MultiHeadAttention with a mask of padding, SkipLayerNormalization, BiasGelu.

import type { Tensor } from "../../../src/base/tensor/tensor.ts";
import { toBytes } from "../decoders/rows.ts";
import { FLOAT, INT32, INT64, OnnxGraph } from "../onnx-graph.ts";
import { transposed } from "../transpose.ts";
import { CONFIG } from "./shape.ts";

const MICROSOFT = "com.microsoft";

/** Inputs: ids [batch, n], and the mask of tokens [batch, n]. Output: the states [batch, n, 384]. Named as transformers.js asks. */
export function onnxEncoder(tensors: ReadonlyMap<string, Tensor>, format: "fp32" | "q8"): Uint8Array {
  const graph = new OnnxGraph();
  const named = (name: string) => {
    const found = tensors.get(name);
    if (!found) throw new Error(`${name} expected, got no such tensor`);
    return found;
  };
  const floats = (name: string) => graph.constant(named(name).data, named(name).shape);
  const ids = graph.input(["batch", "n"], INT64, "input_ids");
  const given = graph.input(["batch", "n"], INT64, "attention_mask");
  const node = (op: string, inputs: readonly string[], attributes = {}, domain = "") =>
    graph.node(op, inputs, attributes, 1, domain)[0] as string;

  const mask = node("Cast", [given], { to: INT32 });

  /** x · wᵀ without the bias. Integers are int8 with a scale for each output, as dynamic quantisation makes them. */
  const linear = (x: string, name: string): string => {
    const { data, shape } = named(`${name}.weight`);
    const [n = 0, k = 0] = shape;
    if (format === "fp32") return node("MatMul", [x, graph.constant(transposed(data, n, k), [k, n])]);
    const { values, scales } = toBytes(data, k);
    const [rows, scale, zero] = graph.node("DynamicQuantizeLinear", [x], {}, 3) as [string, string, string];
    const sums = node("MatMulInteger", [rows, graph.constant(transposed(values, n, k), [k, n]), zero]);
    const factors = node("Mul", [scale, graph.constant(scales, [n])]);
    return node("Mul", [node("Cast", [sums], { to: FLOAT }), factors]);
  };
  const eps = { epsilon: { float: CONFIG.layer_norm_eps } };
  const table = (name: string, format: "fp32" | "q8") => {
    const { data, shape } = named(name);
    if (format === "fp32") return graph.constant(data, shape);
    let most = 0;
    for (const x of data) most = Math.max(most, Math.abs(x));
    const bytes = Int8Array.from(data, (x) => Math.round((x * 127) / most));
    return { bytes: graph.constant(bytes, shape), scale: graph.constant(Float32Array.of(most / 127), []) };
  };
  const words = table("embeddings.word_embeddings.weight", format);
  const rows =
    typeof words === "string"
      ? node("Gather", [words, ids])
      : node("DequantizeLinear", [node("Gather", [words.bytes, ids]), words.scale]);
  const sizes = node("Shape", [ids]);
  const length = node("Gather", [sizes, graph.constant(BigInt64Array.of(1n), [])]);
  const zero = graph.constant(BigInt64Array.of(0n), []);
  const one = graph.constant(BigInt64Array.of(1n), []);
  const places = node("Gather", [floats("embeddings.position_embeddings.weight"), node("Range", [zero, length, one])]);
  const type = graph.constant(named("embeddings.token_type_embeddings.weight").data.slice(0, CONFIG.hidden_size), [
    CONFIG.hidden_size,
  ]);
  const sum = node("Add", [node("Add", [rows, places]), type]);
  const normed = [floats("embeddings.LayerNorm.weight"), floats("embeddings.LayerNorm.bias")];
  let x = node("LayerNormalization", [sum, ...normed], { axis: -1, ...eps });

  for (let layer = 0; layer < CONFIG.num_hidden_layers; layer++) {
    const at = (name: string) => `encoder.layer.${layer}.${name}`;
    const skip = (branch: string, norm: string, bias: string) =>
      node(
        "SkipLayerNormalization",
        [x, branch, floats(`${at(norm)}.weight`), floats(`${at(norm)}.bias`), floats(`${at(bias)}.bias`)],
        eps,
        MICROSOFT,
      );
    const parts = ["query", "key", "value"].map((part) => at(`attention.self.${part}`));
    const biases = Float32Array.from(parts.flatMap((part) => [...named(`${part}.bias`).data]));
    const heads = node(
      "MultiHeadAttention",
      [...parts.map((part) => linear(x, part)), graph.constant(biases, [biases.length]), mask],
      { num_heads: CONFIG.num_attention_heads },
      MICROSOFT,
    );
    x = skip(linear(heads, at("attention.output.dense")), "attention.output.LayerNorm", "attention.output.dense");
    const inner = node(
      "BiasGelu",
      [linear(x, at("intermediate.dense")), floats(at("intermediate.dense.bias"))],
      {},
      MICROSOFT,
    );
    x = skip(linear(inner, at("output.dense")), "output.LayerNorm", "output.dense");
  }
  return graph.model([graph.named(x, "last_hidden_state")]);
}
