// Latent attention in the form of Hugging Face: configuration and weights.

import { shapeText } from "../../base/tensor/dtypes.ts";
import { expectInt, readFields } from "../../base/util/arguments.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import { ln } from "../../base/util/math.ts";
import { parseJson } from "../../base/util/strings.ts";
import type { SafetensorsFile } from "../../files/safetensors/safetensors.ts";
import type { RopeConfig } from "../../layers/attention/rope.ts";
import { checkLatentConfig, type LatentConfig, type LatentWeights } from "../../layers/latent/config.ts";

import type { LatentRules, Reading } from "../families/attention-rules.ts";
import { checkFileConfig, type Fields, fieldsOf, POSITIVE_RULE, present } from "../families/facts.ts";
import { LATENTS } from "../families/index.ts";
import { reasonAgainst, UNSUPPORTED_MODELS, UNSUPPORTED_RULE, WHOLE_MODELS } from "../families/unsupported.ts";
import { readWindow, refuseIgnored } from "./hf-config.ts";
import { ROPE_FIELDS, readRope } from "./hf-rope.ts";
import { type Matrix, readSource, tensorsBelow } from "./hf-weights.ts";

/** Which layer of a model, and what its `config.json` does not say. */
export interface HfLatentOptions {
  /** Index of the layer, from 0. Default 0. */
  readonly layer?: number;
  /**
   * A supported `model_type` by whose rules a model of an unknown type is read. The caller is responsible for both models
   * computing attention alike.
   */
  readonly as?: string;
}

const WHERE = "fromHfLatentConfig";

/** Epsilon of the norms of latents. The models take it whatever `rms_norm_eps` of their files is. */
const NORM_EPS = 1e-6;

/**
 * Reads the rules of a layer of latent attention (MLA) from `config.json`: of DeepSeek-V2, V2-Lite and V3, Kimi K2,
 * GLM-4.7-Flash and Youtu. What comes back is what `createLatentAttention` accepts. A yarn scaling with `mscale_all_dim` also
 * determines `scale`. If the file is that of a model of several modalities, its `text_config` is read.
 * @param json The text of the file, or the object it parses to.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for a model that is not known or whose attention
 * is of another kind, for a missing or wrong field, and for a field that could change the result and is not read.
 * @example
 * import { fromHfLatentConfig } from "headwise/weights";
 * const config = fromHfLatentConfig({ model_type: "deepseek_v2", hidden_size: 2048, num_attention_heads: 16,
 *   q_lora_rank: null, kv_lora_rank: 512, qk_nope_head_dim: 128, qk_rope_head_dim: 64, v_head_dim: 128, rope_theta: 10000,
 *   rope_scaling: { type: "yarn", factor: 40, original_max_position_embeddings: 4096, mscale: 0.707, mscale_all_dim: 0.707 } });
 * console.log(config.scale?.toFixed(6)); // 0.114721
 */
export function fromHfLatentConfig(json: string | object, options: HfLatentOptions = {}): LatentConfig {
  const { layer = 0, as } = readFields(WHERE, "options", options, ["layer", "as"]);
  expectInt(WHERE, "layer", layer, 0);
  if (as !== undefined && typeof as !== "string")
    throw new TypeError(`${WHERE}: options.as expected a string, got ${describe(as)}`);
  const file = findLatents(fieldsOf("config.json", parseJson(WHERE, "json", json), WHERE));
  return readHfLatents(file, findRules(file, as), layer, { as });
}

/**
 * Says which kind of attention `config.json` describes: "latents", which `fromHfLatentConfig` reads, for `createLatentAttention`, or
 * "heads" with keys and values, which `fromHfConfig` reads, as far as the model is known, for `createAttention`. If the file is that of a model of several modalities, its `text_config` counts.
 * @param json The text of the file, or the object it parses to.
 * @throws TypeError for `json` of another type. HeadwiseError `BAD_FILE` for text that is not JSON, and for JSON that is no object.
 * @example
 * import { hfAttentionKind } from "headwise/weights";
 * console.log(hfAttentionKind({ model_type: "deepseek_v3" }), hfAttentionKind({ model_type: "llama" })); // latents heads
 */
