// What the forms of GGUF files share: what a family states of its files, the sizes in config.json, and changes of tensors.

import type { Tensor } from "../../src/base/tensor/tensor.ts";
import { f32, type Typed } from "./gguf-writer.ts";

export type Config = Readonly<Record<string, unknown>>;
export type Keys = Readonly<Record<string, Typed>>;
export type Tensors = Map<string, Tensor>;

/** What a family has besides the keys of all and the names below. */
export interface Form {
  readonly architecture: string;
  /** Names that differ from NAMES. */
  readonly names?: Readonly<Record<string, string>>;
  /** Its own keys, below the architecture. */
  readonly keys?: (config: Config) => Keys;
  /** Changes tensors, named as in GGUF, in place. */
  readonly change?: (tensors: Tensors, config: Config) => void;
  readonly norm?: "layer";
  /** The gate of the shared expert is a matrix of one row. Default: a vector. */
  readonly gateRow?: true;
  /** Which biases its files have, by the name within a layer. Default none: llama.cpp refuses files with others. */
  readonly biases?: RegExp;
}

export const number = (config: Config, ...names: readonly string[]): number | undefined =>
  names.map((name) => config[name]).find((value) => typeof value === "number") as number | undefined;
export const count = (config: Config, ...names: readonly string[]): number => number(config, ...names) ?? 0;

export const layersOf = (config: Config) => count(config, "num_hidden_layers", "n_layer", "n_layers");
export const headsOf = (config: Config) => count(config, "num_attention_heads", "n_head", "n_heads");
export const widthOf = (config: Config) => count(config, "hidden_size", "n_embd", "d_model");
export const headDimOf = (config: Config) => number(config, "head_dim") ?? widthOf(config) / headsOf(config);

/** Heads of keys and values. */
export function kvHeadsOf(config: Config): number {
  if (config.model_type === "falcon" && !config.new_decoder_architecture && config.multi_query !== false) return 1;
  return number(config, "num_key_value_heads", "num_kv_heads") ?? headsOf(config);
}

/** Rows of `tensor`, each of them `width` floats of its data, in the order `rows`. */
export function pickRows(tensor: Tensor, rows: readonly number[]): Tensor {
  const [all = 0, ...rest] = tensor.shape;
  const width = tensor.data.length / all;
  const data = new Float32Array(rows.length * width);
  for (const [to, from] of rows.entries()) data.set(tensor.data.subarray(from * width, (from + 1) * width), to * width);
  return { data, shape: [rows.length, ...rest] };
}

export const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

/** Changes each tensor whose name after its layer, without the ending, is one of `parts`. */
export function each(
  tensors: Tensors,
  parts: readonly string[],
  change: (tensor: Tensor, end: string) => Tensor,
): void {
  for (const [name, tensor] of tensors) {
    const [, part = "", end = ""] = /^blk\.\d+\.(.*)\.(\w+)$/.exec(name) ?? [];
    if (parts.includes(part)) tensors.set(name, change(tensor, end));
  }
}

/** Rows of queries and keys, whose halves of a head rotate together, as neighbours. */
export function interleave(tensors: Tensors, config: Config): void {
  const dim = headDimOf(config);
  const order = (rows: number) =>
    range(0, rows).map((row) => row - (row % dim) + ((row % dim) >> 1) + (row % 2) * (dim / 2));
  each(tensors, ["attn_q", "attn_k"], (tensor) => pickRows(tensor, order(tensor.shape[0] as number)));
}

export function transpose({ data, shape }: Tensor): Tensor {
  const [rows, columns] = shape as [number, number];
  return {
    data: data.map((_, i) => data[(i % rows) * columns + Math.floor(i / rows)] as number),
    shape: [columns, rows],
  };
}

/** Gains of Gemma are stored less 1. */
export function addOne(tensors: Tensors): void {
  for (const [name, { data, shape }] of tensors)
    if (name.endsWith("norm.weight")) tensors.set(name, { data: data.map((gain) => gain + 1), shape });
}

export const granite = (config: Config): Keys => ({
  "attention.scale": f32(count(config, "attention_multiplier")),
  embedding_scale: f32(count(config, "embedding_multiplier")),
  residual_scale: f32(count(config, "residual_multiplier")),
  logit_scale: f32(count(config, "logits_scaling")),
});
