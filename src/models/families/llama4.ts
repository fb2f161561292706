// Llama 4: tokens in chunks, of which a query attends its own, in layers that rotate; norms of heads without gains behind RoPE; queries
// that grow with their positions in layers without RoPE; in some layers experts beside one that every token takes.

import type { AttentionRules } from "./attention-rules.ts";
import { countExperts, type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Facts, Fields } from "./facts.ts";
import { type Family, GATED_MLP } from "./family.ts";
import { rotates } from "./smollm3.ts";

const hasNorms = (facts: Facts, layer: number): boolean => rotates(layer, facts) && facts.flag("use_qk_norm", true);

const attention: AttentionRules = {
  types: "llama4_text",
  defaults: { headDim: 128, numKvHeads: 8 },
  rope: { pairing: "interleaved", theta: 500_000 },
  rotates: (layer, _windowed, _windows, facts) => rotates(layer, facts),
  beside: ["attention_chunk_size", "attn_temperature_tuning", "use_qk_norm"],
  window: { tokens: 8192, field: "attention_chunk_size", word: "chunked_attention", slides: rotates },
  more: (file, _shape, layer) =>
    hasNorms(file, layer) ? { qkNorm: { kind: "per-head", eps: file.number("rms_norm_eps") ?? 1e-5 } } : {},
};

/** Whether a layer has experts: one of a list, or the last of each interval. */
function isSparse(file: Fields, layer: number): boolean {
  const list = file.list("moe_layers");
  return list ? list.includes(layer) : (layer + 1) % file.count("interleave_moe_layer_step", 1) === 0;
}

const readExperts: ReadExperts = (file, layer, mlp) => {
  if (!isSparse(file, layer)) return undefined;
  const experts = countExperts(file, ["num_local_experts"], 16);
  const expert = mlp(file.count("intermediate_size", 8192));
  return {
    kind: "moe",
    experts,
    topK: file.count("num_experts_per_tok", 1, experts),
    expert,
    shared: { mlp: expert, gated: false },
    router: { ...SOFTMAX, renormalise: false },
    scalesInputs: true,
  };
};

/** How queries of layers without RoPE grow. Older files state a number in place of true. */
const temperature: Family["temperature"] = (file, layer) => {
  const isOn = file.raw("attn_temperature_tuning") ?? true;
  if (typeof isOn !== "boolean" && typeof isOn !== "number")
    throw file.refusal("attn_temperature_tuning", "true or false", isOn);
  const beta = file.raw("attn_scale") === 0 ? 0 : (file.factor("attn_scale") ?? 0.1);
  const length = file.count("floor_scale", 8192);
  return isOn && beta > 0 && !rotates(layer, file) ? { beta, length, ahead: 1 } : undefined;
};

export const decoders = (): Family[] => [
  {
    attention,
    heads: (facts, layer) => ({ chunked: true, ...(hasNorms(facts, layer) && { normsLast: true, bare: true }) }),
    names: { mlpAt: "feed_forward" },
    norm: { eps: 1e-5 },
    temperature,
    mlpDim: (file) => file.count("intermediate_size_mlp", 16_384),
    moe: readExperts,
    moeNames: {
      router: "feed_forward.router",
      expert: "transposed",
      unsuffixed: true,
      mlp: { gate: "feed_forward.experts.gate_up_proj", down: "feed_forward.experts.down_proj" },
      shared: "feed_forward.shared_expert",
      sharedMlp: GATED_MLP,
    },
    // Of layers that the model may not have.
    ignored: [
      ...["for_llm_compressor", "interleave_moe_layer_step", "intermediate_size", "intermediate_size_mlp"],
      ...["num_experts_per_tok", "num_local_experts"],
    ],
  },
];
