import { type StoredTensor, toFloats } from "../../base/tensor/dtypes.ts";
import { expectInt } from "../../base/util/arguments.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import { ln } from "../../base/util/math.ts";
import type { GgufFile } from "../../files/gguf.ts";
import type { RopeConfig } from "../../layers/attention/rope.ts";
import { checkLatentConfig, type LatentConfig, type LatentWeights } from "../../layers/latent/config.ts";

import { checkFileConfig, present } from "../families/facts.ts";
import { GGUF_LATENTS } from "../families/index.ts";
import { reasonAgainst, UNSUPPORTED_ARCHITECTURES, UNSUPPORTED_RULE } from "../families/unsupported.ts";
import {
  type AttentionShapes,
  expectFile,
  expectNoLongrope,
  expectTensors,
  FACTORS,
  KEYS,
  type Keys,
  keysOf,
  layerPrefix,
  readScaling,
  refusal,
  UNSUPPORTED,
} from "./gguf-layer.ts";

/** LatentWeights with matrices as the file gives them: Q8_0 and Q4_0 in their encoding, other blocks as F32. */
export type GgufLatentWeights = LatentWeights<StoredTensor>;

/** A layer of latent attention of a GGUF file, ready for `createLatentAttention`. */
export interface GgufLatentLayer {
  /** Shapes and rules of the layer. */
  readonly config: LatentConfig;
  /** Weights of the layer. */
  readonly weights: GgufLatentWeights;
}

const WHERE = "readGgufLatentLayer";

/** Epsilon of the norms of latents. The models take it whatever the epsilon of their other norms is. */
const NORM_EPS = 1e-6;

/** Rules that other layers may have: the key, and the numbers that mean "none". */
const OF_OTHERS = [
  ["attention.causal", 1],
  ["attention.max_alibi_bias", 0],
  ["attention.scale", 0],
  ["attention.sliding_window", 0],
  ["attn_logit_softcapping", 0],
] as const;

/** wkvUp, and its parts in newer files: [numHeads, kvLoraRank, nopeDim] and [numHeads, valueDim, kvLoraRank]. */
const KV_UP = "kv_b.weight";
const K_UP = "k_b.weight";
const V_UP = "v_b.weight";

/**
 * Reads one layer of latent attention (MLA) of a GGUF file of the architecture "deepseek2", which files of DeepSeek-V2 and V3,
 * Kimi K2 and GLM-4.7-Flash have. Only the bytes of this layer are read.
 *
 * Vectors become float32, matrices are as `openGguf` gives them. Newer files hold the two parts of `wkvUp` as tensors of their own, of
 * which that of keys is transposed: they are joined, in 16 bits if both are F16 or both BF16, else in float32, without loss.
 * @param layer Index of the layer, from 0.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for another architecture; for rules that are not
 * supported; for a missing tensor, a shape that contradicts the metadata, and attention tensors that are not understood.
 * @example
 * import { open } from "node:fs/promises";
 * import { fileSource, type GgufLatentLayer, openGguf, readGgufLatentLayer } from "headwise/weights";
 * async function readLayer(path: string, layer: number): Promise<GgufLatentLayer> {
 *   await using handle = await open(path);
 *   return readGgufLatentLayer(await openGguf(await fileSource(handle)), layer);
 * }
 * console.log(typeof readLayer); // function: readLayer("DeepSeek-V2-Lite-Q8_0.gguf", 26)
 */
export async function readGgufLatentLayer(file: GgufFile, layer: number): Promise<GgufLatentLayer> {
  expectFile(WHERE, file);
  expectInt(WHERE, "layer", layer, 0);
  expectNoLongrope(WHERE, file);
  if (file.tensors.has(FACTORS)) throw refusal(WHERE, FACTORS, "to be absent, since latent attention has none", "it");
  const { config, required } = readLatents(WHERE, file, layer);
  const names = expectTensors(WHERE, file, layerPrefix(layer), required);
  return { config, weights: latentWeights(WHERE, await file.readAll(names, WHERE), layerPrefix(layer)) };
}

/** The configuration of a layer, from the metadata, and the tensors that it has then. */
export function readLatents(
  where: string,
  file: Pick<GgufFile, "metadata" | "tensors">,
  layer: number,
): { readonly config: LatentConfig } & AttentionShapes {
  const config = readConfig(where, file, layer);
  const { dModel, numHeads, kvLoraRank, qLoraRank = 0, nopeDim, ropeDim, valueDim } = config;
  const heads = numHeads * (nopeDim + ropeDim);
  const shapes: Record<string, readonly number[]> = {
    ...(qLoraRank > 0
      ? { "q_a.weight": [qLoraRank, dModel], "q_a_norm.weight": [qLoraRank], "q_b.weight": [heads, qLoraRank] }
      : { "q.weight": [heads, dModel] }),
    "kv_a_mqa.weight": [kvLoraRank + ropeDim, dModel],
    "kv_a_norm.weight": [kvLoraRank],
    ...(file.tensors.has(layerPrefix(layer) + KV_UP)
      ? { [KV_UP]: [numHeads * (nopeDim + valueDim), kvLoraRank] }
      : { [K_UP]: [numHeads, kvLoraRank, nopeDim], [V_UP]: [numHeads, valueDim, kvLoraRank] }),
    "output.weight": [dModel, numHeads * valueDim],
  };
  return { config, required: Object.entries(shapes), optional: [] };
}

