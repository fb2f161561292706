// Encoders as ONNX models in the operators of the exports that transformers.js runs after ONNX Runtime's optimizer has fused them.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { rmsNorm } from "../decoders/onnx-decoder.ts";
import { type OnnxWeights, onnxWeights, openExternal } from "../decoders/onnx-weights.ts";
import type { RandomWeights } from "../decoders/random-weights.ts";
import type { TensorSpec } from "../decoders/shape.ts";
import { type Attribute, FLOAT, INT32, INT64, OnnxGraph } from "../onnx-graph.ts";
import { fileNameOf } from "./embedder.ts";
import { denseName, type EncoderShape, POOLER } from "./shape.ts";

const MICROSOFT = "com.microsoft";

/** A graph under construction, and what its parts need. */
interface Building {
  readonly graph: OnnxGraph;
  readonly shape: EncoderShape;
  readonly store: OnnxWeights;
  tensor(name: string): TensorSpec;
  values(name: string): Float32Array;
  /** A node with one output. */
  node(op: string, inputs: readonly string[], attributes?: Record<string, Attribute>, domain?: string): string;
  /** The ids of tokens, and the mask of those that are no padding: [batch, n]. */
  readonly ids: string;
  readonly mask: string;
}

/** Inputs and outputs have the names that transformers.js asks for: states, vectors, or scores. */
export function writeOnnxEncoder(
  folder: string,
  format: "fp32" | "q8",
  shape: EncoderShape,
  weights: RandomWeights,
): void {
  const path = join(folder, fileNameOf(format));
  const graph = new OnnxGraph();
  const data = shape.external ? openExternal(graph, `${path}_data`) : undefined;
  const store = onnxWeights(graph, format, weights, data?.store ?? ((values, size) => graph.constant(values, size)));
  const named = new Map(weights.tensors.map((tensor) => [tensor.name, tensor]));
  const tensor = (name: string) => {
    const found = named.get(name);
    if (!found) throw new Error(`${name} expected, got no such tensor`);
    return found;
  };
  const building: Building = {
    ...{ graph, shape, store, tensor, values: (name) => weights.read(tensor(name)) },
    node: (op, inputs, attributes = {}, domain = "") => graph.node(op, inputs, attributes, 1, domain)[0] as string,
    ids: graph.input(["batch", "n"], INT64, "input_ids"),
    mask: graph.input(["batch", "n"], INT64, "attention_mask"),
  };
  const states = shape.config.model_type === "bert" ? bert(building) : gated(building);
  const output =
    shape.task === "rank"
      ? graph.named(classified(building, states), "logits")
      : shape.dense.length > 0
        ? graph.named(pooled(building, states), "sentence_embedding")
        : graph.named(states, "last_hidden_state");
  data?.close();
  writeFileSync(path, graph.model([output]));
}

