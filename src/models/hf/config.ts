import { alibiSlopes } from "../../attention/alibi.ts";
import type { AttentionConfig, QkNormConfig } from "../../attention/config.ts";
import type { RopeConfig } from "../../attention/rope.ts";
import type { RopeScaling } from "../../attention/rope-frequencies.ts";
import { expectInt, expectOneOf } from "../../util/errors.ts";
import { parseJson } from "../../util/json.ts";
import { type Fields, fieldsOf, refusal, WHERE } from "./config-fields.ts";

/** An AttentionConfig, and what `readAttentionWeights` cannot derive from the shapes of the tensors. */
export type HfAttentionConfig = AttentionConfig & {
  /** Row order of a fused projection: see `WeightsConfig`. */
  readonly fused?: "qkv" | "grouped";
};

/** An attention of an encoder-decoder model: self-attention of the encoder or decoder, or the decoder's cross-attention. */
export type HfPart = "encoder" | "decoder" | "cross";

/**
 * Reads the rules of an attention layer from `config.json`. A sliding window of W tokens becomes `window.left` = W - 1.
 * @param json The text of the file, or the object it parses to.
 * @param layer Index of the layer, from 0. Window, theta and scale may differ between layers.
 * @param part Which attention of T5 or Whisper. Other models have one kind of layer.
 * @throws TypeError or RangeError; HeadwiseError `BAD_FILE` for an unknown model, a wrong field, or an unsupported rule.
 * @example
 * import { fromHfConfig } from "headwise/weights";
 * const config = fromHfConfig({ model_type: "mistral", hidden_size: 4096, num_attention_heads: 32,
 *   num_key_value_heads: 8, rope_theta: 10000, sliding_window: 4096 });
 * console.log(config.headDim, config.window?.left); // 128 4095
 */
export function fromHfConfig(json: string | object, layer = 0, part: HfPart = "encoder"): HfAttentionConfig {
  expectInt(WHERE, "layer", layer, 0);
  expectOneOf(WHERE, "part", part, ["encoder", "decoder", "cross"]);
  const file = fieldsOf("config.json", parseJson(WHERE, "json", json));
  const type = file.raw("model_type");
  if (typeof type !== "string" || !Object.hasOwn(MODELS, type))
    throw refusal("model_type", `one of ${Object.keys(MODELS).join(", ")}`, type);
  const config = MODELS[type]!(file, layer, part);
  return Object.fromEntries(Object.entries(config).filter(([, value]) => value !== undefined)) as HfAttentionConfig;
}

/** How a decoder differs from that of Llama. */
interface Decoder {
  /** Defaults of its class for fields that a file lacks. */
  readonly defaults?: { dModel?: number; numHeads?: number; numKvHeads?: number; headDim?: number; theta?: number };
  /** Tokens of the window if the file does not state it; null in a file means no window. */
  readonly window?: number;
  /** Whether the window applies only if the file's `use_sliding_window` is true, whatever `layer_types` states. */
  readonly optIn?: boolean;
  /** Whether a layer has the window, if the file has no `layer_types`. */
  readonly slides?: (layer: number, file: Fields) => boolean;
  /** The softcap if the file does not state it; null in a file means none. */
  readonly softcap?: number;
  readonly qkNorm?: QkNormConfig;
  /** The RoPE theta of layers with the window, which have no scaling. */
  readonly localTheta?: (file: Fields) => number;
}

const everyLayer = (): boolean => true;
const evenLayers = (layer: number): boolean => layer % 2 === 0;

const QWEN: Decoder = {
  window: 4096,
  optIn: true,
  slides: (layer, file) => layer >= file.count("max_window_layers", 28),
};

const GEMMA3: Decoder = {
  defaults: { dModel: 2304, numHeads: 8, numKvHeads: 4, headDim: 256, theta: 1_000_000 },
  window: 4096,
  slides: (layer, file) => (layer + 1) % file.count("sliding_window_pattern", 6) !== 0,
  qkNorm: { kind: "per-head", onePlus: true },
  localTheta: (file) => file.number("rope_local_base_freq") ?? 10_000,
};

type Read = (file: Fields, layer: number, part: HfPart) => HfAttentionConfig;