export function hfAttentionKind(json: string | object): "heads" | "latents" {
  const where = "hfAttentionKind";
  const file = findLatents(fieldsOf("config.json", parseJson(where, "json", json), where));
  return LATENTS.has(file.raw("model_type")) ? "latents" : "heads";
}

/** The part of a file that describes latent attention: the file, or the `text_config` of a model of several modalities. */
function findLatents(file: Fields): Fields {
  const isText = !LATENTS.has(file.raw("model_type")) && file.raw("text_config") !== undefined;
  return (isText ? file.fields("text_config") : undefined) ?? file;
}

/** The latent attention of a layer, by fields that the caller may read too. */
export function readHfLatents(
  file: Fields,
  rules: LatentRules,
  layer: number,
  { as, maxSeqLen }: Pick<HfLatentOptions, "as"> & Pick<Reading, "maxSeqLen"> = {},
): LatentConfig {
  const config = readLatents(file, layer, rules, maxSeqLen);
  const type = as ?? (file.raw("model_type") as string);
  // These models are causal, whatever class default the file repeats.
  refuseIgnored(file, type, true, (name, value) => name === "is_decoder" || (name === "is_causal" && value === true));
  const check = () => void checkLatentConfig(WHERE, config);
  checkFileConfig(WHERE, check, (ours) => FIELDS[ours] ?? ROPE_FIELDS[ours]);
  return config;
}

function findRules(file: Fields, as: string | undefined): LatentRules {
  const type = file.raw("model_type");
  const known = LATENTS.get(type);
  if (known !== undefined) {
    if (as === undefined) return known;
    throw new RangeError(
      `${WHERE}: options.as expected none for ${describe(type)}, which is supported, got ${describe(as)}`,
    );
  }
  const reason = reasonAgainst(type, UNSUPPORTED_MODELS, WHOLE_MODELS);
  if (reason !== undefined) throw file.refusal("model_type", UNSUPPORTED_RULE, type, `, which has ${reason}`);
  const names = Array.from(LATENTS.keys(), describe).join(", ");
  if (as === undefined)
    throw file.refusal("model_type", `one of ${names}, or options.as with the one whose rules apply`, type);
  const rules = LATENTS.get(as);
  if (rules === undefined) throw new RangeError(`${WHERE}: options.as expected one of ${names}, got ${describe(as)}`);
  return rules;
}

function readLatents(
  file: Fields,
  layer: number,
  { halves, sharesHead, statesPairing, theta, qLoraRank: ownRank, valueShare, unrotated }: LatentRules,
  maxSeqLen: number | undefined,
): LatentConfig {
  const layers = file.raw("num_hidden_layers");
  if (layers !== undefined) expectInt(WHERE, "layer", layer, 0, file.count("num_hidden_layers") - 1);
  readWindow(file, layer, undefined);
  // False in DeepSeek-VL2-Tiny and DeepSeek-OCR, whose layers have keys and values of heads.
  file.only("use_mla", true);
  const numHeads = file.count("num_attention_heads");
  const nopeDim = file.count("qk_nope_head_dim");
  const ropeDim = file.count("qk_rope_head_dim");
  const headDim = nopeDim + ropeDim;
  // Repeated in the files of some programs, which read them from elsewhere.
  file.only("num_key_value_heads", numHeads);
  file.only("qk_head_dim", headDim);
  // Stated for other programs where nothing rotates.
  if (unrotated) for (const name of ["head_dim", "rope_theta", "rope_scaling", "rope_parameters"]) file.raw(name);
  else file.only("head_dim", ropeDim, headDim);
  // Absence is not null here: the classes of these models have ranks of their own then.
  if (!file.has("q_lora_rank") && ownRank === undefined)
    throw file.refusal("q_lora_rank", "an integer >= 1 or null", undefined);
  const isDirect = file.has("q_lora_rank") && file.raw("q_lora_rank") === undefined;
  const qLoraRank = isDirect ? undefined : file.count("q_lora_rank", ownRank);
  if (!statesPairing) file.only("rope_interleave", !halves);
  const interleaved = statesPairing ? file.flag("rope_interleave", true) : !halves;
  const share = sharesHead ? ropeDim / headDim : 1;
  const pairing = interleaved ? "interleaved" : undefined;
  const rope = unrotated ? false : readLatentRope(file, ropeDim, pairing, theta, maxSeqLen, share);
  const scale = rope ? readScale(file, rope, headDim) : undefined;
  return {
    dModel: file.count("hidden_size"),
    numHeads,
    kvLoraRank: file.count("kv_lora_rank"),
    ...(qLoraRank !== undefined && { qLoraRank }),
    nopeDim,
    ropeDim,
    valueDim: file.count("v_head_dim", valueShare && file.count("hidden_size") / numHeads),
    rope,
    normEps: NORM_EPS,
    causal: true,
    ...(scale !== undefined && { scale }),
  };
}

