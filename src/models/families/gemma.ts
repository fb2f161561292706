// Gemma 1 to 3: gains are stored less 1 (in GGUF files, 1 is added), rows of the table are multiplied by √dModel, GELU with gates.
// From 2 on, norms also on the outputs of branches, softcaps, and windows. Gemma 4: norms of values, which may be the keys, two sizes of
// heads, of which a share rotates in full layers, and a factor on each layer; inputs of layers besides the residual, layers that attend
// the keys of others, and MLPs of two widths (E2B); experts beside the MLP. EmbeddingGemma is a Gemma 3 that attends later keys, too;
// the second one is of Gemma 4's layers, with a projection behind the last norm. Gemma 3n: several rows of a token between layers, a product
// of low rank beside attention, and gates of which most are zeros.

import { LARGEST_INT } from "../../base/util/arguments.ts";
import { exp } from "../../base/util/math.ts";
import type { ActivationSpec, EmbedSpec, HeadsMore, NormSpec, RouterSpec, StreamsSpec } from "../spec/spec.ts";
import type { AttentionRules, Shape, WindowRules } from "./attention-rules.ts";
import { type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Facts, Fields } from "./facts.ts";
import { type Family, GATED_MLP, type MoeNames, type Names } from "./family.ts";

const attention: AttentionRules = { types: "gemma", gguf: {}, defaults: { headDim: 256 } };
const attention2: AttentionRules = {
  types: "gemma2",
  gguf: { assumesWindow: true, wideScale: 46 },
  defaults: { headDim: 256 },
  window: { tokens: 4096, period: 2 },
  softcap: 50,
  scale: rootOfScalar,
};
const attention3: AttentionRules = {
  types: "gemma3_text",
  gguf: { names: "gemma3", wideScale: 62 },
  defaults: { dModel: 2304, numHeads: 8, numKvHeads: 4, headDim: 256 },
  window: { tokens: 4096, period: 6, patterned: true },
  qkNorm: { kind: "per-head", onePlus: true },
  scale: rootOfScalar,
  rope: { theta: 1_000_000, local: { field: "rope_local_base_freq", theta: 10_000 } },
  statesDirection: true,
  // Which transformers does not apply.
  beside: ["attn_logit_softcapping"],
};

/** EmbeddingGemma in GGUF files: those of `config.json` are Gemma 3 that states its direction. */
const attentionGguf: AttentionRules = {
  ...attention3,
  ...{ types: undefined, gguf: { names: "gemma-embedding" }, reader: "loadEncoder", causal: false },
  window: { period: 6, bothSides: true },
} as AttentionRules;

const attentionVault: AttentionRules = {
  types: "vaultgemma",
  defaults: { headDim: 256 },
  window: { tokens: 4096, period: 2 },
  softcap: 50,
  scale: rootOfScalar,
};

/** Of full layers, files state other sizes for each, or for all. */
function shapeOf4(file: Fields, layer: number, windowed: boolean): Partial<Shape> {
  const own = file.fields("per_layer_config")?.fields(String(layer));
  const areKeys = file.flag("attention_k_eq_v", false);
  const [headDim, numKvHeads] = [file.raw("global_head_dim"), file.raw("num_global_key_value_heads")];
  if (own) {
    const [dim, heads] = [own.raw("head_dim"), own.raw("num_key_value_heads")];
    const [unknown] = own.unread()[0] ?? [];
    if (unknown !== undefined) throw file.refusal("per_layer_config", "sizes of heads alone", unknown);
    return {
      ...(dim !== undefined && { headDim: own.count("head_dim") }),
      ...(heads !== undefined && { numKvHeads: own.count("num_key_value_heads") }),
    };
  }
  if (windowed || file.raw("per_layer_config") !== undefined) return {};
  return {
    headDim: headDim === undefined ? 512 : file.count("global_head_dim"),
    ...(areKeys && numKvHeads !== undefined && { numKvHeads: file.count("num_global_key_value_heads") }),
  };
}
const attention4: AttentionRules = {
  types: "gemma4_text",
  gguf: { names: "gemma4", scale: 1, windowSizes: true, wholeKeys: "attention.shared_kv_layers" },
  defaults: { dModel: 2304, numHeads: 8, numKvHeads: 4, headDim: 256 },
  window: {
    tokens: 512,
    slides: (layer, file) => (layer + 1) % 6 !== 0 && layer + 1 < file.count("num_hidden_layers"),
  },
  qkNorm: { kind: "per-head" },
  scale: () => 1,
  shapeOf: shapeOf4,
  rope: { theta: 1_000_000, proportional: true, local: { field: "rope_local_base_freq", theta: 10_000 } },
  only: { use_bidirectional_attention: [false, "vision"] },
  beside: ["num_kv_shared_layers"],
};
const attentionEmbedding: AttentionRules = {
  types: "embedding_gemma2_text",
  reader: "loadEncoder",
  causal: false,
  defaults: { dModel: 512, numHeads: 4, numKvHeads: 2, headDim: 256 },
  window: { tokens: 512, bothSides: "each", slides: attention4.window?.slides as WindowRules["slides"] },
  qkNorm: { kind: "per-head" },
  scale: () => 1,
  shapeOf: (file, layer, windowed) =>
    windowed || file.raw("per_layer_config") ? shapeOf4(file, layer, windowed) : { headDim: 512, numKvHeads: 1 },
  rope: { theta: 1_000_000, local: { field: "rope_local_base_freq", theta: 10_000 } },
};
const attention4Unified: AttentionRules = {
  ...attention4,
  types: "gemma4_unified_text",
  gguf: undefined,
  window: { ...attention4.window, tokens: 1024 },
};

