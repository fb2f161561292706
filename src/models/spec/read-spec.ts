// Reads a whole decoder from its config.json.

import { describe, underName } from "../../base/util/errors.ts";
import { nearestNames, parseJson } from "../../base/util/strings.ts";
import type { AttentionRules } from "../families/attention-rules.ts";
import { readBitnetScales } from "../families/bitnet.ts";
import { type Fields, fieldsOf } from "../families/facts.ts";
import { type Family, LLAMA_NAMES, type Names } from "../families/family.ts";
import { DECODERS, type Families, LATENTS, LAYERS } from "../families/index.ts";
import { COMPOSITES } from "../families/other-layers.ts";
import { reasonAgainst, UNSUPPORTED_MODELS, UNSUPPORTED_RULE } from "../families/unsupported.ts";
import { HF_MIXERS, hfMixers } from "../mixers/hf.ts";
import { ROPE, readHfLayer } from "../weights/hf-config.ts";
import {
  type ActivationSpec,
  type BlockSpec,
  type EmbedSpec,
  expectPositions,
  expectSharedKeys,
  headsOf,
  isGated,
  type MixerSpec,
  type MlpSpec,
  type ModelSpec,
  type NormRole,
  type NormSpec,
  positionsOf,
  SESSION_LENGTH,
} from "./spec.ts";
import type { Decoder } from "./tensors.ts";

/** Activations by the words of config.json. */
export const ACTIVATIONS: Readonly<Record<string, ActivationSpec>> = {
  gelu: { kind: "gelu", alpha: 1 },
  gelu_fast: { kind: "gelu-tanh", alpha: 1 },
  gelu_new: { kind: "gelu-tanh", alpha: 1 },
  gelu_pytorch_tanh: { kind: "gelu-tanh", alpha: 1 },
  quick_gelu: { kind: "swish", alpha: 1.702 },
  relu: { kind: "relu", alpha: 1 },
  relu2: { kind: "relu-squared", alpha: 1 },
  silu: { kind: "swish", alpha: 1 },
  swish: { kind: "swish", alpha: 1 },
};

const XIELU: ActivationSpec = { kind: "xielu", alpha: 1 };

/** Fields that change nothing here: of training, of other programs, of tokens, or repeated in the tensors. */
const HARMLESS = new RegExp(
  [
    "^_ ^architectures$ ^auto_map$ dtype$ ^id2label$ ^label2id$ ^model_type$ ^s(entence_transformers|bert_ce_default_activation_function)$ ^transformers_version$ ^unsloth ^name$",
    "dropout _drop$ pdrop$ layerdrop initializer init_std aux_loss router_jitter router_z ^seq_aux$ ^ep_size$",
    "_token_id$ ^output_ ^use_cache$ ^return_dict$ ^pretraining_tp$ ^keys_to_ignore ^problem_type$ ^is_encoder_decoder$",
    "^(attention|mlp|qkv|use_qkv|use)_bias$ ^bias$ ^is_llama_config$ ^base_model _plan$ ^tokenizer_class$",
    // Attention understands them, and reads them where they matter.
    "^(use_)?sliding_window(_pattern)?$ ^max_window_layers$ ^layer_types$ ^rope_ ^partial_rotary_factor$ ^rotary_",
    "^max_position_embeddings$ ^original_max_position_embeddings$ ^is_decoder$ ^is_causal$ ^v_head_dim$ ^head_dim$",
    "^use_bidirectional_attention$ ^no_rope_layer_interval$ ^qk_head_dim$ ^num_key_value_heads$ ^num_kv_heads$",
    "^topk_group$ ^n_group$ ^mlp_only_layers$ ^vocabulary$ ^sentence_transformers$ ^sbert_ce_ ^summary_",
    "^(bos|eos|pad|mask)_token$",
  ]
    .join(" ")
    .replaceAll(" ", "|"),
);

/** Fields of the text model beside towers that describe these. */
const OF_TOWERS = /^(perceiver_config|pixel_shuffle_factor|use_resampler|neftune_noise_alpha|transformers\.js_config)$/;

/**
 * Reads config.json: its text, or the object it parses to. `where` is the public function, for messages; `maxSeqLen` the
 * longest sequence that will be run, where it is known; `families` those that the function knows.
 */
export function readDecoder(
  where: string,
  json: string | object,
  maxSeqLen?: number,
  families: Families = DECODERS,
): Decoder {
  const whole = fieldsOf("config.json", parseJson(where, "config", json), where);
  return underName(where, () => readWhole(where, whole, maxSeqLen, families));
}

