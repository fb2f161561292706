// DeepSeek-V2, V3 and Kimi K2: latent attention, and experts of which some are taken by every token.

import type { RouterSpec } from "../spec/spec.ts";
import type { LatentRules } from "./attention-rules.ts";
import { countExperts, expectGroups, expertsOf, type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Fields } from "./facts.ts";
import { type Family, GATED_MLP, type MoeNames } from "./family.ts";

const attention2: LatentRules = {
  types: "deepseek_v2",
  gguf: { names: "deepseek2" },
  kind: "latent",
  theta: 10_000,
};
const attention3: LatentRules = { types: "deepseek_v3", kind: "latent", theta: 10_000, statesPairing: true };

export const latents: readonly LatentRules[] = [attention2, attention3, { types: "kimi_k2", kind: "latent" }];

/** Reads experts whose scores become weights by `router`: what absent fields stand for is `absent`. */
export function readDeepSeek(
  router: (file: Fields) => RouterSpec,
  absent: {
    readonly experts?: number;
    readonly dim: number;
    readonly shared: number;
    readonly topK?: number;
    /** The first layer with experts. */
    readonly first?: number;
  } = { experts: 64, dim: 1407, shared: 0 },
): ReadExperts {
  return (file, layer, mlp) => {
    const experts = countExperts(file, ["n_routed_experts", "num_local_experts"], absent.experts);
    const dim = file.count("moe_intermediate_size", absent.dim);
    const shared = file.raw("n_shared_experts") === undefined ? absent.shared : file.count("n_shared_experts");
    const stated = file.raw("first_k_dense_replace") ?? absent.first;
    const first = stated === 0 ? 0 : file.count("first_k_dense_replace", 1);
    const spec = {
      kind: "moe",
      experts,
      topK: file.count("num_experts_per_tok", absent.topK ?? 8, experts),
      expert: mlp(dim),
      ...(shared > 0 && { shared: { mlp: mlp(shared * dim), gated: false } }),
      router: router(file),
    } as const;
    file.only("moe_layer_freq", 1);
    // The width of dense layers, which are not always there.
    file.raw("intermediate_size");
    expectGroups(file, spec);
    return layer >= first ? spec : undefined;
  };
}

/** V2: softmax, of the best groups if the file asks for that. */
function softmaxRouter(file: Fields): RouterSpec {
  file.only("topk_method", "greedy", "group_limited_greedy");
  file.only("scoring_func", "softmax");
  // transformers never divides these weights by their sum, whatever the field says.
  file.flag("norm_topk_prob", false);
  const grouped = file.raw("topk_method") === "group_limited_greedy";
  const [groups, keepGroups] = [file.count("n_group", 1), file.count("topk_group", 1)];
  return {
    ...SOFTMAX,
    renormalise: false,
    scale: file.factor("routed_scaling_factor") ?? 1,
    groups: grouped ? groups : 1,
    keepGroups: grouped ? keepGroups : 1,
  };
}

/** Sigmoids with a correction for the choice, of the groups whose two best are best: what absent fields stand for is `absent`. */
export function sigmoidRouter(
  file: Fields,
  absent: { readonly scale: number; readonly groups: number; readonly keepGroups: number },
): RouterSpec {
  return {
    score: "sigmoid",
    correction: true,
    renormalise: file.flag("norm_topk_prob", true),
    scale: file.factor("routed_scaling_factor") ?? absent.scale,
    groups: file.count("n_group", absent.groups),
    keepGroups: file.count("topk_group", absent.keepGroups),
    pairs: true,
  };
}

export const DEEPSEEK_EXPERTS: MoeNames = {
  router: "mlp.gate",
  correction: "mlp.gate.e_score_correction_bias",
  expert: /* @__PURE__ */ expertsOf("mlp.experts"),
  mlp: GATED_MLP,
  shared: "mlp.shared_experts",
};

export const decoders = (): Family[] => [
  { attention: attention2, gguf: { renormalise: false }, moe: readDeepSeek(softmaxRouter), moeNames: DEEPSEEK_EXPERTS },
  {
    attention: attention3,
    moe: readDeepSeek((file) => {
      file.only("topk_method", "noaux_tc");
      file.only("scoring_func", "sigmoid");
      return sigmoidRouter(file, { scale: 2.5, groups: 8, keepGroups: 4 });
    }),
    moeNames: DEEPSEEK_EXPERTS,
    ignored: ["num_nextn_predict_layers"],
  },
];