/** The supported models, by `model_type`. */
const MODELS: Readonly<Record<string, Read>> = {
  llama: (file, layer) => readDecoder(file, layer, {}),
  mistral: (file, layer) => readDecoder(file, layer, { window: 4096, slides: everyLayer }),
  qwen2: (file, layer) => readDecoder(file, layer, QWEN),
  qwen3: (file, layer) =>
    readDecoder(file, layer, { ...QWEN, defaults: { headDim: 128 }, qkNorm: { kind: "per-head" } }),
  olmo2: (file, layer) => readDecoder(file, layer, { qkNorm: { kind: "full", eps: 1e-5 } }),
  gemma: (file, layer) => readDecoder(file, layer, { defaults: { headDim: 256 } }),
  gemma2: (file, layer) =>
    readDecoder(file, layer, { defaults: { headDim: 256 }, window: 4096, slides: evenLayers, softcap: 50 }),
  gemma3_text: (file, layer) => readDecoder(file, layer, GEMMA3),
  gemma3: (file, layer) => readDecoder(file.fields("text_config") ?? file, layer, GEMMA3),
  phi3: (file, layer) => readDecoder(file, layer, { slides: everyLayer }),
  gpt_oss: (file, layer) =>
    readDecoder(file, layer, { defaults: { headDim: 64, theta: 150_000 }, window: 128, slides: evenLayers }),
  gpt2: readGpt2,
  gpt_neox: readNeoX,
  falcon: readFalcon,
  bert: readBert,
  roberta: readBert,
  t5: readT5,
  mt5: readT5,
  whisper: readWhisper,
};

function readDecoder(file: Fields, layer: number, model: Decoder): HfAttentionConfig {
  const { defaults = {} } = model;
  const shape = readShape(file, layer, defaults);
  if (file.flag("use_bidirectional_attention", false)) throw refusal("use_bidirectional_attention", "false", true);
  const width = readWindow(file, layer, model);
  const scalar = file.number("query_pre_attn_scalar");
  return {
    ...shape,
    causal: true,
    window: width === undefined ? undefined : { left: width - 1 },
    scale: scalar === undefined ? undefined : 1 / Math.sqrt(scalar),
    softcap: file.has("attn_logit_softcapping") ? file.number("attn_logit_softcapping") : model.softcap,
    qkNorm: model.qkNorm && { ...model.qkNorm, eps: file.number("rms_norm_eps") ?? model.qkNorm.eps ?? 1e-6 },
    rope:
      width !== undefined && model.localTheta !== undefined && file.fields("rope_parameters") === undefined
        ? { theta: model.localTheta(file), pairing: "half" }
        : readRope(file, shape.headDim, defaults.theta, width === undefined ? "full_attention" : "sliding_attention"),
  };
}

type Shape = Required<Pick<AttentionConfig, "dModel" | "numHeads" | "numKvHeads" | "headDim">>;

function readShape(file: Fields, layer: number, defaults: NonNullable<Decoder["defaults"]> = {}): Shape {
  expectLayer(file, layer, "num_hidden_layers");
  const dModel = file.count("hidden_size", defaults.dModel);
  const numHeads = file.count("num_attention_heads", defaults.numHeads);
  const numKvHeads = file.count("num_key_value_heads", defaults.numKvHeads ?? numHeads);
  return { dModel, numHeads, numKvHeads, headDim: file.count("head_dim", defaults.headDim ?? dModel / numHeads) };
}

function expectLayer(file: Fields, layer: number, name: string): void {
  if (file.raw(name) !== undefined) expectInt(WHERE, "layer", layer, 0, file.count(name) - 1);
}

/** Tokens of the layer's window, including the query's own; undefined without a window. */
function readWindow(file: Fields, layer: number, { window, optIn, slides }: Decoder): number | undefined {
  if (slides === undefined) return undefined;
  const types = file.raw("layer_types");
  const type = Array.isArray(types) ? (types as readonly unknown[])[layer] : undefined;
  if (types !== undefined && type !== "sliding_attention" && type !== "full_attention")
    throw refusal(`layer_types of layer ${layer}`, '"sliding_attention" or "full_attention"', type);
  if (optIn && !file.flag("use_sliding_window", false)) return undefined;
  if (!(type === undefined ? slides(layer, file) : type === "sliding_attention")) return undefined;
  if (file.has("sliding_window"))
    return file.raw("sliding_window") === undefined ? undefined : file.count("sliding_window");
  return window;
}

function readRope(file: Fields, headDim: number, theta = 10_000, layerType = "full_attention"): RopeConfig {
  // Newer files have everything in rope_parameters, by layer type if types differ.
  const parameters = file.fields("rope_parameters");
  const own = parameters?.fields(layerType) ?? parameters;
  const part = own?.number("partial_rotary_factor") ?? file.number("partial_rotary_factor") ?? 1;
  const dim = rotatedDim(headDim, "partial_rotary_factor", part);
  const scaling = own ?? file.fields("rope_scaling");
  return {
    theta: own?.number("rope_theta") ?? file.number("rope_theta") ?? theta,
    pairing: "half",
    ...(dim === headDim ? {} : { dim }),
    ...(scaling && readScaling(file, scaling)),
  };
}

/** The number of leading components of a head that rotate. */
function rotatedDim(headDim: number, name: string, share: number): number {
  const dim = Math.trunc(headDim * share);
  if (dim === headDim || (dim >= 2 && dim < headDim && dim % 2 === 0)) return dim;
  throw refusal(name, `a share of head_dim (${headDim}) that is an even integer >= 2`, share);
}