/** Values are normalised, and in full layers they may be the keys. The last layers may attend the keys of others. */
function heads4(facts: Facts, layer: number, has?: (tensor: string) => boolean): HeadsMore {
  const windowed = windowsOf(facts);
  const keysOf = sharedKeys(facts, windowed, layer);
  if (keysOf !== undefined) return { keysOf };
  const areKeys = has ? !has("attn_v.weight") : facts.flag("attention_k_eq_v", false) && !windowed[layer];
  return { valueNorm: { eps: facts.number("rms_norm_eps") ?? 1e-6 }, ...(areKeys && { valuesAreKeys: true }) };
}

const attention3n: AttentionRules = {
  types: "gemma3n_text",
  gguf: { names: "gemma3n", scale: 1, wholeKeys: "attention.shared_kv_layers" },
  defaults: { dModel: 2048, numHeads: 8, numKvHeads: 2, headDim: 256 },
  window: { tokens: 512, period: 5 },
  qkNorm: { kind: "per-head" },
  scale: () => 1,
  rope: { theta: 1_000_000, local: { field: "rope_local_base_freq", theta: 10_000 } },
  beside: ["num_kv_shared_layers"],
};

/** Values are normalised, and the last layers attend the keys of others. */
function heads3n(facts: Facts, layer: number): HeadsMore {
  const keysOf = sharedKeys(facts, windowsOf(facts, 5), layer);
  return keysOf === undefined ? { valueNorm: { eps: facts.number("rms_norm_eps") ?? 1e-6 } } : { keysOf };
}

/** A width for each layer, or for all. */
function mlpDim3n(file: Fields, _dModel: number, layer: number): number {
  const stated = file.raw("intermediate_size");
  const dim = Array.isArray(stated) ? stated[layer] : file.count("intermediate_size");
  if (typeof dim === "number" && Number.isInteger(dim) && dim >= 1 && dim <= LARGEST_INT) return dim;
  throw file.refusal("intermediate_size", "an integer >= 1 for each layer", dim);
}

/** The gates of the first layers keep the share above a quantile of a normal distribution. */
function sparse3n(file: Fields, layer: number): ActivationSpec["sparse"] {
  const stated = file.list("activation_sparsity_pattern");
  const share = stated ? stated[layer] : layer < 10 && file.count("num_hidden_layers") > 10 ? 0.95 : 0;
  if (typeof share !== "number" || !(share >= 0 && share < 1))
    throw file.refusal("activation_sparsity_pattern", "a share from 0 to less than 1 for each layer", share);
  return share === 0 ? undefined : { deviations: quantile(share) };
}

/** GGUF files state the number of deviations, -Infinity for none; as llama.cpp has it, these divide by n - 1. */
function ggufActivation(keys: Facts): ActivationSpec {
  const deviations = keys.ofLayer("activation_sparsity_scale") ?? -Infinity;
  if (typeof deviations !== "number" || !(deviations < Infinity))
    throw keys.refusal("activation_sparsity_scale", "a number or -Infinity for each layer", deviations);
  const isSparse = deviations > -Infinity;
  return { kind: "gelu-tanh", alpha: 1, ...(isSparse && { sparse: { deviations, sample: true } }) };
}