function readLatentRope(
  file: Fields,
  ropeDim: number,
  pairing: "interleaved" | undefined,
  theta: number | undefined,
  maxSeqLen: number | undefined,
  share: number,
): RopeConfig {
  const parameters = file.fields("rope_parameters");
  if ((parameters?.number("rope_theta") ?? file.number("rope_theta") ?? theta) === undefined)
    throw file.refusal("rope_theta", POSITIVE_RULE, undefined);
  for (const each of [file, parameters]) each?.only("partial_rotary_factor", share);
  const rules = { ...(pairing && { pairing }), theta, share };
  // A share of a whole head is all of the part that rotates.
  const { dim: _, ...rope } = readRope(file, ropeDim / share, rules, false, maxSeqLen);
  return rope;
}

/** The factor on scores: (0.1·mscale_all_dim·ln(factor) + 1)²/√headDim with yarn, else the default, undefined. */
function readScale(file: Fields, { scaling }: RopeConfig, headDim: number): number | undefined {
  if (scaling?.kind !== "yarn") {
    const parameters = file.fields("rope_parameters") ?? file.fields("rope_scaling");
    if (scaling !== undefined) parameters?.only("mscale_all_dim", 0);
    return undefined;
  }
  const { factor, mscaleAllDim } = scaling;
  if (mscaleAllDim === undefined || !(factor > 1)) return undefined;
  const grown = 0.1 * mscaleAllDim * ln(factor) + 1;
  return (grown * grown) / Math.sqrt(headDim);
}

/** Our names of fields, and those in config.json. */
const FIELDS: Readonly<Record<string, string>> = {
  dModel: "hidden_size",
  numHeads: "num_attention_heads",
  kvLoraRank: "kv_lora_rank",
  qLoraRank: "q_lora_rank",
  nopeDim: "qk_nope_head_dim",
  ropeDim: "qk_rope_head_dim",
  valueDim: "v_head_dim",
};

const READ_LATENTS = "readLatentWeights";
const TITLE = "DeepSeek";

/** Names of matrices below the layer's prefix. Those of queries are the first, or the other two. */
const Q = "q_proj.weight";
const Q_DOWN = "q_a_proj.weight";
const Q_UP = "q_b_proj.weight";
const KV_DOWN = "kv_a_proj_with_mqa.weight";
const KV_UP = "kv_b_proj.weight";
const O = "o_proj.weight";
const Q_NORM = "q_a_layernorm.weight";
const KV_NORM = "kv_a_layernorm.weight";

/** Tensors that every layer has, and those that projections of queries have. */
const COMMON = [KV_DOWN, KV_NORM, KV_UP, O] as const;
const DIRECT = [Q] as const;
const LOW_RANK = [Q_DOWN, Q_NORM, Q_UP] as const;
/** Matrices that can have a bias; LatentWeights has no field for one of kv_b_proj. */
const BIASED: ReadonlySet<string> = new Set([Q, Q_DOWN, Q_UP, KV_DOWN, O]);
const biasOf = (name: string): string => name.replace(/weight$/, "bias");

