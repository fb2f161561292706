import type { RopeConfig } from "../../attention/rope.ts";
import { checkLatentConfig, type LatentConfig } from "../../latent/config.ts";
import { expectInt, readFields } from "../../util/arguments.ts";
import { describe } from "../../util/errors.ts";
import { parseJson } from "../../util/json.ts";
import { ln } from "../../util/math.ts";
import { checkFileConfig } from "../check-config.ts";
import { POSITIVE_RULE } from "../numbers.ts";
import { reasonAgainst, UNSUPPORTED_MODELS, UNSUPPORTED_RULE } from "../unsupported.ts";
import { type Fields, fieldsOf } from "./config-fields.ts";
import { ROPE_FIELDS, readRope } from "./config-rope.ts";
import { readWindow } from "./config-rules.ts";
import { refuseIgnored } from "./ignored-fields.ts";
import { findLatents, type LatentRules, latentModelTypes, latentRulesOf } from "./latent-models.ts";

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
  return readHfLatents(file, layer, as);
}

/** The latent attention of a layer, by fields that the caller may read too. */
export function readHfLatents(file: Fields, layer: number, as?: string): LatentConfig {
  const rules = findRules(file, as);
  const config = readLatents(file, layer, rules);
  const type = as ?? (file.raw("model_type") as string);
  // These models are causal, whatever class default the file repeats.
  refuseIgnored(file, type, true, (name, value) => name === "is_decoder" || (name === "is_causal" && value === true));
  const check = () => void checkLatentConfig(WHERE, config);
  checkFileConfig(WHERE, check, (ours) => FIELDS[ours] ?? ROPE_FIELDS[ours]);
  return config;
}

function findRules(file: Fields, as: string | undefined): LatentRules {
  const type = file.raw("model_type");
  const known = latentRulesOf(type);
  if (known !== undefined) {
    if (as === undefined) return known;
    throw new RangeError(
      `${WHERE}: options.as expected none for ${describe(type)}, which is supported, got ${describe(as)}`,
    );
  }
  const reason = reasonAgainst(UNSUPPORTED_MODELS, type);
  if (reason !== undefined) throw file.refusal("model_type", UNSUPPORTED_RULE, type, `, which has ${reason}`);
  const names = latentModelTypes().map(describe).join(", ");
  if (as === undefined)
    throw file.refusal("model_type", `one of ${names}, or options.as with the one whose rules apply`, type);
  const rules = latentRulesOf(as);
  if (rules === undefined) throw new RangeError(`${WHERE}: options.as expected one of ${names}, got ${describe(as)}`);
  return rules;
}

function readLatents(file: Fields, layer: number, { statesPairing, theta }: LatentRules): LatentConfig {
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
  file.only("head_dim", ropeDim, headDim);
  // Absence is not null here: the classes of these models have ranks of their own then.
  if (!file.has("q_lora_rank")) throw file.refusal("q_lora_rank", "an integer >= 1 or null", undefined);
  const qLoraRank = file.raw("q_lora_rank") === undefined ? undefined : file.count("q_lora_rank");
  if (!statesPairing) file.only("rope_interleave", true);
  const interleaved = !statesPairing || file.flag("rope_interleave", true);
  const rope = readLatentRope(file, ropeDim, interleaved ? "interleaved" : undefined, theta);
  const scale = readScale(file, rope, headDim);
  return {
    dModel: file.count("hidden_size"),
    numHeads,
    kvLoraRank: file.count("kv_lora_rank"),
    ...(qLoraRank !== undefined && { qLoraRank }),
    nopeDim,
    ropeDim,
    valueDim: file.count("v_head_dim"),
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
): RopeConfig {
  const parameters = file.fields("rope_parameters");
  if ((parameters?.number("rope_theta") ?? file.number("rope_theta") ?? theta) === undefined)
    throw file.refusal("rope_theta", POSITIVE_RULE, undefined);
  for (const each of [file, parameters]) each?.only("partial_rotary_factor", 1);
  return readRope(file, ropeDim, { ...(pairing && { pairing }), theta }, false);
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