/** The value below which a standard normal one lies with this probability. */
function quantile(probability: number): number {
  if (probability < 0.5) return -quantile(1 - probability);
  // From 0 on, steps of Newton's method end below the result.
  let x = 0;
  for (let step = 0; step < 100; step++) {
    const density = exp(-x * x * 0.5) / Math.sqrt(2 * Math.PI);
    let [term, sum] = [x, 0];
    for (let n = 3; term > 1e-17; n += 2) {
      sum += term;
      term *= (x * x) / n;
    }
    x += (probability - 0.5 - density * sum) / density;
  }
  return x;
}

function streams3n(facts: Facts): StreamsSpec {
  const [many, first] =
    facts.layer === undefined ? ["altup_num_inputs", "altup_active_idx"] : ["altup.num_inputs", "altup.active_idx"];
  const count = facts.count(many as string, 4, 16);
  const active = facts.countOrNone(first as string);
  if (count < 2 || count > 16) throw facts.refusal(many as string, "an integer from 2 to 16", count);
  if (active >= count) throw facts.refusal(first as string, `one of the ${count} inputs`, active);
  return { count, active, scaled: facts.flag("altup_correct_scale", true) };
}

/** Which layers have the window: as files list them, or all but the last of each period. */
function windowsOf(facts: Facts, period = 6): readonly boolean[] {
  const count = facts.count("num_hidden_layers", undefined, 10_000);
  const kinds = facts.list("layer_types") ?? facts.list("attention.sliding_window_pattern");
  if (kinds && kinds.length < count) throw facts.refusal("layer_types", `a kind for each of ${count} layers`, kinds);
  return Array.from({ length: count }, (_, layer) =>
    kinds
      ? ["sliding_attention", true, 1].includes(kinds[layer] as string)
      : (layer + 1) % period !== 0 && (period !== 6 || layer + 1 < count),
  );
}

/** The layer whose keys a layer attends: of the last ones, the last of the same kind before them. */
function sharedKeys(facts: Facts, windowed: readonly boolean[], layer: number): number | undefined {
  const shared = facts.countOrNone("num_kv_shared_layers");
  const first = windowed.length - shared;
  if (layer < first) return undefined;
  const owner = windowed.slice(0, Math.max(0, first)).lastIndexOf(windowed[layer] as boolean);
  if (owner >= 0) return owner;
  const rule = `a layer of each kind before those that share its keys, of ${windowed.length}`;
  throw facts.refusal("num_kv_shared_layers", rule, shared);
}

/** MLPs of layers without keys of their own may be twice as wide. */
function mlpDim4(file: Fields, _dModel: number, layer: number): number {
  const first = file.count("num_hidden_layers") - file.countOrNone("num_kv_shared_layers");
  const isWide = file.flag("use_double_wide_mlp", false) && layer >= first;
  return (isWide ? 2 : 1) * file.count("intermediate_size", 9216);
}

export const layers: readonly AttentionRules[] = [
  attention,
  attention2,
  attention3,
  attentionVault,
  attentionEmbedding,
  attentionGguf,
];

function rootOfScalar(file: Fields): number | undefined {
  const scalar = file.factor("query_pre_attn_scalar");
  return scalar === undefined ? undefined : 1 / Math.sqrt(scalar);
}

/** Rows of the table times √dModel, and inputs of layers. */
function embed4(facts: Facts, dModel: number, norm: NormSpec): Partial<EmbedSpec> {
  const scale = Math.sqrt(dModel);
  const dim = facts.countOrNone("hidden_size_per_layer_input");
  if (dim === 0) return { scale };
  const rows = facts.count("vocab_size_per_layer_input", 262_144);
  // What is projected is divided by √dModel before its norm: of that, only epsilon is left.
  const perLayer = { dim, rows, scale: Math.sqrt(dim), norm: { ...norm, eps: norm.eps * dModel } };
  return { scale, perLayer };
}

/** Names of what computes the inputs of layers, and of what weights of experts are multiplied by. */
const OTHERS_4: Names["others"] = {
  perLayerTable: "embed_tokens_per_layer.weight",
  perLayerProjection: "per_layer_model_projection.weight",
  perLayerNorm: "per_layer_projection_norm.weight",
  perLayerGate: "per_layer_input_gate.weight",
  perLayerOut: "per_layer_projection.weight",
  expertScales: "router.per_expert_scale",
};