/** A table that follows from the configuration, in files of older programs. */
const TABLE = "rotary_emb.inv_freq";

/** Scales of matrices in the 8-bit floats in which DeepSeek-V3 is published. */
const SCALES = /\.weight_scale(_inv)?$/;

/** The tensors that a layer must have, by the rest of their names, with their shapes. */
export function latentTensors(config: LatentConfig): readonly (readonly [string, readonly number[]])[] {
  const { dModel, numHeads, kvLoraRank, qLoraRank, nopeDim, ropeDim, valueDim = nopeDim } = config;
  const q = numHeads * (nopeDim + ropeDim);
  const queries: [string, number[]][] =
    qLoraRank === undefined
      ? [[Q, [q, dModel]]]
      : [
          [Q_DOWN, [qLoraRank, dModel]],
          [Q_NORM, [qLoraRank]],
          [Q_UP, [q, qLoraRank]],
        ];
  return [
    ...queries,
    [KV_DOWN, [kvLoraRank + ropeDim, dModel]],
    [KV_NORM, [kvLoraRank]],
    [KV_UP, [numHeads * (nopeDim + valueDim), kvLoraRank]],
    [O, [dModel, numHeads * valueDim]],
  ];
}

/** The biases that a layer can have, in the same way. */
export function latentBiases(config: LatentConfig): readonly (readonly [string, readonly number[]])[] {
  return latentTensors(config)
    .filter(([name]) => BIASED.has(name))
    .map(([name, [outputs = 0]]) => [biasOf(name), [outputs]]);
}

/** Where a layer's tensors are. */
interface LatentNames {
  /** The prefix, including its last dot. */
  readonly root: string;
  /** Whether queries have latents. */
  readonly lowRank: boolean;
  /** The tensors that are read, by the rest of their names. */
  readonly own: readonly string[];
}

/** The prefixes of the layers of latent attention among these names. */
export function latentRoots(names: readonly string[]): string[] {
  const all = new Set(names);
  const roots = names.filter((name) => name.endsWith(KV_DOWN)).map((name) => name.slice(0, -KV_DOWN.length));
  return roots.filter(
    (root) => (root === "" || root.endsWith(".")) && [KV_UP, O].every((other) => all.has(root + other)),
  );
}

/** Finds the tensors of the layer whose names begin with `prefix`. Throws if one is missing or is not understood. */
export function findLatentNames(where: string, names: readonly string[], prefix: string): LatentNames {
  const fail = (text: string): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: ${text}`);
  };
  const undotted = prefix !== "" && !prefix.endsWith(".") && names.some((name) => name.startsWith(`${prefix}.`));
  const root = undotted ? `${prefix}.` : prefix;
  const below = names.filter((name) => name.startsWith(root)).map((name) => name.slice(root.length));
  if (below.length === 0) {
    const roots = latentRoots(names).slice(0, 6).map(describe).join(", ");
    fail(
      `prefix ${describe(root)} expected to begin a tensor's name, got ${roots === "" ? "none" : `layers at ${roots}`}`,
    );
  }
  const lowRank = LOW_RANK.some((name) => below.includes(name));
  const required: readonly string[] = [...(lowRank ? LOW_RANK : DIRECT), ...COMMON];
  for (const name of required)
    if (!below.includes(name)) fail(`tensor ${describe(root + name)} expected, as in ${TITLE}, got none`);
  const biases = required.filter((name) => BIASED.has(name)).map(biasOf);
  const own = [...required, ...biases.filter((name) => below.includes(name))];
  const other = below.find((name) => !own.includes(name) && name !== TABLE);
  if (other !== undefined) {
    const why = SCALES.test(other)
      ? ", since matrices of 8-bit floats with scales are unsupported: convert the file to BF16"
      : `: ${TITLE} would be read without it`;
    fail(`tensor ${describe(root + other)} expected to be absent${why}, got it`);
  }
  return { root, lowRank, own };
}