/** BERT: MultiHeadAttention with a mask of padding, SkipLayerNormalization, BiasGelu. */
function bert({ graph, shape: { config }, store, tensor, values, node, ids, mask }: Building): string {
  const eps = { epsilon: { float: config.layer_norm_eps as number } };
  const floats = (name: string) => store.floats(tensor(name));
  const types = graph.input(["batch", "n"], INT64, "token_type_ids");
  const padding = node("Cast", [mask], { to: INT32 });
  const scalar = (value: bigint) => graph.constant(BigInt64Array.of(value), []);
  const length = node("Gather", [node("Shape", [ids]), scalar(1n)]);
  const rows = [
    store.rows(ids, tensor("embeddings.word_embeddings.weight")),
    node("Gather", [floats("embeddings.position_embeddings.weight"), node("Range", [scalar(0n), length, scalar(1n)])]),
    node("Gather", [floats("embeddings.token_type_embeddings.weight"), types]),
  ].reduce((sum, each) => node("Add", [sum, each]));
  const ends = [floats("embeddings.LayerNorm.weight"), floats("embeddings.LayerNorm.bias")];
  let x = node("LayerNormalization", [rows, ...ends], { axis: -1, ...eps });
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const at = (name: string) => `encoder.layer.${layer}.${name}`;
    const linears = (from: string, ...names: string[]) =>
      store.linears(
        from,
        names.map((name) => tensor(`${at(name)}.weight`)),
      );
    const skip = (branch: string, part: string) => {
      const norm = at(`${part}.LayerNorm`);
      const inputs = [x, branch, floats(`${norm}.weight`), floats(`${norm}.bias`), floats(at(`${part}.dense.bias`))];
      return node("SkipLayerNormalization", inputs, eps, MICROSOFT);
    };
    const parts = ["query", "key", "value"].map((part) => `attention.self.${part}`);
    const biases = Float32Array.from(parts.flatMap((part) => [...values(`${at(part)}.bias`)]));
    const inputs = [...linears(x, ...parts), graph.constant(biases, [biases.length]), padding];
    const heads = node("MultiHeadAttention", inputs, { num_heads: config.num_attention_heads }, MICROSOFT);
    x = skip(linears(heads, "attention.output.dense")[0]!, "attention.output");
    const [inner] = linears(x, "intermediate.dense");
    const gelu = node("BiasGelu", [inner!, floats(at("intermediate.dense.bias"))], {}, MICROSOFT);
    x = skip(linears(gelu, "output.dense")[0]!, "output");
  }
  return x;
}

/** Qwen3 and Gemma 3: RMS norms, also of heads, rotary positions, gated MLPs; Gemma has norms behind its branches, too. */
function gated(building: Building): string {
  const { graph, shape, store, tensor, values, node, ids } = building;
  const config = shape.config;
  const isGemma = config.model_type === "gemma3_text";
  const eps = config.rms_norm_eps as number;
  const headDim = config.head_dim as number;
  const gains = (name: string) => {
    const data = values(name);
    return graph.constant(isGemma ? data.map((x) => 1 + x) : data, [data.length]);
  };
  const norm = (x: string, name: string) => rmsNorm(graph, x, gains(name), eps);
  const headNorm = (x: string, name: string, heads: number) => {
    const rows = node("Reshape", [x, graph.sizes([0, -1, headDim])]);
    return node("Reshape", [norm(rows, name), graph.sizes([0, -1, heads * headDim])]);
  };
  const attend = isGemma ? bothWays(building) : causal(building);

  let sum = store.rows(ids, tensor("embed_tokens.weight"));
  if (isGemma) sum = node("Mul", [sum, graph.constant(Float32Array.of(Math.sqrt(config.hidden_size)), [])]);
  let branch: string | undefined;
  /** Adds the branch, and normalises the sum. */
  const normed = (name: string) => {
    if (branch === undefined) return norm(sum, name);
    const attributes = { epsilon: { float: eps } };
    const outputs = graph.node(
      ...(["SkipSimplifiedLayerNormalization", [sum, branch, gains(name)], attributes, 4, MICROSOFT] as const),
    );
    sum = outputs[3]!;
    return outputs[0]!;
  };
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const at = (name: string) => `layers.${layer}.${name}.weight`;
    const linears = (x: string, ...names: string[]) =>
      store.linears(
        x,
        names.map((name) => tensor(at(name))),
      );
    const behind = (x: string, name: string) => (isGemma ? norm(x, at(name)) : x);
    const rows = normed(at("input_layernorm"));
    const [q, k, v] = linears(rows, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj");
    const heads = attend(
      ...([headNorm(q!, at("self_attn.q_norm"), config.num_attention_heads), layer] as const),
      ...([headNorm(k!, at("self_attn.k_norm"), config.num_key_value_heads!), v!] as const),
    );
    branch = behind(linears(heads, "self_attn.o_proj")[0]!, "post_attention_layernorm");
    const inner = normed(at(isGemma ? "pre_feedforward_layernorm" : "post_attention_layernorm"));
    const [gate, up] = linears(inner, "mlp.gate_proj", "mlp.up_proj");
    const opened = isGemma ? node("FastGelu", [gate!], {}, MICROSOFT) : node("Mul", [gate!, node("Sigmoid", [gate!])]);
    const [down] = linears(node("Mul", [opened, up!]), "mlp.down_proj");
    branch = behind(down!, "post_feedforward_layernorm");
  }
  return normed("norm.weight");
}

