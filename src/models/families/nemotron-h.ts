// Nemotron-H: each layer of the file is one part, a scan of Mamba-2, attention without positions, an MLP, or experts.

import type { AttentionRules, RecurrentRules } from "./attention-rules.ts";
import { countExperts, expectGroups, expertsOf, type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Facts } from "./facts.ts";
import type { Family, MlpNames } from "./family.ts";
import { readGgufMamba, readMamba } from "./mamba.ts";

const attention: AttentionRules = {
  types: "nemotron_h",
  defaults: { headDim: 128 },
  rope: false,
  beside: ["hybrid_override_pattern"],
  gguf: { wholeKeys: "ssm.state_size" },
};

type Part = "mamba" | "attention" | "mlp" | "moe";

/** The words of lists, and the letters of older files' pattern. */
const PARTS: Readonly<Record<string, Part>> = {
  ...{ linear_attention: "mamba", mamba: "mamba", M: "mamba" },
  ...{ full_attention: "attention", attention: "attention", "*": "attention" },
  ...{ mlp: "mlp", "-": "mlp", moe: "moe", E: "moe" },
};

/** The part that each layer of the file is. */
function partsIn(facts: Facts): Part[] {
  const name = ["layers_block_type", "layer_types"].find((each) => facts.raw(each) !== undefined);
  const pattern = facts.raw("hybrid_override_pattern");
  const words = name ? (facts.list(name) ?? []) : typeof pattern === "string" ? [...pattern] : [];
  const field = name ?? "hybrid_override_pattern";
  if (words.length === 0) throw facts.refusal(field, "a part for each layer", words);
  const layers = facts.countOrNone("num_hidden_layers", words.length);
  if (layers !== words.length) throw facts.refusal("num_hidden_layers", `${words.length}, as ${field} says`, layers);
  return words.map((word, layer) => {
    const part = typeof word === "string" && Object.hasOwn(PARTS, word) ? PARTS[word] : undefined;
    if (part) return part;
    throw facts.refusal(`${field} of layer ${layer}`, `one of ${Object.keys(PARTS).join(", ")}`, word);
  });
}

const isMlp = (part: Part | undefined): boolean => part === "mlp" || part === "moe";

/** A mixer and the MLP behind it, if one follows, are a layer here. */
function pairsOf(facts: Facts, field: string, parts: readonly Part[]): [mixer: number, mlp: number | undefined][] {
  const found: [number, number | undefined][] = [];
  for (const [layer, part] of parts.entries()) {
    if (!isMlp(part)) found.push([layer, isMlp(parts[layer + 1]) ? layer + 1 : undefined]);
    else if (layer === 0 || isMlp(parts[layer - 1]))
      throw facts.refusal(
        `${field} of layer ${layer}`,
        "a scan or attention, as no MLP without one before it is computed",
        part,
      );
  }
  return found;
}

const pairs = (facts: Facts) => pairsOf(facts, "layers_block_type", partsIn(facts));

/** The count of a layer, which may be 0. */
const countOf = (keys: Facts, key: string, layer: number): number => Number(keys.list(key)?.[layer] ?? keys.raw(key));

/** The part that a layer of a GGUF file is. */
const ggufPart = (keys: Facts, layer: number): Part => {
  if (countOf(keys, "feed_forward_length", layer) > 0) return "mlp";
  return countOf(keys, "attention.head_count_kv", layer) > 0 ? "attention" : "mamba";
};

const scan: RecurrentRules = {
  kind: "recurrent",
  read: (facts) =>
    readMamba(
      facts,
      "mixer.",
      {
        ...{ heads: "mamba_num_heads", headDim: "mamba_head_dim", state: "ssm_state_size", groups: "n_groups" },
        ...{ taps: "conv_kernel", convBias: "use_conv_bias", bias: "use_bias", eps: "layer_norm_epsilon" },
        activation: "mamba_hidden_act",
      },
      { heads: 128, headDim: 64, state: 128, groups: 8 },
    ),
};

/** Experts of the layers that have them; the gate of both kinds of MLP is missing. */
const readExperts: ReadExperts = (file, layer, mlp) => {
  const experts = countExperts(file, ["n_routed_experts"], 8);
  // Of all shared experts together.
  const sharedDim = file.count("moe_shared_expert_intermediate_size", 7688);
  const dim = file.raw("moe_latent_size") == null ? undefined : file.count("moe_latent_size");
  const spec = {
    kind: "moe",
    experts,
    ...(dim !== undefined && { dim }),
    topK: file.count("num_experts_per_tok", 2, experts),
    expert: mlp(file.count("moe_intermediate_size", 7688)),
    shared: { mlp: mlp(sharedDim), gated: false },
    router: {
      ...SOFTMAX,
      score: "sigmoid",
      correction: true,
      renormalise: file.flag("norm_topk_prob", true),
      scale: file.factor("routed_scaling_factor") ?? 1,
      groups: file.count("n_group", 1),
      keepGroups: file.count("topk_group", 1),
      pairs: true,
    },
  } as const;
  if (partsIn(file)[layer] !== "moe") return undefined;
  expectGroups(file, spec);
  return spec;
};

const MLP: MlpNames = { up: "up_proj", down: "down_proj" };

export const decoders = (): Family[] => [
  {
    attention,
    mixer: (facts, layer) => (partsIn(facts)[layer] === "mamba" ? scan : undefined),
    pairs,
    gguf: {
      recurrent: (keys) => (keys.countOrNone("attention.head_count_kv") === 0 ? readGgufMamba(keys) : undefined),
      pairs: (keys, layers) =>
        pairsOf(
          keys,
          "feed_forward_length",
          Array.from({ length: layers }, (_, layer) => ggufPart(keys, layer)),
        ),
      norms: { attentionPre: "attn_norm", mlpPre: "attn_norm" },
    },
    plain: true,
    tied: "never",
    norm: { field: "layer_norm_epsilon", eps: 1e-5 },
    activation: { fields: ["mlp_hidden_act"], word: "relu2" },
    moe: readExperts,
    moeNames: {
      ...{
        router: "mixer.gate",
        correction: "mixer.gate.e_score_correction_bias",
        mlp: MLP,
        shared: "mixer.shared_experts",
        expertsIn: "mixer.fc1_latent_proj",
        expertsOut: "mixer.fc2_latent_proj",
      },
      expert: /* @__PURE__ */ expertsOf("mixer.experts"),
    },
    names: {
      ...{ roots: ["backbone.", "model."], embed: "embeddings", attention: "mixer.", mlpAt: "mixer", mlp: MLP },
      ...{ norms: { attentionPre: "norm", mlpPre: "norm" }, finalNorm: "norm_f" },
    },
    ignored: [
      ...["chunk_size", "expand", "rescale_prenorm_residual", "residual_in_fp32", "mamba_ssm_cache_dtype"],
      ...["moe_shared_expert_overlap", "mtp_layers_block_type", "num_nextn_predict_layers", "num_logits_to_keep"],
      ...[
        "time_step_floor",
        "time_step_max",
        "time_step_min",
        "use_mamba_kernels",
        "num_hidden_layers",
        "mamba_proj_bias",
      ],
      ...["intermediate_size", "n_shared_experts", "moe_intermediate_size", "moe_shared_expert_intermediate_size"],
      // Of experts that no layer has.
      ...["moe_latent_size", "n_routed_experts", "num_experts_per_tok", "norm_topk_prob", "routed_scaling_factor"],
      ...["n_group", "topk_group"],
    ],
    ignoredTensors: /^mtp\./,
  },
];