/**
 * Reads the weights of one layer of latent attention (MLA) of a safetensors file, by the names of DeepSeek's files, which the
 * models that `fromHfLatentConfig` knows have too.
 *
 * Matrices of F16, BF16, Q8_0 and Q4_0 keep their encoding (`toFloats` widens it); F64 becomes float32. Aligned F32 is not
 * copied: the weights are views of the file. Vectors become float32. Matrices of 8-bit floats are refused.
 * @param prefix What the names of the layer's tensors begin with, such as "model.layers.0.self_attn." (with or without the
 * last dot).
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for a file that breaks the format, a missing
 * tensor, shapes that contradict each other, and a layer with further tensors.
 * @example
 * import { readLatentWeights, writeSafetensors } from "headwise/weights";
 * const tensor = (...shape: number[]) => ({ data: new Float32Array(shape.reduce((a, b) => a * b)), shape });
 * const layer = { "q_proj.weight": tensor(12, 8), "kv_a_proj_with_mqa.weight": tensor(5, 8),
 *   "kv_a_layernorm.weight": tensor(3), "kv_b_proj.weight": tensor(16, 3), "o_proj.weight": tensor(8, 8) };
 * console.log(readLatentWeights(writeSafetensors(layer)).wkvUp.shape); // [ 16, 3 ]
 */
export function readLatentWeights(source: Uint8Array | ArrayBuffer | SafetensorsFile, prefix = ""): LatentWeights {
  if (typeof prefix !== "string")
    throw new TypeError(`${READ_LATENTS}: prefix expected a string, got ${describe(prefix)}`);
  const file = readSource(READ_LATENTS, source, "readGgufLatentLayer");
  const { root, lowRank } = findLatentNames(READ_LATENTS, [...file.tensors.keys()], prefix);
  const { fail, matrix, vector } = tensorsBelow(READ_LATENTS, file, root, "out-in", TITLE);
  const kvDown = matrix(KV_DOWN);
  const kvUp = matrix(KV_UP);
  const o = matrix(O);
  const expectInputs = (each: Matrix, inputs: number, other: Matrix) => {
    if (each.inputs !== inputs)
      fail(
        `tensor ${describe(each.name)} expected ${inputs} inputs beside ${describe(other.name)} ` +
          `${shapeText(other.tensor.shape)}, got shape ${shapeText(each.tensor.shape)}`,
      );
  };
  const exactly = (name: string, n: number) => vector(name, `[${n}]`, (length) => length === n);
  const dModel = kvDown.inputs;
  if (kvUp.inputs > kvDown.outputs)
    fail(
      `tensor ${describe(kvUp.name)} expected at most ${kvDown.outputs} inputs beside ${describe(kvDown.name)} ` +
        `${shapeText(kvDown.tensor.shape)}, got shape ${shapeText(kvUp.tensor.shape)}`,
    );
  if (o.outputs !== dModel)
    fail(
      `tensor ${describe(o.name)} expected ${dModel} outputs beside ${describe(kvDown.name)} ` +
        `${shapeText(kvDown.tensor.shape)}, got shape ${shapeText(o.tensor.shape)}`,
    );
  const queries = () => {
    const q = matrix(lowRank ? Q_UP : Q);
    const bq = exactly(biasOf(lowRank ? Q_UP : Q), q.outputs);
    if (!lowRank) {
      expectInputs(q, dModel, kvDown);
      return { wq: q.tensor, bq };
    }
    const down = matrix(Q_DOWN);
    expectInputs(down, dModel, kvDown);
    expectInputs(q, down.outputs, down);
    const bqDown = exactly(biasOf(Q_DOWN), down.outputs);
    return { wqDown: down.tensor, bqDown, qNorm: exactly(Q_NORM, down.outputs), wqUp: q.tensor, bq };
  };
  return present({
    ...queries(),
    wkvDown: kvDown.tensor,
    bkvDown: exactly(biasOf(KV_DOWN), kvDown.outputs),
    kvNorm: exactly(KV_NORM, kvUp.inputs),
    wkvUp: kvUp.tensor,
    wo: o.tensor,
    bo: exactly(biasOf(O), dModel),
  }) as LatentWeights;
}
