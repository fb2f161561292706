// Jamba: scans of Mamba's first version with norms of what they select by, between layers of attention without positions; experts in
// some layers.

import type { ChannelsConfig, RecurrentConfig } from "../../layers/recurrent/config.ts";
import type { AttentionRules, RecurrentRules } from "./attention-rules.ts";
import { countExperts, expertsOf, type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Facts } from "./facts.ts";
import { type Family, GATED_MLP } from "./family.ts";
import { ownTensors, partsInOrder, type RecurrentSpec, type RecurrentTensor } from "./recurrent.ts";

const attention: AttentionRules = {
  ...{ types: "jamba", rope: false, gguf: { wholeKeys: "ssm.state_size" } },
  ...{ defaults: { numKvHeads: 8 }, beside: ["mamba_d_state"] },
};

/** Whether a layer is one of each `period`, from `offset` on. */
function isEach(facts: Facts, layer: number, name: "attn" | "expert", absent: readonly [number, number]): boolean {
  const [period, offset] = [`${name}_layer_period`, `${name}_layer_offset`];
  const every = facts.count(period, absent[0]);
  const first = facts.countOrNone(offset, absent[1]);
  if (first >= every) throw facts.refusal(offset, `less than ${period}, ${every}`, first);
  return layer % every === first;
}

const MOST_TAPS = 16;

function readScan(facts: Facts): RecurrentSpec {
  const dModel = facts.count("hidden_size");
  const isAuto = (facts.raw("mamba_dt_rank") ?? "auto") === "auto";
  const config: RecurrentConfig & { readonly channels: ChannelsConfig } = {
    dModel,
    taps: facts.count("mamba_d_conv", 4, MOST_TAPS),
    channels: {
      kind: "selective",
      width: facts.count("mamba_expand", 2, 1024) * dModel,
      stateDim: facts.count("mamba_d_state", 16),
      stepRank: isAuto ? Math.ceil(dModel / 16) : facts.count("mamba_dt_rank"),
      eps: facts.number("rms_norm_eps") ?? 1e-6,
    },
  };
  const own = ownTensors(
    config,
    {
      ...{ conv: "conv1d.weight", select: "x_proj.weight", step: "dt_proj.weight", rate: "A_log", skip: "D" },
      ...{ stepNorm: "dt_layernorm.weight", keyNorm: "b_layernorm.weight", queryNorm: "c_layernorm.weight" },
      out: "out_proj.weight",
    },
    facts.flag("mamba_conv_bias", true) ? "conv1d.bias" : undefined,
  );
  const joined = jointly(config, "in_proj.weight", facts.flag("mamba_proj_bias", false) ? "in_proj.bias" : undefined);
  const steps = own.map((each) => (each.name === "dt_proj.weight" ? ({ ...each, biased: true } as const) : each));
  return { kind: "recurrent", config, at: "mamba.", tensors: [joined, ...steps] };
}

/** The rows of the scan, then those of its gate. */
const jointly = (
  { dModel, channels: { width } }: RecurrentConfig & { readonly channels: ChannelsConfig },
  name: string,
  bias?: string,
): RecurrentTensor => ({
  ...{ name, shape: [2 * width, dModel], ...(bias && { bias }) },
  parts: partsInOrder([
    ["in", width],
    ["gate", width],
  ]),
});

function readGguf(keys: Facts): RecurrentSpec {
  const config: RecurrentConfig & { readonly channels: ChannelsConfig } = {
    dModel: keys.count("embedding_length"),
    taps: keys.count("ssm.conv_kernel", undefined, MOST_TAPS),
    channels: {
      kind: "selective",
      width: keys.count("ssm.inner_size"),
      stateDim: keys.count("ssm.state_size"),
      stepRank: keys.count("ssm.time_step_rank"),
      eps: keys.number("attention.layer_norm_rms_epsilon") ?? 1e-6,
    },
  };
  const own = ownTensors(
    config,
    {
      ...{ conv: "ssm_conv1d.weight", select: "ssm_x.weight", step: "ssm_dt.weight", rate: "ssm_a", skip: "ssm_d" },
      ...{ stepNorm: "ssm_dt_norm.weight", keyNorm: "ssm_b_norm.weight", queryNorm: "ssm_c_norm.weight" },
      out: "ssm_out.weight",
    },
    "ssm_conv1d.bias",
    true,
  );
  return { kind: "recurrent", config, at: "", tensors: [jointly(config, "ssm_in.weight"), ...own] };
}

const scan: RecurrentRules = { kind: "recurrent", read: readScan };

const readExperts: ReadExperts = (file, layer, mlp) => {
  const isThere = isEach(file, layer, "expert", [2, 1]);
  const experts = countExperts(file, ["num_experts", "num_local_experts"], 16);
  const topK = file.count("num_experts_per_tok", 2, experts);
  if (!isThere || experts === 1) return undefined;
  const router = { ...SOFTMAX, renormalise: false };
  return { kind: "moe", experts, topK, router, expert: mlp(file.count("intermediate_size", 14_336)) };
};

export const decoders = (): Family[] => [
  {
    attention,
    mixer: (facts, layer) => (isEach(facts, layer, "attn", [8, 4]) ? undefined : scan),
    gguf: {
      recurrent: (keys) => (keys.countOrNone("attention.head_count_kv") > 0 ? undefined : readGguf(keys)),
      renormalise: false,
    },
    moe: readExperts,
    moeNames: {
      ...{ router: "feed_forward.router", mlp: GATED_MLP },
      expert: /* @__PURE__ */ expertsOf("feed_forward.experts"),
    },
    names: {
      norms: { attentionPre: "input_layernorm", mlpPre: "pre_ff_layernorm" },
      ...{ mlpAt: "feed_forward", finalNorm: "final_layernorm" },
    },
    // SiLU is in the scan, too.
    only: { hidden_act: ["silu"] },
    ignored: [
      ...["use_associative_scan", "use_mamba_kernels", "use_mambapy", "num_logits_to_keep", "mamba_inner_layernorms"],
      ...["mamba_d_conv", "mamba_d_state", "mamba_dt_rank", "mamba_expand", "mamba_conv_bias", "mamba_proj_bias"],
    ],
  },
];
