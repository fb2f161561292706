// The attention of a layer by config.json.

import { expectInt, expectOneOf, MOST_HEADS, readFields } from "../../base/util/arguments.ts";
import { describe, tagOf } from "../../base/util/errors.ts";
import { nearestNames, parseJson } from "../../base/util/strings.ts";
import { checkConfig } from "../../layers/attention/config.ts";
import type {
  AttentionRules,
  FieldNames,
  HfAttentionConfig,
  Reading,
  Shape,
  WindowRules,
} from "../families/attention-rules.ts";
import {
  checkFileConfig,
  type Fields,
  fieldsOf,
  type HfPart,
  PARTS,
  partOfPrefix,
  present,
  refusal,
  towerOfPrefix,
  WHERE,
} from "../families/facts.ts";
import { LATENTS, LAYERS } from "../families/index.ts";
import { COMPOSITES } from "../families/other-layers.ts";
import { reasonAgainst, UNSUPPORTED_MODELS, UNSUPPORTED_RULE, WHOLE_MODELS } from "../families/unsupported.ts";
import { ROPE_FIELDS, readRope } from "./hf-rope.ts";

/** What the layers of a hybrid model are, besides attention. */
const LAYER_KINDS: Readonly<Record<string, string>> = {
  conv: "convolutions are",
  linear_attention: "linear attention is",
  mamba: "state-space layers are",
  mamba2: "state-space layers are",
  recurrent: "recurrent layers are",
  chunked_attention: "attention in chunks is",
};

const FIELD_NAMES: FieldNames = {
  dModel: ["hidden_size"],
  numHeads: ["num_attention_heads"],
  numKvHeads: ["num_key_value_heads"],
  headDim: ["head_dim"],
  layers: ["num_hidden_layers"],
};

/** The names of a model's sizes on the side of `part`. */
function namesOf({ names, sides }: AttentionRules, part: HfPart): FieldNames {
  return { ...FIELD_NAMES, ...names, ...sides?.[part === "encoder" ? "encoder" : "decoder"] };
}

/** Reads the configuration of a layer by the rules of its model. Fields that are undefined are left out later. */
function readConfig(
  file: Fields,
  layer: number,
  part: HfPart,
  rules: AttentionRules,
  { maxSeqLen, layerNorms = false, limits = false }: Reading,
): HfAttentionConfig {
  for (const [name, values] of Object.entries(rules.only ?? {})) file.only(name, ...values);
  if (rules.layerNormFlag !== undefined && !layerNorms) file.only(rules.layerNormFlag, false);
  if (rules.limitField !== undefined && !limits) file.only(rules.limitField);
  const common = readShape(file, layer, namesOf(rules, part), rules.defaults);
  const width = readWindow(file, layer, rules.window);
  const shape = { ...common, ...rules.shapeOf?.(file, layer, width !== undefined) };
  // Of cross-attention, sizes and scale are those of the decoder; it has neither causality nor RoPE nor window.
  const cross = part === "cross";
  const rotates =
    rules.rope !== false &&
    !cross &&
    (rules.rotates?.(layer, width !== undefined, hasWindows(file, rules.window), file) ?? true);
  const rope =
    rules.rope === false ? undefined : readRope(file, shape.headDim, rules.rope ?? {}, width !== undefined, maxSeqLen);
  const left = width === undefined || cross ? undefined : width - 1;
  const causal = !cross && isCausal(file, part, rules);
  const bothSides = rules.window?.bothSides ?? (rules.statesDirection && !causal);
  const half = bothSides && width !== undefined ? (bothSides === "each" ? width : Math.floor(width / 2)) : undefined;
  return {
    ...shape,
    causal,
    window: half !== undefined ? { left: half, right: half } : left === undefined ? undefined : { left },
    scale: rules.scale?.(file),
    softcap: readSoftcap(file, rules),
    qkNorm: readNorm(file, rules),
    rope: rotates ? rope : undefined,
    alibi: rules.alibi && "geometric",
    fused: rules.fused,
    ...rules.more?.(file, shape, layer),
  };
}

