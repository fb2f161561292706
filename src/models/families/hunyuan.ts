// Hunyuan: norms of heads behind RoPE; and with experts, of which each layer may take another number, and an MLP of all tokens.

import type { AttentionRules } from "./attention-rules.ts";
import { expertsOf, type ReadExperts, SOFTMAX } from "./experts.ts";
import { type Family, GATED_MLP } from "./family.ts";

const rules = {
  qkNorm: { kind: "per-head", eps: 1e-5 },
  rope: { alphas: true },
} as const;
const attention: AttentionRules = { types: "hunyuan_v1_dense", gguf: { names: "hunyuan-dense" }, ...rules };
const attentionMoe: AttentionRules = { types: "hunyuan_v1_moe", ...rules };

const readExperts: ReadExperts = (file, layer, mlp) => {
  const [topK, all] = [file.raw("moe_topk"), file.raw("num_experts")];
  const of = (name: string, stated: unknown, otherwise: number) =>
    Array.isArray(stated) ? Number(stated[layer]) : file.count(name, otherwise);
  const [experts, chosen] = [of("num_experts", all, 1), of("moe_topk", topK, 1)];
  if (!Number.isInteger(experts) || experts < 1) throw file.refusal("num_experts", "an integer >= 1 a layer", all);
  if (!Number.isInteger(chosen) || chosen < 1 || chosen > experts)
    throw file.refusal("moe_topk", `an integer from 1 to ${experts} a layer`, topK);
  const inner = mlp(file.count("intermediate_size", 11_008));
  return {
    ...({ kind: "moe", experts, topK: chosen, expert: inner, router: SOFTMAX } as const),
    shared: { mlp: inner, gated: false },
  };
};

/** Fields for other programs, and the values with which they change nothing. */
const ONLY: NonNullable<Family["only"]> = {
  ...{ use_qk_norm: [true], use_cla: [false], use_mla: [false], use_rotary_pos_emb: [true], norm_type: ["rms"] },
  ...{
    position_embedding_xdrope: [false],
    group_limited_greedy: [false],
    moe_layer_num_skipped: [0],
    mlp_bias: [false],
  },
  ...{ add_classification_head: [false] },
};

/** Fields of training, of classes and of images. */
const IGNORED: readonly string[] = [
  ...[
    "attention_head_dim",
    "cla_share_factor",
    "class_num",
    "dense_list",
    "eod_token_id",
    "im_end_id",
    "im_newline_id",
  ],
  ...["im_start_id", "image_token_id", "mask_init_id", "moe_drop_tokens", "moe_random_routing_dropped_token"],
  ...["num_media_embeds", "org_vocab_size", "pad_id", "pool_type", "sep_token_id", "text_end_id", "text_start_id"],
  ...["video_end_id", "video_start_id", "vit_add_patchemb_bias", "anyres_pooling_size", "norm_topk_prob"],
  ...["routed_scaling_factor", "num_shared_expert", "moe_intermediate_size", "use_mixed_mlp_moe"],
];

const hunyuan = (own: Pick<Family, "attention"> & Partial<Family>): Family => ({
  norm: { eps: 1e-5 },
  heads: () => ({ normsLast: true }),
  only: ONLY,
  ignored: IGNORED,
  attentionNames: { q_norm: "query_layernorm", k_norm: "key_layernorm" },
  ...own,
});

export const decoders = (): Family[] => [
  hunyuan({ attention, gguf: {}, ignored: [...IGNORED, "num_experts", "num_experts_per_tok", "moe_topk"] }),
  hunyuan({
    attention: attentionMoe,
    moe: readExperts,
    moeNames: {
      router: "mlp.gate.wg",
      expert: expertsOf("mlp.experts"),
      mlp: GATED_MLP,
      shared: "mlp.shared_mlp",
    },
  }),
];