const OTHERS_3N: Names["others"] = {
  ...OTHERS_4,
  ...{ lowRankDown: "laurel.linear_left.weight", lowRankUp: "laurel.linear_right.weight" },
  ...{ streamIn: "altup_projections.#.weight", streamOut: "altup_unembed_projections.#.weight" },
  ...{ streamRouter: "altup.modality_router.weight", streamPredict: "altup.prediction_coefs.weight" },
  ...{ streamCorrect: "altup.correction_coefs.weight", streamScale: "altup.correct_output_scale" },
};

const names3n = (facts: Facts): Partial<Names> => ({
  others: OTHERS_3N,
  norms: {
    ...SANDWICH_NORMS,
    ...{ lowRankPost: "laurel.post_laurel_norm", streamsPre: "altup.router_norm" },
    ...(hasInputs(facts) && { perLayerPost: "post_per_layer_input_norm" }),
  },
});

/** Whether layers have inputs besides the residual. */
const hasInputs = (facts: Facts) => facts.countOrNone("hidden_size_per_layer_input") > 0;

/** Whether layers have experts beside their MLP. */
const hasExperts = (facts: Facts) => facts.flag("enable_moe_block", facts.countOrNone("expert_count") > 0);

const router4 = (dModel: number): Partial<RouterSpec> => ({ logitScale: 1 / Math.sqrt(dModel), expertScales: true });

/** Experts beside an MLP that every token takes, by norms of their own. */
const readExperts4: ReadExperts = (file, layer, mlp) => {
  if (!hasExperts(file)) return undefined;
  const experts = file.count("num_experts");
  const topK = file.count("top_k_experts", undefined, experts);
  const router = { ...SOFTMAX, ...router4(file.count("hidden_size", 2304)) };
  const shared = { mlp: mlp(mlpDim4(file, 0, layer)), gated: false };
  return { kind: "moe", experts, topK, expert: mlp(file.count("moe_intermediate_size")), shared, router };
};

const EXPERTS_4: MoeNames = {
  ...{ router: "router.proj", expert: "stacked", unsuffixed: true },
  mlp: { gate: "experts.gate_up_proj", down: "experts.down_proj" },
  ...{ shared: "mlp", sharedMlp: GATED_MLP },
};

const names4 = (facts: Facts): Partial<Names> => ({
  layerScale: "layer_scalar",
  others: OTHERS_4,
  bareNorms: ["routerPre"],
  norms: {
    ...SANDWICH_NORMS,
    ...(hasInputs(facts) && { perLayerPost: "post_per_layer_input_norm" }),
    ...(hasExperts(facts) && {
      ...{ routerPre: "router.scale", sharedPost: "post_feedforward_layernorm_1" },
      ...{ expertsPre: "pre_feedforward_layernorm_2", expertsPost: "post_feedforward_layernorm_2" },
    }),
  },
});

/** The softcap of logits, `otherwise` if the file does not state it. */
const softcap = (otherwise: number) => (facts: Facts) => ({
  softcap: facts.has("final_logit_softcapping") ? (facts.factor("final_logit_softcapping") ?? 0) : otherwise,
});

const gemma = (own: Pick<Family, "attention"> & Partial<Family>): Family => ({
  gguf: {},
  norm: { onePlus: true },
  activation: { fields: ["hidden_activation", "hidden_act"], word: "gelu_pytorch_tanh" },
  embed: (_facts, dModel) => ({ scale: Math.sqrt(dModel) }),
  tied: true,
  ...own,
});

const ROPE_4 = {
  sliding_attention: { rope_type: "default", rope_theta: 10_000 },
  full_attention: { rope_type: "proportional", partial_rotary_factor: 0.25, rope_theta: 1_000_000 },
};

const ROPE_EMBEDDING = {
  sliding_attention: { rope_type: "default", rope_theta: 10_000 },
  full_attention: { rope_type: "default", rope_theta: 1_000_000 },
};

const gemma4 = (own: Pick<Family, "attention"> & Partial<Family>): Family =>
  gemma({
    norm: {},
    namesOf: names4,
    heads: heads4,
    mlpDim: mlpDim4,
    moe: readExperts4,
    moeNames: EXPERTS_4,
    embed: embed4,
    gguf: {
      experts: {
        names: {
          mlp: { gate: "ffn_gate_up_exps", down: "ffn_down_exps" },
          sharedMlp: { gate: "ffn_gate", up: "ffn_up", down: "ffn_down" },
        },
        router: (keys) => router4(keys.count("embedding_length")),
      },
    },
    ignored: [
      ...["vocab_size_per_layer_input", "moe_intermediate_size", "num_experts", "top_k_experts", "attention_k_eq_v"],
      ...["global_head_dim", "num_global_key_value_heads", "per_layer_config", "enable_moe_block"],
      ...["hidden_size_per_layer_input", "use_double_wide_mlp"],
    ],
    ...own,
  });

