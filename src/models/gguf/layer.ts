import type { AttentionConfig, QkNormConfig } from "../../attention/config.ts";
import { PAIRINGS, type RopeConfig } from "../../attention/rope.ts";
import type { AttentionWeights } from "../../attention/weights.ts";
import type { GgufFile } from "../../files/gguf/gguf.ts";
import { type StoredTensor, shapeText, toFloats } from "../../tensor/dtypes.ts";
import { expectFields, expectInt, expectOneOf } from "../../util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../../util/errors.ts";
import { readGgufConfig } from "./config.ts";

/** AttentionWeights with matrices in the encoding of the file, quantised ones included. */
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

/** Tensors with a layer's `attn_` prefix that are not part of attention: norms around it, and unused tables. */
const OUTSIDE = /^(norm|norm_2|output_norm|rot_embd)\./;

/** Divisors of the RoPE frequencies of all layers (Llama 3), and those of longrope, which is not supported. */
const FACTORS = "rope_freqs.weight";
const MOST_FACTORS = 2 ** 15;
const LONG_FACTORS = ["rope_factors_long.weight", "rope_factors_short.weight"] as const;

/**
 * Reads one attention layer of a GGUF file. The configuration comes from the metadata and from what is known of the
 * architecture. Matrices keep their encoding, vectors become float32. Only the bytes of this layer are read.
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
  expectFile(file);
  expectInt(WHERE, "layer", layer, 0);
  expectFields(WHERE, "options", options, ["pairing"]);
  const { pairing } = options;
  if (pairing !== undefined) expectOneOf(WHERE, "options.pairing", pairing, PAIRINGS);
  for (const name of LONG_FACTORS)
    if (file.tensors.has(name)) throw refusal(name, "to be absent, since longrope is unsupported", "it");

  const prefix = `blk.${layer}.attn_`;
  const names = [...file.tensors.keys()].filter((name) => name.startsWith(prefix));
  const stated = readGgufConfig(file, layer, pairing, await readFactors(file));
  const parts = partsOf(file, prefix, names);
  const { numHeads, dModel, numKvHeads, headDim, valueDim } = stated.config;
  const [q, k, v] = [numHeads * headDim, numKvHeads * headDim, numKvHeads * valueDim];

  const fused = parts.has("qkv.weight");
  const shapes: Record<string, readonly number[]> = {
    ...(fused
      ? { "qkv.weight": [q + k + v, dModel] }
      : { "q.weight": [q, dModel], "k.weight": [k, dModel], "v.weight": [v, dModel] }),
    "output.weight": [dModel, numHeads * valueDim],
  };
  const lengths: Record<string, readonly number[]> = {
    ...(fused ? { "qkv.bias": [q + k + v] } : { "q.bias": [q], "k.bias": [k], "v.bias": [v] }),
    "output.bias": [dModel],
    "q_norm.weight": [headDim, q],
    "k_norm.weight": [headDim, k],
    "sinks.weight": [numHeads],
    sinks: [numHeads],
  };
  for (const [part, shape] of Object.entries(shapes)) parts.expectShape(part, shape);
  for (const [part, choices] of Object.entries(lengths)) if (parts.has(part)) parts.expectLength(part, choices);
  parts.expectOnly([...Object.keys(shapes), ...Object.keys(lengths)]);
  if (parts.has("q_norm.weight") !== parts.has("k_norm.weight"))
    throw refusal(`${prefix}q_norm.weight`, `beside "${prefix}k_norm.weight", both or neither`, "one of them");

  // With one query head, both kinds are the same.
  const kind: QkNormConfig["kind"] = parts.length("q_norm.weight") === headDim ? "per-head" : "full";
  if (parts.has("k_norm.weight")) parts.expectLength("k_norm.weight", [kind === "full" ? k : headDim]);
  const qkNorm = parts.has("q_norm.weight") ? { kind, eps: stated.normEps(`${prefix}q_norm.weight`) } : undefined;

  const weights: Record<string, StoredTensor | Float32Array> = {};
  for (const [name, tensor] of await file.readAll(parts.names(), WHERE)) {
    const [field, kept] = FIELDS[name.slice(prefix.length)] as (typeof FIELDS)[string];
    // Vectors are copied, because the bytes around them belong to other tensors.
    weights[field] = kept === "stored" ? tensor : toFloats(tensor, WHERE).slice();
  }
  return { config: { ...stated.config, ...(qkNorm && { qkNorm }) }, weights: weights as unknown as GgufWeights };
}

function expectFile(file: GgufFile): void {
  const isMap = (value: unknown) => tagOf(value) === "Map";
  const { metadata, tensors, read, readAll } = Object(file) as Partial<GgufFile>;
  if (isMap(metadata) && isMap(tensors) && typeof read === "function" && typeof readAll === "function") return;
  throw new TypeError(
    `${WHERE}: file expected metadata, tensors, read and readAll, as openGguf gives them, got ${describe(file)}`,
  );
}

function refusal(name: string, rule: string, got: string): HeadwiseError {
  return new HeadwiseError("BAD_FILE", `${WHERE}: tensor ${describe(name)} expected ${rule}, got ${got}`);
}

async function readFactors(file: GgufFile): Promise<Float32Array | undefined> {
  const entry = file.tensors.get(FACTORS);
  if (entry === undefined) return undefined;
  const { shape } = entry;
  if (shape.length !== 1 || (shape[0] as number) > MOST_FACTORS)
    throw refusal(FACTORS, `one dimension of at most ${MOST_FACTORS}`, shapeText(shape));
  const factors = toFloats(await file.read(FACTORS, WHERE), WHERE).slice();
  const odd = factors.find((factor) => !(factor >= 1 && factor < Infinity));
  if (odd !== undefined) throw refusal(FACTORS, "finite factors >= 1", String(odd));
  return factors;
}

/** The tensors of a layer by the name after its prefix. */
function partsOf(file: GgufFile, prefix: string, names: readonly string[]) {
  const shapeOf = (part: string) => file.tensors.get(prefix + part)?.shape;
  const files = Number(file.metadata.get("split.count") ?? 1);
  const none = files > 1 ? `no such tensor in this one of ${files} files` : "no such tensor";
  const inside = names.filter((name) => !OUTSIDE.test(name.slice(prefix.length)));
  return {
    names: () => inside,
    has: (part: string) => shapeOf(part) !== undefined,
    length: (part: string) => shapeOf(part)?.at(-1),
    expectShape(part: string, shape: readonly number[]) {
      const found = shapeOf(part);
      if (found?.length !== shape.length || found.some((length, axis) => length !== shape[axis]))
        throw refusal(prefix + part, `shape ${shapeText(shape)}`, found ? shapeText(found) : none);
    },
    expectLength(part: string, choices: readonly number[]) {
      const found = shapeOf(part) as readonly number[];
      if (found.length !== 1 || !choices.includes(found[0] as number))
        throw refusal(prefix + part, `shape ${choices.map((n) => shapeText([n])).join(" or ")}`, shapeText(found));
    },
    expectOnly(known: readonly string[]) {
      const unread = inside.find((name) => !known.includes(name.slice(prefix.length)));
      if (unread !== undefined) throw refusal(unread, "to be absent, since the layer would be read without it", "it");
    },
  };
}