/** Attends rotated queries and keys. */
type Attend = (q: string, layer: number, k: string, v: string) => string;

/** GroupQueryAttention, which rotates, with lengths of the mask. */
function causal(building: Building): Attend {
  const { graph, node, mask, shape } = building;
  const { num_attention_heads: num_heads, num_key_value_heads: kv_num_heads = num_heads } = shape.config;
  const one = graph.constant(BigInt64Array.of(1n), []);
  const counts = node("ReduceSum", [mask, graph.sizes([1])], { keepdims: 0 });
  const last = node("Cast", [node("Sub", [counts, one])], { to: INT32 });
  const all = node("Cast", [node("Gather", [node("Shape", [mask]), one])], { to: INT32 });
  const angles = angleTables(building, shape.config.rope_theta as number);
  const attributes = { num_heads, kv_num_heads, do_rotary: 1, rotary_interleaved: 0 };
  return (q, _layer, k, v) =>
    graph.node("GroupQueryAttention", [q, k, v, "", "", last, all, ...angles], attributes, 3, MICROSOFT)[0]!;
}

/** RotaryEmbedding, by the angles of the kind of layer, and MultiHeadAttention on repeated keys. */
function bothWays(building: Building): Attend {
  const { graph, node, mask, shape } = building;
  const { num_attention_heads: num_heads, num_key_value_heads: kvHeads = 1, _sliding_window_pattern } = shape.config;
  const padding = node("Cast", [mask], { to: INT32 });
  const first = graph.sizes([0]);
  const [full, local] = [shape.config.rope_theta, shape.config.rope_local_base_freq].map((theta) =>
    angleTables(building, theta as number),
  );
  const repeat = (x: string) => node("Concat", Array<string>(num_heads / kvHeads).fill(x), { axis: 2 });
  return (q, layer, k, v) => {
    const angles = (layer + 1) % (_sliding_window_pattern as number) === 0 ? full! : local!;
    const rotated = (x: string, heads: number) =>
      node("RotaryEmbedding", [x, first, ...angles], { num_heads: heads }, MICROSOFT);
    const inputs = [rotated(q, num_heads), repeat(rotated(k, kvHeads)), repeat(v), "", padding];
    return node("MultiHeadAttention", inputs, { num_heads }, MICROSOFT);
  };
}

/** Cosines and sines [positions, headDim / 2]. */
function angleTables({ graph, shape }: Building, theta: number): string[] {
  const [half, positions] = [(shape.config.head_dim as number) / 2, 512];
  const table = (of: (angle: number) => number) =>
    Float32Array.from({ length: positions * half }, (_, i) => of(Math.floor(i / half) * theta ** (-(i % half) / half)));
  return [Math.cos, Math.sin].map((of) => graph.constant(table(of), [positions, half]));
}

/** The mean of states, matrices, and a length of 1. */
function pooled({ graph, shape, store, tensor, node, mask }: Building, states: string): string {
  const weights = node("Cast", [node("Unsqueeze", [mask, graph.sizes([2])])], { to: FLOAT });
  const sumOf = (x: string) => node("ReduceSum", [x, graph.sizes([1])], { keepdims: 0 });
  let x = node("Div", [sumOf(node("Mul", [states, weights])), sumOf(weights)]);
  for (const i of shape.dense.keys()) x = store.linears(x, [tensor(denseName(i))])[0]!;
  return node("LpNormalization", [x], { axis: -1, p: 2 });
}

/** The pooler of the first token, and the classifier. */
function classified({ graph, store, tensor, node }: Building, states: string): string {
  const first = node("Gather", [states, graph.constant(BigInt64Array.of(0n), [])], { axis: 1 });
  const linear = (x: string, name: string) =>
    node("Add", [store.linears(x, [tensor(`${name}.weight`)])[0]!, store.floats(tensor(`${name}.bias`))]);
  return linear(node("Tanh", [linear(first, POOLER.name)]), POOLER.classifier);
}