/** Whether self-attention is causal. */
function isCausal(file: Fields, part: HfPart, { causal, sides, statesDirection, only = {} }: AttentionRules): boolean {
  if (sides !== undefined) return part === "decoder";
  if (causal === "is_decoder") return file.flag("is_decoder", false);
  // Rules that list its values have been checked.
  const isStated = Object.hasOwn(only, "use_bidirectional_attention");
  const later = causal === undefined && !isStated && file.flag("use_bidirectional_attention", false);
  if (later && !statesDirection) throw refusal("use_bidirectional_attention", "false", true);
  return causal === undefined && !later;
}

function readShape(file: Fields, layer: number, names: FieldNames, defaults: Partial<Shape> = {}): Shape {
  const nameOf = (size: keyof FieldNames): string =>
    names[size].find((name) => file.raw(name) !== undefined) ?? names[size][0]!;
  const layers = nameOf("layers");
  if (file.raw(layers) !== undefined) expectInt(WHERE, "layer", layer, 0, file.count(layers) - 1);
  const dModel = file.count(nameOf("dModel"), defaults.dModel);
  const numHeads = file.count(nameOf("numHeads"), defaults.numHeads, MOST_HEADS);
  const numKvHeads = file.count(nameOf("numKvHeads"), defaults.numKvHeads ?? numHeads, MOST_HEADS);
  const headDim = nameOf("headDim");
  const share = (file.has(headDim) ? undefined : defaults.headDim) ?? dModel / numHeads;
  if (share % 1 && file.raw(headDim) === undefined)
    throw file.refusal(nameOf("dModel"), `a multiple of ${nameOf("numHeads")} (${numHeads})`, dModel);
  return { dModel, numHeads, numKvHeads, headDim: file.count(headDim, share) };
}

/** Tokens of the layer's window, including the query's own; undefined without a window. */
export function readWindow(file: Fields, layer: number, rules: WindowRules | undefined): number | undefined {
  const types = file.raw("layer_types");
  const type = Array.isArray(types) ? (types as readonly unknown[])[layer] : undefined;
  const full = type === "full_attention" || type === "attention";
  const word = rules?.word ?? "sliding_attention";
  if (types !== undefined && !full && !(type === word && rules !== undefined)) {
    const known = typeof type === "string" && Object.hasOwn(LAYER_KINDS, type) ? LAYER_KINDS[type] : undefined;
    const rule = `${rules === undefined ? "" : `"${word}" or `}"full_attention"`;
    throw file.refusal(
      `layer_types of layer ${layer}`,
      known === undefined ? rule : `${rule}, since ${known} unsupported`,
      type,
    );
  }
  if (rules === undefined) return undefined;
  const { tokens, optIn, field = "sliding_window" } = rules;
  if (optIn && !file.flag("use_sliding_window", false)) return undefined;
  if (!(type === undefined ? slides(file, layer, rules) : type === word)) return undefined;
  if (file.has(field)) return file.raw(field) === undefined ? undefined : file.count(field);
  return tokens;
}

/** Whether any layer may have the window. */
function hasWindows(file: Fields, { field = "sliding_window", tokens }: WindowRules = {}): boolean {
  return file.has(field) ? file.raw(field) !== undefined : tokens !== undefined;
}

/** Whether a layer has the window, if its type is not stated. */
function slides(file: Fields, layer: number, { period, patterned, from, slides }: WindowRules): boolean {
  if (period !== undefined)
    return (layer + 1) % (patterned ? file.count("sliding_window_pattern", period) : period) !== 0;
  if (from !== undefined) return layer >= file.count("max_window_layers", from);
  return slides?.(layer, file) ?? true;
}

function readSoftcap(file: Fields, { softcap }: AttentionRules): number | undefined {
  if (softcap === undefined) return undefined;
  return (file.has("attn_logit_softcapping") ? file.factor("attn_logit_softcapping") : softcap) || undefined;
}

function readNorm(file: Fields, { qkNorm }: AttentionRules): HfAttentionConfig["qkNorm"] {
  if (qkNorm === undefined) return undefined;
  const { epsField = "rms_norm_eps", flag, ...norm } = qkNorm;
  const eps = file.number(epsField) ?? norm.eps ?? 1e-6;
  return flag !== undefined && !file.flag(flag, false) ? undefined : { ...norm, eps };
}

// Fields of config.json that change attention. A reader that ignores one would give a layer that computes something else.

