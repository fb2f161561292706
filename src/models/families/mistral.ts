// Mistral, Ministral and Mixtral: Llama with a window; Mixtral has experts, and queries of Ministral 3 grow with their positions. Their
// GGUF files are those of Llama.

import type { RouterSpec, Temperature } from "../spec/spec.ts";
import type { AttentionRules, LatentRules } from "./attention-rules.ts";
import { readDeepSeek, sigmoidRouter } from "./deepseek.ts";
import { countExperts, expertsOf, type ReadExperts, SOFTMAX } from "./experts.ts";
import { FACTOR_RULE, type Fields } from "./facts.ts";
import { type Family, GATED_MLP, type MoeNames } from "./family.ts";

const attention: AttentionRules = {
  types: "mistral ministral",
  gguf: { names: "mistral3", permuted: true },
  window: { tokens: 4096 },
};
const mixtral: AttentionRules = { types: "mixtral", window: {}, rope: { theta: 1_000_000 } };

const TEMPERATURE_KEYS = "attention.temperature_scale attention.temperature_length rope.scaling.yarn_log_multiplier";
const attention3: AttentionRules = {
  types: "ministral3",
  gguf: { names: "mistral3", permuted: true, wholeKeys: TEMPERATURE_KEYS },
  defaults: { headDim: 128, numKvHeads: 8 },
  window: {},
};

export const layers: readonly AttentionRules[] = [attention, mixtral];

/** How queries grow with their positions: by the number of trained lengths before them. */
function readTemperature(file: Fields): Temperature | undefined {
  const own = file.fields("rope_parameters") ?? file.fields("rope_scaling");
  if (own === undefined) throw file.refusal("rope_parameters", "an object", undefined);
  // Some files repeat the length of the model there.
  own.raw("max_position_embeddings");
  const beta = own.raw("llama_4_scaling_beta") === 0 ? 0 : own.factor("llama_4_scaling_beta");
  if (beta === undefined) throw file.refusal("llama_4_scaling_beta", FACTOR_RULE, beta);
  return beta === 0 ? undefined : { beta, length: own.count("original_max_position_embeddings") };
}

const attention4: LatentRules = { types: "mistral4", kind: "latent", statesPairing: true, sharesHead: true };

/** By a softmax, of the groups of experts whose two best are best. */
function router4(file: Fields): RouterSpec {
  return { ...sigmoidRouter(file, { scale: 1, groups: 1, keepGroups: 1 }), score: "softmax", correction: false };
}

/** Experts as in Mixtral. */
export const readMixtral: ReadExperts = (file, _layer, mlp) => {
  const experts = countExperts(file, ["num_local_experts", "num_experts"], 8);
  const expert = mlp(file.count("intermediate_size"));
  return { kind: "moe", experts, topK: file.count("num_experts_per_tok", 2, experts), expert, router: SOFTMAX };
};

export const MIXTRAL_EXPERTS: MoeNames = {
  router: "block_sparse_moe.gate",
  expert: /* @__PURE__ */ expertsOf("block_sparse_moe.experts"),
  mlp: { gate: "w1", up: "w3", down: "w2" },
};

export const decoders = (): Family[] => [
  { attention },
  {
    attention: attention3,
    gguf: {
      temperature: (keys) => {
        const beta = keys.factor("attention.temperature_scale");
        return beta === undefined
          ? undefined
          : { beta, length: keys.count("rope.scaling.original_context_length", keys.count("context_length")) };
      },
    },
    norm: { eps: 1e-5 },
    temperature: readTemperature,
    only: { layer_types: [] },
  },
  {
    attention: attention4,
    temperature: readTemperature,
    moe: readDeepSeek(router4, { experts: 128, dim: 2048, shared: 1, topK: 4, first: 0 }),
    moeNames: {
      router: "mlp.gate",
      expert: "stacked",
      unsuffixed: true,
      mlp: { gate: "mlp.experts.gate_up_proj", down: "mlp.experts.down_proj" },
      shared: "mlp.shared_experts",
      sharedMlp: GATED_MLP,
    },
  },
  { attention: mixtral, moe: readMixtral, moeNames: MIXTRAL_EXPERTS },
];