/** The tensors of a layer as weights: matrices as they are stored, besides the parts of wkvUp, which are joined. */
export function latentWeights(
  where: string,
  tensors: ReadonlyMap<string, StoredTensor>,
  prefix: string,
): GgufLatentWeights {
  const matrix = (part: string) => tensors.get(prefix + part);
  // Copied, because the bytes around it belong to other tensors.
  const gain = (part: string) => {
    const tensor = matrix(part);
    return tensor && toFloats(tensor, where).slice();
  };
  const [k, v] = [matrix(K_UP), matrix(V_UP)];
  return present({
    wq: matrix("q.weight"),
    wqDown: matrix("q_a.weight"),
    qNorm: gain("q_a_norm.weight"),
    wqUp: matrix("q_b.weight"),
    wkvDown: matrix("kv_a_mqa.weight"),
    kvNorm: gain("kv_a_norm.weight"),
    wkvUp: k && v ? joinUp(where, prefix + KV_UP, k, v) : matrix(KV_UP),
    wo: matrix("output.weight"),
  }) as GgufLatentWeights;
}

function readConfig(
  where: string,
  { metadata }: Pick<GgufFile, "metadata">,
  layer: number,
): LatentConfig & { readonly valueDim: number } {
  const name = metadata.get("general.architecture");
  if (typeof name !== "string" || !GGUF_LATENTS.has(name)) {
    const reason = reasonAgainst(name, UNSUPPORTED_ARCHITECTURES);
    const [rule, why] = reason
      ? [UNSUPPORTED_RULE, `, which has ${reason}`]
      : [Array.from(GGUF_LATENTS.keys(), describe).join(" or "), ""];
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: key "general.architecture" expected ${rule}, got ${describe(name)}${why}`,
    );
  }
  const keys = keysOf(where, metadata, name, layer);
  keys.expectNone(UNSUPPORTED);
  keys.expectNone(OF_OTHERS);
  expectInt(where, "layer", layer, 0, keys.count("block_count") - 1);
  const numHeads = keys.count("attention.head_count");
  const kvHeads = keys.count("attention.head_count_kv", numHeads);
  if (kvHeads !== 1 && kvHeads !== numHeads) keys.fail("attention.head_count_kv", `1 or ${numHeads}`, kvHeads);
  // In newer files, key_length and value_length are those of latents, and these keys have the suffix.
  const keyDim = keys.countOrNone("attention.key_length_mla") || keys.count("attention.key_length");
  const valueDim = keys.countOrNone("attention.value_length_mla") || keys.count("attention.value_length");
  const ropeDim = keys.count("rope.dimension_count");
  if (ropeDim >= keyDim) keys.fail("rope.dimension_count", `less than the ${keyDim} of a key`, ropeDim);
  const qLoraRank = keys.countOrNone("attention.q_lora_rank");
  const config = {
    dModel: keys.count("embedding_length"),
    numHeads,
    kvLoraRank: keys.count("attention.kv_lora_rank"),
    ...(qLoraRank > 0 && { qLoraRank }),
    nopeDim: keyDim - ropeDim,
    ropeDim,
    valueDim,
    normEps: NORM_EPS,
    causal: true,
    ...readRope(keys, keyDim, ropeDim),
  };
  const check = () => void checkLatentConfig(where, config);
  checkFileConfig(where, check, (ours) => KEYS[ours] && `key "${name}.${KEYS[ours]}"`);
  return config;
}

/** RoPE, and the scale if yarn has a multiplier: (multiplier·ln(factor) + 1)²/√keyDim. */
function readRope(keys: Keys, keyDim: number, ropeDim: number): { rope: RopeConfig; scale?: number } {
  const rope = { theta: keys.number("rope.freq_base") ?? 10_000, pairing: "interleaved" } as const;
  const scaling = readScaling(keys, ropeDim, true, undefined);
  if (scaling?.kind !== "yarn") {
    keys.expectNone([["rope.scaling.yarn_log_multiplier", 0]]);
    return { rope: { ...rope, ...(scaling && { scaling }) } };
  }
  // In these files, yarn has no factor on cos and sin.
  const yarn = { rope: { ...rope, scaling: { ...scaling, attentionFactor: 1 } } };
  const multiplier = keys.factor("rope.scaling.yarn_log_multiplier");
  if (multiplier === undefined) return yarn;
  const grown = multiplier * ln(scaling.factor) + 1;
  return { ...yarn, scale: (grown * grown) / Math.sqrt(keyDim) };
}

/**
 * wkvUp [numHeads·(nopeDim + valueDim), kvLoraRank] from `k` [numHeads, kvLoraRank, nopeDim] and `v`
 * [numHeads, valueDim, kvLoraRank].
 */
function joinUp(where: string, name: string, k: StoredTensor, v: StoredTensor): StoredTensor {
  // Those of one head may be matrices.
  const [numHeads, rank, nopeDim] = [1, ...k.shape].slice(-3) as [number, number, number];
  const valueDim = v.shape.at(-2) as number;
  const perHead = nopeDim + valueDim;
  const dtype = k.dtype === v.dtype && (k.dtype === "F16" || k.dtype === "BF16") ? k.dtype : "F32";
  const elementsOf = (tensor: StoredTensor) =>
    dtype === "F32" ? toFloats(tensor, where) : new Uint16Array(tensor.bytes.slice().buffer);
  const [keys, values] = [elementsOf(k), elementsOf(v)];
  const size = numHeads * perHead * rank;
  const up = dtype === "F32" ? new Float32Array(size) : new Uint16Array(size);
  for (let head = 0; head < numHeads; head++) {
    const at = head * perHead * rank;
    for (let r = 0; r < rank; r++)
      for (let i = 0; i < nopeDim; i++) up[at + i * rank + r] = keys[(head * rank + r) * nopeDim + i] as number;
    up.set(values.subarray(head * valueDim * rank, (head + 1) * valueDim * rank), at + nopeDim * rank);
  }
  return { name, dtype, shape: [numHeads * perHead, rank], bytes: new Uint8Array(up.buffer) };
}
