// The MLPs and experts of GGUF files.

import type { MoeNames } from "../decoder/family.ts";
import type { MlpSpec, MoeSpec } from "../decoder/spec.ts";
import type { DecoderRules } from "./decoders.ts";
import type { Keys } from "./keys.ts";

export const MOE_NAMES: Required<MoeNames> = {
  router: "ffn_gate_inp",
  correction: "exp_probs_b.bias",
  expert: "stacked",
  mlp: { gate: "ffn_gate_exps", up: "ffn_up_exps", down: "ffn_down_exps" },
  shared: "",
  sharedMlp: { gate: "ffn_gate_shexp", up: "ffn_up_shexp", down: "ffn_down_shexp" },
  sharedGate: "ffn_gate_inp_shexp",
};

/** How scores of experts become weights, as files number it: softmax of all, sigmoid, or softmax of those chosen. */
const [SOFTMAX_GATE, SIGMOID_GATE, CHOSEN_GATE] = [1, 2, 3];

/** The MLP of a layer, or its experts if it has a router. `keys` are those of the layer, and `has` looks for its tensors. */
export function readMlp(
  keys: Keys,
  { activation = { kind: "swish", alpha: 1 }, plain, renormalise }: DecoderRules,
  has: (tensor: string) => boolean,
): MlpSpec | MoeSpec {
  const mlp = (dim: number): MlpSpec => ({ kind: "mlp", dim, gated: !plain, activation });
  if (!has(`${MOE_NAMES.router}.weight`)) return mlp(keys.count("feed_forward_length"));
  const experts = keys.count("expert_count");
  const topK = keys.count("expert_used_count");
  if (topK > experts) keys.fail("expert_used_count", `at most the ${experts} experts`, topK);
  const dim = keys.countOrNone("expert_feed_forward_length") || keys.count("feed_forward_length");
  const gating = keys.countOrNone("expert_gating_func") || SOFTMAX_GATE;
  if (gating !== SOFTMAX_GATE && gating !== SIGMOID_GATE && gating !== CHOSEN_GATE)
    keys.fail("expert_gating_func", "1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)", gating);
  const [groups, keepGroups] = [keys.count("expert_group_count", 1), keys.count("expert_group_used_count", 1)];
  const size = experts / groups;
  if (!Number.isInteger(size)) keys.fail("expert_group_count", `a divisor of the ${experts} experts`, groups);
  if (keepGroups > groups || topK > keepGroups * size)
    keys.fail("expert_group_used_count", `groups of the ${groups} with ${topK} experts`, keepGroups);
  const shared = has(`${MOE_NAMES.sharedMlp.down}.weight`);
  const sharedDim = keys.countOrNone("expert_shared_feed_forward_length") || keys.count("expert_shared_count", 1) * dim;
  return {
    kind: "moe",
    experts,
    topK,
    expert: mlp(dim),
    ...(shared && { shared: { mlp: mlp(sharedDim), gated: has(`${MOE_NAMES.sharedGate}.weight`) } }),
    router: {
      score: gating === SIGMOID_GATE ? "sigmoid" : "softmax",
      correction: has(MOE_NAMES.correction),
      renormalise: gating === CHOSEN_GATE || (keys.flag("expert_weights_norm") ?? renormalise ?? true),
      scale: keys.factor("expert_weights_scale") ?? 1,
      groups,
      keepGroups,
      pairs: gating === SIGMOID_GATE && groups > 1,
    },
  };
}
