import { checkConfig } from "../../attention/config.ts";
import { expectInt, expectOneOf, readFields } from "../../util/arguments.ts";
import { describe, tagOf } from "../../util/errors.ts";
import { parseJson } from "../../util/json.ts";
import { nearestNames } from "../../util/near-name.ts";
import { checkFileConfig } from "../check-config.ts";
import { reasonAgainst, UNSUPPORTED_MODELS, UNSUPPORTED_RULE } from "../unsupported.ts";
import { type Fields, fieldsOf, refusal, WHERE } from "./config-fields.ts";
import { ROPE_FIELDS } from "./config-rope.ts";
import { isCausal, namesOf, readConfig } from "./config-rules.ts";
import { foreignField, isUnderstood, refuseIgnored } from "./ignored-fields.ts";
import { latentRulesOf, OF_LATENTS } from "./latent-models.ts";
import { COMPOSITES, modelTypes, rulesOf } from "./models.ts";
import { type HfPart, PARTS, partOfPrefix, towerOfPrefix } from "./part.ts";
import type { HfAttentionConfig, Names, Reading, Rules } from "./rules.ts";

/** Which layer of a model, and what its `config.json` does not say. */
export interface HfConfigOptions {
  /** Index of the layer, from 0. Window, theta and scale may differ between layers. Default 0. */
  readonly layer?: number;
  /** Which attention of an encoder-decoder model. Needed for these, unless `prefix` names it. */
  readonly part?: HfPart;
  /**
   * What the names of the layer's tensors begin with, as `readAttentionWeights` takes it. It names the part of an
   * encoder-decoder model ("model.decoder.layers.0.encoder_attn." is cross-attention), and whether text or vision is meant.
   */
  readonly prefix?: string;
  /**
   * A supported `model_type` by whose rules a model of an unknown type is read. Fields that these rules would ignore and that
   * could change attention are refused. The caller is responsible for both models computing attention alike.
   */
  readonly as?: string;
  /**
   * Whether the model's bias by relative position is passed as `bias` of `attend`. Without it, the self-attention of T5 and
   * MPNet is refused, because it would be wrong. Default false.
   */
  readonly relativeBias?: boolean;
  /**
   * Tokens of the longest sequence that will be run, which decides between the two lists of factors of LongRoPE; without it,
   * models with LongRoPE are refused.
   */
  readonly maxSeqLen?: number;
}

const OPTIONS = [
  "layer",
  "part",
  "prefix",
  "as",
  "relativeBias",
  "maxSeqLen",
] as const satisfies (keyof HfConfigOptions)[];

/**
 * Reads the rules of an attention layer from `config.json`. A sliding window of W tokens becomes `window.left` = W - 1. What
 * comes back is what `createAttention` accepts.
 * @param json The text of the file, or the object it parses to.
 * @param options Which layer; a number is the index of the layer.
 * @param part The same as `options.part`, where `options` is a number.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for a model that is not known (the message
 * lists the nearest names) or whose attention is of another kind, for a wrong field, for an unsupported rule, and for a field
 * that would change the result and is not read.
 * @example
 * import { fromHfConfig } from "headwise/weights";
 * const config = fromHfConfig({ model_type: "mistral", hidden_size: 4096, num_attention_heads: 32,
 *   num_key_value_heads: 8, rope_theta: 10000, sliding_window: 4096 });
 * console.log(config.headDim, config.window?.left); // 128 4095
 * const bart = { model_type: "bart", d_model: 768, encoder_layers: 6, encoder_attention_heads: 12,
 *   decoder_layers: 6, decoder_attention_heads: 12 };
 * console.log(fromHfConfig(bart, { layer: 2, part: "decoder" }).causal); // true
 */
export function fromHfConfig(
  json: string | object,
  options: number | HfConfigOptions = 0,
  part?: HfPart,
): HfAttentionConfig {
  const isRecord = tagOf(options) === "Object";
  const wanted = isRecord ? readOptions(options as HfConfigOptions, part) : { layer: options as number, part };
  const { layer = 0, prefix = "", as, relativeBias = false, maxSeqLen }: HfConfigOptions = wanted;
  if (maxSeqLen !== undefined) expectInt(WHERE, "options.maxSeqLen", maxSeqLen);
  expectInt(WHERE, "layer", layer, 0);
  if (wanted.part !== undefined) expectOneOf(WHERE, "part", wanted.part, PARTS);
  const model = findModel(fieldsOf("config.json", parseJson(WHERE, "json", json)), prefix, as);
  const chosen = choosePart(model.file, model.type, model.rules, wanted.part, prefix);
  if (model.rules.relativeBias && chosen !== "cross" && !relativeBias)
    throw refusal(
      "model_type",
      "attention without relative positions, or options.relativeBias for a caller that passes their bias to attend",
      model.type,
    );
  return readLayer(model, layer, chosen, as, { maxSeqLen });
}

/** The attention of a layer, by fields that the caller reads too: that of a decoder if the model has two halves. */
export function readHfLayer(file: Fields, layer: number, reading: Reading): HfAttentionConfig {
  return readLayer(findModel(file, "", undefined), layer, reading.part ?? "decoder", undefined, reading);
}

function readLayer(
  { type, file, rules }: Model,
  layer: number,
  part: HfPart,
  as: string | undefined,
  reading: Reading,
): HfAttentionConfig {
  const config = readConfig(file, layer, part, rules, reading);
  const own = Object.fromEntries(
    Object.entries(config).filter(([, value]) => value !== undefined),
  ) as HfAttentionConfig;
  refuseIgnored(file, as ?? type, as !== undefined, (name, value) => isUnderstood(name, value, own, rules));
  const check = () => checkConfig(WHERE, own);
  checkFileConfig(WHERE, check, (ours) => fieldOf(namesOf(rules, part), ours));
  return own;
}

