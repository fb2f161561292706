import type { StoredTensor } from "../../base/tensor/dtypes.ts";
import { toFloats } from "../../base/tensor/to-floats.ts";
import { expectFields, expectInt, expectOneOf } from "../../base/util/arguments.ts";
import type { GgufFile } from "../../files/gguf/gguf.ts";
import type { AttentionConfig, QkNormConfig } from "../../layers/attention/config.ts";
import { PAIRINGS, type RopeConfig } from "../../layers/attention/rope.ts";
import type { AttentionWeights } from "../../layers/attention/weights.ts";
import type { NamedShapes } from "../spec/tensors.ts";
import {
  type AttentionShapes,
  expectFile,
  expectNoLongrope,
  expectTensors,
  type RopeFactors,
  readGgufConfig,
  readRopeFactors,
  refusal,
} from "./gguf-config.ts";

/** AttentionWeights with matrices as the file gives them: Q8_0 and Q4_0 in their encoding, other blocks as F32. */
export type GgufWeights = AttentionWeights<StoredTensor>;

/** An attention layer of a GGUF file, ready for `createAttention`. */
export interface GgufLayer {
  /** Shapes and rules of the layer. */
  readonly config: AttentionConfig;
  /** Weights of the layer. */
  readonly weights: GgufWeights;
}

/** Options of `readGgufLayer`. */
export interface GgufLayerOptions {
  /** RoPE pairing for an architecture that is not known, or instead of the known one. */
  readonly pairing?: RopeConfig["pairing"];
}

const WHERE = "readGgufLayer";

/**
 * The tensors of a layer by the name after `attn_`: the field of the weights, and whether the tensor is kept as stored.
 */
const FIELDS: Readonly<Record<string, readonly [keyof GgufWeights, "stored" | "floats"]>> = {
  "q.weight": ["wq", "stored"],
  "k.weight": ["wk", "stored"],
  "v.weight": ["wv", "stored"],
  "qkv.weight": ["wqkv", "stored"],
  "output.weight": ["wo", "stored"],
  "q.bias": ["bq", "floats"],
  "k.bias": ["bk", "floats"],
  "v.bias": ["bv", "floats"],
  "qkv.bias": ["bqkv", "floats"],
  "output.bias": ["bo", "floats"],
  "q_norm.weight": ["qNorm", "floats"],
  "k_norm.weight": ["kNorm", "floats"],
  "sinks.weight": ["sinkLogits", "floats"],
  sinks: ["sinkLogits", "floats"],
};

/**
 * Reads one attention layer of a GGUF file. The configuration comes from the metadata and from what is known of the
 * architecture. Vectors become float32, matrices are as `openGguf` gives them. Only the bytes of this layer are read.
 *
 * The architecture determines the RoPE pairing: "interleaved" for Llama and its relatives, whose rows were permuted when the
 * file was made, "half" for Qwen, Gemma, Phi and others. A sliding window applies to the layers that the metadata or the
 * architecture name, and to all layers if neither names any.
 * @param layer Index of the layer, from 0.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for an unknown architecture, unless
 * `options.pairing` is given (all other rules then come from the metadata alone); for rules that are not supported; for a
 * missing tensor, a shape that contradicts the metadata, and attention tensors that are not understood.
 * @example
 * import { open } from "node:fs/promises";
 * import { fileSource, type GgufLayer, openGguf, readGgufLayer } from "headwise/weights";
 * async function readLayer(path: string, layer: number): Promise<GgufLayer> {
 *   await using handle = await open(path);
 *   return readGgufLayer(await openGguf(await fileSource(handle)), layer);
 * }
 * console.log(typeof readLayer); // function: readLayer("Llama-3.2-1B-Q8_0.gguf", 15) reads 11 MB of 1.3 GB
 */
export async function readGgufLayer(file: GgufFile, layer: number, options: GgufLayerOptions = {}): Promise<GgufLayer> {
  expectFile(WHERE, file);
  expectInt(WHERE, "layer", layer, 0);
  expectFields(WHERE, "options", options, ["pairing"]);
  const { pairing } = options;
  if (pairing !== undefined) expectOneOf(WHERE, "options.pairing", pairing, PAIRINGS);
  expectNoLongrope(WHERE, file);
  const { config, required, optional } = readHeads(WHERE, file, layer, pairing, await readRopeFactors(WHERE, file));
  const names = expectTensors(WHERE, file, layerPrefix(layer), required, optional);
  return { config, weights: headWeights(WHERE, await file.readAll(names, WHERE), layerPrefix(layer)) };
}

/** What the names of the tensors of a layer's attention begin with. */
export const layerPrefix = (layer: number): string => `blk.${layer}.attn_`;

/** The configuration of a layer, from the metadata and what tensors there are, and the tensors that it has then. */
export function readHeads(
  where: string,
  file: Pick<GgufFile, "metadata" | "tensors">,
  layer: number,
  pairing: RopeConfig["pairing"] | undefined,
  factors: RopeFactors | undefined,
): { readonly config: AttentionConfig } & AttentionShapes {
  const stated = readGgufConfig(where, file, layer, pairing, factors);
  const prefix = layerPrefix(layer);
  const has = (part: string) => file.tensors.has(prefix + part);
  const { numHeads, dModel, numKvHeads, headDim, valueDim } = stated.config;
  const [q, k, v] = [numHeads * headDim, numKvHeads * headDim, numKvHeads * valueDim];
  if (has("q_norm.weight") !== has("k_norm.weight"))
    throw refusal(where, `${prefix}q_norm.weight`, `beside "${prefix}k_norm.weight", both or neither`, "one of them");
  // With one query head, both kinds are the same.
  const isFull = ![undefined, headDim].includes(file.tensors.get(`${prefix}q_norm.weight`)?.shape.at(-1));
  const kind: QkNormConfig["kind"] = isFull ? "full" : "per-head";
  const qkNorm = has("q_norm.weight") ? { kind, eps: stated.normEps(`${prefix}q_norm.weight`) } : undefined;
  const fused = has("qkv.weight");
  const projections: NamedShapes = fused
    ? [["qkv.weight", [q + k + v, dModel]]]
    : Object.entries({ "q.weight": [q, dModel], "k.weight": [k, dModel], "v.weight": [v, dModel] });
  return {
    config: { ...stated.config, ...(qkNorm && { qkNorm }) },
    required: [...projections, ["output.weight", [dModel, numHeads * valueDim]]],
    optional: Object.entries({
      ...(fused ? { "qkv.bias": [q + k + v] } : { "q.bias": [q], "k.bias": [k], "v.bias": [v] }),
      "output.bias": [dModel],
      "q_norm.weight": [isFull ? q : headDim],
      "k_norm.weight": [isFull ? k : headDim],
      "sinks.weight": [numHeads],
      sinks: [numHeads],
    }),
  };
}

/** The tensors of a layer as weights. */
export function headWeights(where: string, tensors: ReadonlyMap<string, StoredTensor>, prefix: string): GgufWeights {
  const weights: Record<string, StoredTensor | Float32Array> = {};
  for (const [name, tensor] of tensors) {
    const [field, kept] = FIELDS[name.slice(prefix.length)] as (typeof FIELDS)[string];
    // Vectors are copied, because the bytes around them belong to other tensors.
    weights[field] = kept === "stored" ? tensor : toFloats(tensor, where).slice();
  }
  return weights as unknown as GgufWeights;
}