/** Fields, separated by spaces, by what they announce. */
type Announced = Readonly<Record<string, string>>;

/** Fields of attention that this package does not compute, whatever the model. */
const FOREIGN: Announced = {
  "latent attention (MLA)": "kv_lora_rank q_lora_rank qk_nope_head_dim qk_rope_head_dim",
  "gates of attention": "attention_gate attn_gate attn_output_gate gated_attention use_gated_attention",
  "layers without attention":
    "attn_layer_period attn_type_list hybrid_override_pattern layers_block_type full_attn_idxs",
  "state-space layers": "mamba_d_state ssm_cfg",
  "linear attention": "linear_num_key_heads",
  "sparse attention": "index_topk sparse_config",
  "attention in chunks": "attention_chunk_size",
  "temperatures by position": "attn_temperature_tuning use_logn_attn",
  "values that are keys": "attention_k_eq_v",
  "keys that layers share": "num_kv_shared_layers",
  "sizes by layer": "per_layer_config",
};

/** Fields that some models read and others must not have. */
const DECISIVE: Announced = {
  "norms of queries and keys": "qk_layernorm qk_norm use_qk_norm",
  "factors on scores": "attention_multiplier query_pre_attn_scalar",
  "layers without RoPE": "no_rope_layer_interval no_rope_layers",
  ALiBi: "alibi use_alibi",
  softcaps: "attn_logit_softcapping",
  "limits of queries, keys and values": "clip_qkv",
  "values of another width": "v_head_dim",
};

/** What a field announces. */
function announced(table: Announced, name: string): string | undefined {
  return Object.keys(table).find((what) => table[what]!.split(" ").includes(name));
}

/** Lists of patterns, separated by spaces, as one that matches if any of them does. */
const anyOf = (...lists: readonly string[]): RegExp => new RegExp(lists.join(" ").replaceAll(" ", "|"));

/** Parts of names of fields that may change attention, for models that are read by the rules of another. */
const SUSPICIOUS = anyOf(
  "attn attention rope rotary head kv qk query (^|_)keys?(_|$) value window scal multiplier softcap",
  "lora latent rank gate alibi position causal bidirect conv ssm mamba linear recurr chunk temperature",
  "sink clip layer_types layer_config block_type indexer decoder$",
);

/** Parts of names with such a part that do not change attention. */
const HARMLESS = anyOf(
  "dropout pdrop bias$ initializer implementation max_position vocab intermediate moe expert router",
  "routed tok class cls pooler logits?_scal scale_(emb|depth|embedding) embedding_(multiplier|scale)",
  "residual_multiplier tie_ _plan$ ^mlp_ quant lm_head gate(d_act|_act) pretraining nextn keys_to_ignore",
);

/** Fields of the window and of RoPE: a model with these rules understands them, also in layers that do not read them. */
const WINDOW = ["sliding_window", "use_sliding_window", "max_window_layers", "sliding_window_pattern", "layer_types"];
export const ROPE: readonly string[] = [
  "rope_theta",
  "rope_scaling",
  "rope_parameters",
  "partial_rotary_factor",
  "rope_local_base_freq",
];

/** Whether the value states that there is no such thing: off, zero, or the same for every layer. */
const isNone = (value: unknown): boolean =>
  value === false || value === 0 || (Array.isArray(value) && value.every((each) => each === 1));

/** What the file of an unknown model announces that this package does not compute. */
function foreignField(file: Fields): readonly [name: string, what: string] | undefined {
  for (const [name, value] of file.unread()) {
    const what = announced(FOREIGN, name);
    if (what !== undefined && !isNone(value)) return [name, what];
  }
  return undefined;
}

/**
 * Throws if the file has a field that changes attention, that nobody has read, and that is not `understood` with its value.
 * With `strict`, fields whose names could concern attention are refused too. `type` is the model whose rules were applied.
 */
export function refuseIgnored(
  file: Fields,
  type: string,
  strict: boolean,
  understood: (name: string, value: unknown) => boolean,
): void {
  for (const [name, value] of file.unread()) {
    const what = announced(FOREIGN, name) ?? announced(DECISIVE, name);
    if (what !== undefined) {
      if (isNone(value) || understood(name, value)) continue;
      throw file.refusal(name, `none, since the rules of ${describe(type)} have no ${what}`, value);
    }
    if (!strict || HARMLESS.test(name) || !SUSPICIOUS.test(name) || understood(name, value) || isOff(name, value))
      continue;
    throw file.refusal(name, `none, since the rules of ${describe(type)} would ignore it`, value);
  }
}