function readWhole(where: string, whole: Fields, maxSeqLen: number | undefined, families: Families): Decoder {
  const found = findFamily(where, whole, families);
  const { family } = found;
  const file = family.absent ? found.file.or(family.absent) : found.file;
  for (const [name, values] of Object.entries(family.only ?? {})) file.only(name, ...values);
  const decoder = readHalf(where, file, family, maxSeqLen);
  const seesLater = ({ mixer: { config } }: BlockSpec) => "causal" in config && config.causal === false;
  if (families === DECODERS && decoder.spec.blocks.some(seesLater))
    throw file.refusal("use_bidirectional_attention", "false", true, ", which loadEncoder reads");
  // Such as Lfm2BidirectionalModel, which is code beside the weights under the type of the decoder.
  const bothWays = whole.list("architectures")?.find((name) => /bidirectional/i.test(String(name)));
  if (bothWays !== undefined && !decoder.spec.blocks.some(seesLater))
    throw whole.refusal("architectures", "one that this package knows to attend both ways", bothWays);
  const encoder = family.encoder && readHalf(where, file, family.encoder, maxSeqLen);
  for (const name of family.ignored ?? []) file.raw(name);
  const isText = found.file !== whole;
  for (const [name, value] of file.unread())
    if (!HARMLESS.test(name) && !(isText && OF_TOWERS.test(name)))
      throw file.refusal(name, "a field that this package knows, or none", value);
  return { ...(isText ? textOf(decoder, whole, file, family.cappedAlone) : decoder), ...(encoder && { encoder }) };
}

/** A text model beside towers of other modalities. */
function textOf(decoder: Decoder, whole: Fields, file: Fields, cappedAlone?: true): Decoder {
  const { spec, family } = decoder;
  const isTied = (each: Fields) =>
    each.raw("tie_word_embeddings") === undefined ? undefined : each.flag("tie_word_embeddings", false);
  const [outer, inner] = [isTied(whole), isTied(file)];
  // Where the model and its text contradict each other, classes disagree on which of them counts, and the tensors decide.
  const tied = outer ?? (inner === false ? undefined : spec.head.tied);
  const head = {
    ...{ ...spec.head, tied: outer === false && inner ? undefined : tied },
    ...(cappedAlone && { softcap: 0 }),
  };
  return { ...decoder, spec: { ...spec, head }, family: { ...family, hasTowers: true } };
}

/** A model, or the half of one that `family` is about. */
function readHalf(where: string, file: Fields, family: Family, maxSeqLen: number | undefined): Decoder {
  const names = { ...LLAMA_NAMES, ...family.names, ...family.namesOf?.(file) };
  const spec = readSpec(where, file, family, names, maxSeqLen);
  const scales = readBitnetScales(file);
  const decoder = { spec, names, family, mixers: hfMixers(names, family) };
  if (scales === undefined) return decoder;
  // What is rounded is in place of what it was, so that nothing else may read it.
  const isPlain = (block: BlockSpec) =>
    HF_MIXERS[block.mixer.kind].rounds &&
    block.mlp?.kind === "mlp" &&
    block.norms.attentionPre &&
    block.norms.mlpPre &&
    !(block.parallel || block.addsToNormed || isGated(block) || block.cross);
  if (family.layout || family.fusedBlocks || spec.embed.dim !== spec.dModel || !spec.blocks.every(isPlain))
    throw file.refusal("quantization_config", "null for a model of this type", file.raw("quantization_config"));
  return { ...decoder, spec: { ...spec, rounded: true }, family: { ...family, scales } };
}

/** The family, and the part of the file that describes text. */
function findFamily(where: string, whole: Fields, families: Families): { file: Fields; family: Family } {
  const outer = whole.raw("model_type");
  const file = whole.raw("text_config") === undefined ? whole : (whole.fields("text_config") as Fields);
  const assumed = typeof outer === "string" && Object.hasOwn(COMPOSITES, outer) ? COMPOSITES[outer]?.text : undefined;
  const type = file.raw("model_type") ?? assumed;
  const family = families.get(type);
  if (family !== undefined)
    return { file: file.raw("model_type") === undefined ? file.or({ model_type: type }) : file, family };
  if (type === undefined) throw whole.refusal("model_type", "the type of the model", type);
  const reader = LAYERS.get(type)?.reader ?? (DECODERS.has(type) ? "loadModel" : undefined);
  if (reader) throw whole.refusal("model_type", `one that ${where} reads`, type, `, which ${reader} reads`);
  const reason = reasonAgainst(type, UNSUPPORTED_MODELS);
  if (reason) throw whole.refusal("model_type", UNSUPPORTED_RULE, type, `, which has ${reason}`);
  const layers = LAYERS.has(type) ? "fromHfConfig" : LATENTS.has(type) && "fromHfLatentConfig";
  if (layers) throw whole.refusal("model_type", "one that is read whole", type, `, whose attention ${layers} reads`);
  throw whole.refusal(
    "model_type",
    `a supported one${nearestNames(type, [...(families.keys() as Iterable<string>)])}`,
    type,
  );
}

