// GLM-4 and 4.5: half of a head rotates; gate and factor in one matrix, or experts as in DeepSeek-V3. GLM-4.7-Flash has latent
// attention, of which single layers are read.

import type { AttentionRules, LatentRules } from "./attention-rules.ts";
import { DEEPSEEK_EXPERTS, readDeepSeek, sigmoidRouter } from "./deepseek.ts";
import { type Biases, type Family, FUSED_MLP } from "./family.ts";

const attention: AttentionRules = {
  types: "glm",
  gguf: { names: "chatglm" },
  defaults: { headDim: 128 },
  rope: { pairing: "interleaved", share: 0.5 },
};
const attention4: AttentionRules = {
  types: "glm4",
  gguf: {},
  defaults: { headDim: 128 },
  rope: { pairing: "interleaved", share: 0.5 },
};
const attentionMoe: AttentionRules = {
  types: "glm4_moe",
  gguf: { names: "glm4moe" },
  rope: { share: 0.5 },
  qkNorm: { kind: "per-head", eps: 1e-5, flag: "use_qk_norm" },
};

export const layers: readonly AttentionRules[] = [attention, attention4, attentionMoe];
export const latents: readonly LatentRules[] = [{ types: "glm4_moe_lite", kind: "latent", statesPairing: true }];

export const biases: Biases = [["glm glm4 glm4_moe", (facts) => (facts.flag("attention_bias", false) ? ["qkv"] : [])]];

export const decoders = (): Family[] => [
  { attention, gguf: {}, names: { mlp: FUSED_MLP } },
  {
    attention: attention4,
    gguf: {},
    names: {
      mlp: FUSED_MLP,
      norms: {
        attentionPre: "input_layernorm",
        attentionPost: "post_self_attn_layernorm",
        mlpPre: "post_attention_layernorm",
        mlpPost: "post_mlp_layernorm",
      },
    },
  },
  {
    attention: attentionMoe,
    moe: readDeepSeek((file) => sigmoidRouter(file, { scale: 1, groups: 1, keepGroups: 1 }), {
      experts: 128,
      dim: 1408,
      shared: 1,
    }),
    moeNames: DEEPSEEK_EXPERTS,
    ignored: ["num_nextn_predict_layers", "use_qk_norm"],
  },
];