/** Whether a field that nobody has read states what the configuration holds, or concerns what these rules read. */
function isUnderstood(name: string, value: unknown, config: HfAttentionConfig, rules: AttentionRules): boolean {
  if (name === "v_head_dim") return value === config.headDim;
  if (rules.window !== undefined && WINDOW.includes(name)) return true;
  if (rules.rope !== false && ROPE.includes(name)) return true;
  if (name === "is_decoder" || name === "is_causal") return value === config.causal;
  return /^rope_interleaved?$/.test(name) && value === (config.rope?.pairing === "interleaved");
}

/** Whether the value states that there is no such thing. False may switch off what the model of the rules always has. */
function isOff(name: string, value: unknown): boolean {
  return isNone(value) && !(value === false && /rope|rotary|causal|scale|^is_decoder$/.test(name));
}

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
export function readHfLayer(file: Fields, rules: AttentionRules, layer: number, reading: Reading): HfAttentionConfig {
  const type = file.raw("model_type") as string;
  return readLayer({ type, file, rules }, layer, reading.part ?? "decoder", undefined, reading);
}

function readLayer(
  { type, file, rules }: Model,
  layer: number,
  part: HfPart,
  as: string | undefined,
  reading: Reading,
): HfAttentionConfig {
  const own: HfAttentionConfig = present(readConfig(file, layer, part, rules, reading));
  for (const name of rules.beside ?? []) file.raw(name);
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

/** What is said of models with latent attention. */
const OF_LATENTS = "whose latent attention (MLA) fromHfLatentConfig reads";

const modelTypes = () => [...(LAYERS.keys() as Iterable<string>)];

/** A model's type, its rules, and the part of the file that describes it. */
interface Model {
  readonly type: string;
  readonly file: Fields;
  readonly rules: AttentionRules;
}

function findModel(file: Fields, prefix: string, as: string | undefined, assumed?: string): Model {
  const type = file.raw("model_type") ?? assumed;
  const known = LAYERS.get(type);
  if (as !== undefined && known !== undefined)
    throw new RangeError(
      `${WHERE}: options.as expected none for ${describe(type)}, which is supported, got ${describe(as)}`,
    );
  if (known !== undefined) return { type: type as string, file, rules: known };
  // A tower has no towers of its own.
  const whole = assumed === undefined && typeof type === "string" && Object.hasOwn(COMPOSITES, type);
  if (whole) return findTower(file, type, prefix, as);
  if (LATENTS.has(type))
    throw refusal("model_type", "attention that createAttention computes", type, `, ${OF_LATENTS}`);
  const reason = reasonAgainst(type, UNSUPPORTED_MODELS, WHOLE_MODELS);
  if (reason !== undefined) throw refusal("model_type", UNSUPPORTED_RULE, type, `, which has ${reason}`);
  const [field, what] = foreignField(file) ?? [];
  if (field !== undefined) throw refusal("model_type", UNSUPPORTED_RULE, type, `, which has ${what} (${field})`);
  if (as === undefined)
    throw refusal(
      "model_type",
      `a supported one${nearestNames(type, [...modelTypes(), ...Object.keys(COMPOSITES)])}, or options.as with the one whose rules apply`,
      type,
    );
  const rules = LAYERS.get(as);
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
  const rules = LAYERS.get(assumed[tower]);
  if (tower === "text" && rules !== undefined) return { type, file, rules };
  throw refusal(`${tower}_config`, "an object", undefined);
}

/** The part that is asked for. Throws if no part is named, or if the model has no such part. */
function choosePart(
  file: Fields,
  type: string,
  rules: AttentionRules,
  given: HfPart | undefined,
  prefix: string,
): HfPart {
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
function fieldOf(names: FieldNames, ours: string): string | undefined {
  const sizes: Readonly<Record<string, readonly string[]>> = names;
  return FIELDS[ours] ?? ROPE_FIELDS[ours] ?? sizes[ours]?.[0];
}