function readScaling(file: Fields, from: Fields): { scaling?: RopeScaling } {
  const kind = from.raw("rope_type") ?? from.raw("type") ?? "default";
  const need = (name: string): number => {
    const found = from.number(name);
    if (found === undefined) throw refusal(`${name} of the rope scaling`, "a finite number > 0", found);
    return found;
  };
  if (kind === "default") return {};
  if (kind === "linear") return { scaling: { kind, factor: need("factor") } };
  if (kind === "llama3") {
    const [lowFreqFactor, highFreqFactor] = [need("low_freq_factor"), need("high_freq_factor")];
    const originalMaxSeqLen = from.count("original_max_position_embeddings");
    return { scaling: { kind, factor: need("factor"), lowFreqFactor, highFreqFactor, originalMaxSeqLen } };
  }
  if (kind !== "yarn")
    throw refusal("rope scaling", '"linear", "llama3" or "yarn", since others are unsupported', kind);
  const longest = file.number("max_position_embeddings");
  const originalMaxSeqLen = from.count("original_max_position_embeddings", longest);
  const orNone = (name: string) => (from.raw(name) === 0 ? undefined : from.number(name));
  const optional = {
    betaFast: from.number("beta_fast"),
    betaSlow: from.number("beta_slow"),
    attentionFactor: from.number("attention_factor"),
    mscale: orNone("mscale"),
    mscaleAllDim: orNone("mscale_all_dim"),
    truncate: from.raw("truncate") === undefined ? undefined : from.flag("truncate", true),
  };
  const given = Object.fromEntries(Object.entries(optional).filter(([, value]) => value !== undefined));
  const factor = from.number("factor") ?? (longest ?? originalMaxSeqLen) / originalMaxSeqLen;
  return { scaling: { kind, factor, originalMaxSeqLen, ...given } };
}

function readGpt2(file: Fields, layer: number): HfAttentionConfig {
  expectLayer(file, layer, "n_layer");
  const dModel = file.count("n_embd");
  const numHeads = file.count("n_head");
  const headDim = file.count("head_dim", dModel / numHeads);
  const byLayer = file.flag("scale_attn_by_inverse_layer_idx", false);
  const byWidth = file.flag("scale_attn_weights", true);
  const scale = (byWidth ? 1 / Math.sqrt(headDim) : 1) / (byLayer ? layer + 1 : 1);
  const own = byWidth && !byLayer ? {} : { scale };
  return { dModel, numHeads, numKvHeads: numHeads, headDim, causal: true, ...own };
}

function readNeoX(file: Fields, layer: number): HfAttentionConfig {
  const shape = readShape(file, layer);
  const rope = readRope(file, shape.headDim, file.number("rotary_emb_base"));
  const part = file.fields("rope_parameters") === undefined ? (file.number("rotary_pct") ?? 0.25) : 1;
  const dim = rotatedDim(shape.headDim, "rotary_pct", part);
  return { ...shape, causal: true, rope: part === 1 ? rope : { ...rope, dim }, fused: "grouped" };
}

function readFalcon(file: Fields, layer: number): HfAttentionConfig {
  const { dModel, numHeads, headDim } = readShape(file, layer);
  const grouped = file.flag("new_decoder_architecture", false);
  const shared = !grouped && file.flag("multi_query", true);
  const numKvHeads = shared ? 1 : file.count("num_kv_heads", numHeads);
  const shape = { dModel, numHeads, numKvHeads, headDim, causal: true, fused: shared ? "qkv" : "grouped" } as const;
  if (!file.flag("alibi", false)) return { ...shape, rope: readRope(file, headDim) };
  // Falcon adds the bias before it scales scores.
  return { ...shape, alibi: alibiSlopes(numHeads).map((slope) => slope * (1 / Math.sqrt(headDim))) };
}

function readBert(file: Fields, layer: number): HfAttentionConfig {
  const kind = file.raw("position_embedding_type") ?? "absolute";
  if (kind !== "absolute") throw refusal("position_embedding_type", '"absolute"', kind);
  return { ...readShape(file, layer), causal: file.flag("is_decoder", false) };
}

function readT5(file: Fields, layer: number, part: HfPart): HfAttentionConfig {
  const ofDecoder = part !== "encoder" && file.raw("num_decoder_layers") !== undefined;
  expectLayer(file, layer, ofDecoder ? "num_decoder_layers" : "num_layers");
  const numHeads = file.count("num_heads");
  const shape = { dModel: file.count("d_model"), numHeads, numKvHeads: numHeads, headDim: file.count("d_kv") };
  return { ...shape, causal: part === "decoder", scale: 1 };
}

function readWhisper(file: Fields, layer: number, part: HfPart): HfAttentionConfig {
  const side = part === "encoder" ? "encoder" : "decoder";
  expectLayer(file, layer, `${side}_layers`);
  const dModel = file.count("d_model");
  const numHeads = file.count(`${side}_attention_heads`);
  const headDim = file.count("head_dim", dModel / numHeads);
  return { dModel, numHeads, numKvHeads: numHeads, headDim, causal: part === "decoder" };
}