function readSpec(where: string, file: Fields, family: Family, names: Names, longest: number | undefined): ModelSpec {
  const type = file.raw("model_type") as string;
  const lengthField = family.lengthField ?? "max_position_embeddings";
  const stated = file.raw(lengthField) === undefined ? undefined : file.count(lengthField);
  const maxSeqLen = longest ?? stated;
  const norm = readNorm(file, family);
  const { attention: rules } = family;
  const order = family.order?.(file);
  const pairs = family.pairs?.(file);
  const count = pairs?.length ?? (order ? Math.max(...order) + 1 : layerCount(file, family.layers));
  // First, since they read fields that others refuse.
  const temperatures = Array.from({ length: count }, (_, layer) => family.temperature?.(file, layer));
  const mixers = Array.from({ length: count }, (_, block) => {
    const layer = pairs?.[block]?.[0] ?? block;
    const own = family.mixer?.(file, layer) ?? rules;
    return HF_MIXERS[own.kind ?? "heads"].read(file, own, layer, { family, norm, maxSeqLen });
  });
  // A file may state heads that no layer has.
  if (!mixers.some(headsOf))
    for (const name of ["num_attention_heads", "num_key_value_heads", "head_dim", "attention_bias", ...ROPE])
      file.raw(name);
  const { dModel } = (mixers[0] as MixerSpec).config;
  const normsOf = (mlp: BlockSpec["mlp"], layer: number): BlockSpec["norms"] => {
    const lacking = family.lacks?.(layer, file) ?? [];
    const isThere = (role: NormRole) => (mlp || !role.startsWith("mlp")) && !lacking.includes(role);
    const roles = (Object.keys(names.norms) as NormRole[]).filter(isThere);
    return Object.fromEntries(roles.map((role) => [role, norm]));
  };
  const mlp = mlpOf(file, family);
  const named = names.transform?.activation;
  const ofTransform =
    named === undefined ? mlp : mlpOf(file, { ...family, activation: { fields: [named], word: "gelu" } });
  // 0 in models of attention alone.
  const dense = (layer: number) => {
    if (!family.mlpDim && file.raw("intermediate_size") === 0) return undefined;
    const dim = family.mlpDim ? family.mlpDim(file, dModel, layer) : file.count("intermediate_size");
    return dim === 0 ? undefined : mlp(dim);
  };
  const parallel = family.parallel?.(file) ?? false;
  const addsToNormed = family.addsToNormed?.(file) ?? false;
  const scale = family.scale?.(file) ?? 1;
  const mlpScale = family.mlpScale?.(file);
  const blocks = mixers.map((mixer, layer): BlockSpec => {
    const [first, second] = pairs?.[layer] ?? [layer, layer];
    const given = second === undefined ? undefined : (family.moe?.(file, second, mlp) ?? dense(second));
    const sparse = given?.kind === "mlp" ? family.sparse?.(file, layer) : undefined;
    const own = given?.kind === "mlp" && sparse ? { ...given, activation: { ...given.activation, sparse } } : given;
    const cross = names.cross !== undefined && {
      cross: { kind: "heads" as const, config: readHfLayer(file, rules as AttentionRules, layer, { part: "cross" }) },
    };
    const layers = pairs && { layers: [first, second ?? first] as const };
    const temperature = temperatures[layer];
    return {
      mixer,
      ...layers,
      ...(temperature && { temperature }),
      ...cross,
      mlp: own,
      norms: normsOf(own, layer),
      parallel,
      addsToNormed,
      scale,
      ...(mlpScale && { mlpScale }),
      ...(family.factors && { factors: family.factors(file, layer) }),
      ...(names.layerScale && { scaled: true as const }),
      ...(family.lowRank && { lowRank: family.lowRank(file) }),
    };
  });
  expectExperts(file, blocks);
  expectSharedKeys(where, blocks);
  const embed: EmbedSpec = { dim: dModel, scale: 1, ...family.embed?.(file, dModel, norm) };
  expectPositions(where, positionsOf(embed), longest);
  return {
    type,
    dModel,
    vocabSize: family.part === "encoder" ? 0 : file.count("vocab_size"),
    ...(family.encoder && startIn(file)),
    maxSeqLen,
    sessionLength: longest ?? Math.min(stated ?? SESSION_LENGTH, SESSION_LENGTH, positionsOf(embed)),
    embed,
    blocks,
    ...(family.relativeBias && { relativeBias: family.relativeBias(file) }),
    ...(family.distances && { distances: family.distances(file, norm) }),
    ...(order && { order }),
    ...(family.vectorDim && { vectorDim: family.vectorDim(file) }),
    ...(family.streams && { streams: family.streams(file) }),
    finalNorm: (family.finalNorm?.(file) ?? true) ? norm : undefined,
    head: {
      ...{ scale: 1, softcap: 0, ...family.head?.(file), tied: tiedIn(file, family) },
      ...(names.transform && { transform: { norm, activation: ofTransform(1).activation } }),
    },
  };
}