function readOptions(given: HfConfigOptions, part: HfPart | undefined): HfConfigOptions {
  const options = readFields(WHERE, "options", given, OPTIONS);
  const { prefix, as, relativeBias } = options;
  if (part !== undefined)
    throw new TypeError(`${WHERE}: part expected none beside an object of options, got ${describe(part)}`);
  for (const [name, value] of Object.entries({ prefix, as }))
    if (value !== undefined && typeof value !== "string")
      throw new TypeError(`${WHERE}: options.${name} expected a string, got ${describe(value)}`);
  if (relativeBias !== undefined && typeof relativeBias !== "boolean")
    throw new TypeError(`${WHERE}: options.relativeBias expected true or false, got ${describe(relativeBias)}`);
  return options;
}

/** A model's type, its rules, and the part of the file that describes it. */
interface Model {
  readonly type: string;
  readonly file: Fields;
  readonly rules: Rules;
}

function findModel(file: Fields, prefix: string, as: string | undefined, assumed?: string): Model {
  const type = file.raw("model_type") ?? assumed;
  const known = rulesOf(type);
  if (as !== undefined && known !== undefined)
    throw new RangeError(
      `${WHERE}: options.as expected none for ${describe(type)}, which is supported, got ${describe(as)}`,
    );
  if (known !== undefined) return { type: type as string, file, rules: known };
  // A tower has no towers of its own.
  const whole = assumed === undefined && typeof type === "string" && Object.hasOwn(COMPOSITES, type);
  if (whole) return findTower(file, type, prefix, as);
  if (latentRulesOf(type) !== undefined)
    throw refusal("model_type", "attention that createAttention computes", type, `, ${OF_LATENTS}`);
  const reason = reasonAgainst(UNSUPPORTED_MODELS, type);
  if (reason !== undefined) throw refusal("model_type", UNSUPPORTED_RULE, type, `, which has ${reason}`);
  const [field, what] = foreignField(file) ?? [];
  if (field !== undefined) throw refusal("model_type", UNSUPPORTED_RULE, type, `, which has ${what} (${field})`);
  if (as === undefined)
    throw refusal(
      "model_type",
      `a supported one${nearestNames(type, [...modelTypes(), ...Object.keys(COMPOSITES)])}, or options.as with the one whose rules apply`,
      type,
    );
  const rules = rulesOf(as);
  if (rules === undefined)
    throw new RangeError(
      `${WHERE}: options.as expected a supported model_type${nearestNames(as, modelTypes())}, got ${describe(as)}`,
    );
  return { type: String(type), file, rules };
}

/** The text or vision model of a model of several modalities. */
function findTower(file: Fields, type: string, prefix: string, as: string | undefined): Model {
  const { textFirst, ...assumed } = COMPOSITES[type]!;
  const tower = towerOfPrefix(prefix) ?? (textFirst ? "text" : undefined);
  if (tower === undefined)
    throw refusal("model_type", "one model: pass text_config or vision_config of the file, or options.prefix", type);
  const inside = file.fields(`${tower}_config`);
  if (inside !== undefined) return findModel(inside, "", as, assumed[tower]);
  // Files of the text model alone may leave the level out.
  const rules = rulesOf(assumed[tower]);
  if (tower === "text" && rules !== undefined) return { type, file, rules };
  throw refusal(`${tower}_config`, "an object", undefined);
}

/** The part that is asked for. Throws if no part is named, or if the model has no such part. */
function choosePart(file: Fields, type: string, rules: Rules, given: HfPart | undefined, prefix: string): HfPart {
  const fromPrefix = partOfPrefix(prefix);
  const name = given === undefined ? "prefix" : "part";
  const got = given ?? prefix;
  if (rules.sides !== undefined) {
    if (given !== undefined && fromPrefix !== undefined && given !== fromPrefix)
      throw new RangeError(
        `${WHERE}: part expected ${describe(fromPrefix)}, as in prefix ${describe(prefix)}, got ${describe(given)}`,
      );
    const part = given ?? fromPrefix;
    if (part !== undefined) return part;
    throw refusal(
      "part",
      `"encoder", "decoder" or "cross" (or a prefix that names one), since ${describe(type)} has all three`,
      part,
    );
  }
  const own = isCausal(file, "decoder", rules) ? "decoder" : "encoder";
  // Names of models with one side may contain "encoder" or "decoder", whatever the attention is.
  const wanted = given ?? (fromPrefix === "cross" ? fromPrefix : own);
  if (wanted === own) return own;
  if (wanted === "cross" && rules.causal === "is_decoder" && file.flag("add_cross_attention", false)) return wanted;
  throw new RangeError(
    `${WHERE}: ${name} expected ${describe(own)} for ${describe(type)}, which has no other part, got ${describe(got)}`,
  );
}

/** Our names of fields, and those in config.json. */
const FIELDS: Readonly<Record<string, string>> = {
  "rope.dim": "partial_rotary_factor",
  "window.left": "sliding_window",
};

/** The name in config.json of a field of ours. */
function fieldOf(names: Names, ours: string): string | undefined {
  const sizes: Readonly<Record<string, readonly string[]>> = names;
  return FIELDS[ours] ?? ROPE_FIELDS[ours] ?? sizes[ours]?.[0];
}