export const decoders = (): Family[] => [
  gemma({
    attention,
    activation: { fields: ["hidden_activation"], word: "gelu_pytorch_tanh" },
    ignored: ["hidden_act"],
  }),
  gemma({ attention: attention2, names: { norms: SANDWICH_NORMS }, head: softcap(30) }),
  gemma({
    attention: attention3,
    names: { norms: SANDWICH_NORMS },
    head: softcap(0),
    cappedAlone: true,
    // Files of Google's leave them out.
    absent: { vocab_size: 262_208, intermediate_size: 9216, num_hidden_layers: 26, max_position_embeddings: 131_072 },
  }),
  gemma({
    attention: attentionVault,
    names: { norms: { attentionPre: "input_layernorm", mlpPre: "pre_feedforward_layernorm" } },
    head: softcap(30),
  }),
  gemma({
    ...{ attention: attention3n, norm: {}, namesOf: names3n, heads: heads3n, mlpDim: mlpDim3n, embed: embed4 },
    ...{ sparse: sparse3n, streams: streams3n, head: softcap(30), gguf: { activation: ggufActivation } },
    lowRank: (facts) => facts.count("laurel_rank", 64),
    absent: {
      ...{ vocab_size: 262_400, hidden_size_per_layer_input: 256, intermediate_size: 16_384, num_hidden_layers: 35 },
      num_kv_shared_layers: 15,
    },
    // Files have it without altup_correct_scale, too.
    ignoredTensors: /\.altup\.correct_output_scale$/,
    // The first limits coefficients in training.
    ignored: ["altup_coef_clip", "vocab_size_per_layer_input", "hidden_size_per_layer_input", "altup_active_idx"],
  }),
  gemma4({
    attention: attention4,
    // llama.cpp takes 30 where a file of its own states none.
    head: (facts) => softcap(facts.layer === undefined ? 0 : 30)(facts),
    absent: { rope_parameters: ROPE_4, hidden_size_per_layer_input: 256, vocab_size: 262_144, num_hidden_layers: 30 },
  }),
  gemma4({
    ...{ attention: attention4Unified, gguf: undefined, head: softcap(0) },
    absent: { rope_parameters: ROPE_4, vocab_size: 262_144, num_hidden_layers: 30 },
    only: { hidden_size_per_layer_input: [0], enable_moe_block: [false] },
  }),
];

/** Norms on the outputs of branches as well. */
const SANDWICH_NORMS: Names["norms"] = {
  attentionPre: "input_layernorm",
  attentionPost: "post_attention_layernorm",
  mlpPre: "pre_feedforward_layernorm",
  mlpPost: "post_feedforward_layernorm",
};

export const encoders = (): Family[] => [
  gemma({ attention: attentionGguf, names: { norms: SANDWICH_NORMS } }),
  gemma({
    ...{ attention: attentionEmbedding, gguf: undefined, norm: {} },
    names: {
      norms: { ...SANDWICH_NORMS, perLayerPost: "ple_block.post_per_layer_input_norm" },
      layerScale: "layer_scalar",
      others: {
        perLayerProjection: "ple.per_layer_model_projection.weight",
        perLayerNorm: "ple.per_layer_projection_norm.weight",
        perLayerGate: "ple_block.per_layer_input_gate.weight",
        perLayerOut: "ple_block.per_layer_projection.weight",
        lastProjection: "embedding_projection.weight",
      },
    },
    heads: (facts) => ({ valueNorm: { eps: facts.number("rms_norm_eps") ?? 1e-6 } }),
    embed: (facts, dModel, norm) => {
      const dim = facts.count("hidden_size_per_layer_input");
      // As of Gemma 4, without a table.
      return {
        scale: Math.sqrt(dModel),
        perLayer: { dim, rows: 0, scale: 1, norm: { ...norm, eps: norm.eps * dModel } },
      };
    },
    vectorDim: (facts) => facts.count("embedding_dim"),
    absent: {
      ...{ rope_parameters: ROPE_EMBEDDING, hidden_size_per_layer_input: 512, embedding_dim: 768, vocab_size: 262_144 },
      ...{ num_hidden_layers: 24, intermediate_size: 2048, max_position_embeddings: 262_144 },
    },
    ignored: ["per_layer_config"],
  }),
];