/** The token that a decoder with an encoder begins with. */
function startIn(file: Fields): Pick<ModelSpec, "startId"> {
  const startId = file.raw("decoder_start_token_id") as number | undefined;
  const most = file.count("vocab_size") - 1;
  if (startId === undefined) return {};
  if (Number.isInteger(startId) && startId >= 0 && startId <= most) return { startId };
  throw file.refusal("decoder_start_token_id", `an integer from 0 to ${most}`, startId);
}

/** The most experts of all layers: each has tensors of its own. Known models have some 25 thousand. */
const MOST_EXPERTS = 2 ** 17;

function expectExperts(file: Fields, blocks: readonly BlockSpec[]): void {
  const all = blocks.reduce((sum, { mlp }) => sum + (mlp?.kind === "moe" ? mlp.experts : 0), 0);
  if (all <= MOST_EXPERTS) return;
  const name = ["num_local_experts", "num_experts", "n_routed_experts"].find((each) => file.raw(each) !== undefined);
  throw file.refusal(name ?? "num_hidden_layers", `at most ${MOST_EXPERTS} experts in all layers`, all);
}

/** Layers, under the names that families have for their number. */
function layerCount(
  file: Fields,
  names: readonly string[] = ["num_hidden_layers", "n_layer", "n_layers", "num_layers"],
): number {
  return file.count(names.find((name) => file.raw(name) !== undefined) ?? (names[0] as string), undefined, 10_000);
}

function readNorm(file: Fields, { norm = {} }: Family): NormSpec {
  const { field = "rms_norm_eps", otherField = field, kind = "rms", eps = 1e-6, onePlus, bare } = norm;
  const own = field === "" ? eps : (file.number(field) ?? file.number(otherField) ?? eps);
  return { kind, eps: own, ...(onePlus && { onePlus }), ...(bare && { bare }) };
}

function mlpOf(
  file: Fields,
  { activation: given = {}, plain, mlp, gateScale, names }: Family,
): (dim: number) => MlpSpec {
  const { fields = ["hidden_act"], word = "silu" } = mlp ? { ...mlp(file), fields: [] } : given;
  const field = fields.find((name) => file.raw(name) !== undefined);
  const name = field === undefined ? word : file.raw(field);
  const known = typeof name === "string" && Object.hasOwn(ACTIVATIONS, name) ? ACTIVATIONS[name] : undefined;
  // Its scalars are tensors.
  const activation = name === "xielu" && names?.xielu ? XIELU : known;
  if (activation === undefined)
    throw file.refusal(field ?? "hidden_act", `one of ${Object.keys(ACTIVATIONS).map(describe).join(", ")}`, name);
  const alpha = activation.alpha * (gateScale?.(file) ?? 1);
  return (dim) => ({ kind: "mlp", dim, gated: mlp?.(file).gated ?? !plain, activation: { ...activation, alpha } });
}

function tiedIn(file: Fields, { tied, part }: Family): boolean | undefined {
  if (part === "encoder") return true;
  if (tied === "never") {
    file.raw("tie_word_embeddings");
    return false;
  }
  return file.raw("tie_word_embeddings") === undefined ? tied : file.flag("tie_word_embeddings", false);
}
