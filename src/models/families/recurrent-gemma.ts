// RecurrentGemma: RG-LRU, a scan of channels with gates that are matrices of blocks, between layers of attention with a window.

import type { RecurrentConfig } from "../../layers/recurrent/config.ts";
import type { AttentionRules, RecurrentRules } from "./attention-rules.ts";
import type { Facts } from "./facts.ts";
import type { Family } from "./family.ts";
import { ownTensors, type RecurrentTensor } from "./recurrent.ts";

const attention: AttentionRules = {
  types: "recurrent_gemma",
  window: { field: "attention_window_size", tokens: 2048 },
  rope: { share: 0.5, oddDim: true },
  beside: ["lru_width"],
};

const scan: RecurrentRules = {
  kind: "recurrent",
  read(facts) {
    const dModel = facts.count("hidden_size");
    const width = facts.count("lru_width", dModel);
    const blocks = facts.count("num_attention_heads");
    if (width % blocks !== 0) throw facts.refusal("num_attention_heads", `a divisor of lru_width, ${width}`, blocks);
    const config: RecurrentConfig = {
      ...{ dModel, taps: facts.count("conv1d_width", 4, 16) },
      channels: { kind: "gated", width, stateDim: 1, stepRank: 0, eps: undefined },
    };
    const gate = (name: string, of: "step" | "write"): RecurrentTensor => ({
      ...{ name: `rg_lru.${name}_gate_weight`, shape: [blocks, width / blocks, width / blocks], form: "blocks" },
      ...{ parts: [{ of, rows: width, to: 0 }], bias: `rg_lru.${name}_gate_bias` },
    });
    const rate: RecurrentTensor = {
      ...{
        name: "rg_lru.recurrent_param",
        shape: [width],
        form: "softplus",
        parts: [{ of: "rate", rows: width, to: 0 }],
      },
    };
    const names = { in: "linear_x.weight", gate: "linear_y.weight", conv: "conv_1d.weight", out: "linear_out.weight" };
    const tensors = [...ownTensors(config, names, "conv_1d.bias"), rate];
    return {
      ...{ kind: "recurrent", config, at: "temporal_block." },
      tensors: [...tensors, gate("recurrent", "step"), gate("input", "write")].map((each) => ({
        ...each,
        biased: true,
      })),
    };
  },
};

const LAYERS: Readonly<Record<string, RecurrentRules | undefined>> = { recurrent: scan, attention: undefined };

/** The rules of layers that do not attend: kinds of layers repeat. */
function mixer(facts: Facts, layer: number): RecurrentRules | undefined {
  const words = facts.list("block_types") ?? ["recurrent", "recurrent", "attention"];
  const word = String(words[layer % words.length]);
  if (Object.hasOwn(LAYERS, word)) return LAYERS[word];
  throw facts.refusal("block_types", 'a list of "recurrent" and "attention"', word);
}

/** √dModel as bfloat16, as the model has it whatever its weights are. */
function rootOf(dModel: number): number {
  const root = Math.sqrt(dModel);
  let unit = 1 / 128;
  while (root >= 256 * unit) unit *= 2;
  return Math.round(root / unit) * unit;
}

export const decoders = (): Family[] => [
  {
    attention,
    mixer,
    norm: { onePlus: true },
    // Its tanh is in the gate of scans, too.
    only: { hidden_activation: ["gelu_pytorch_tanh"] },
    activation: { fields: [], word: "gelu_pytorch_tanh" },
    mlpDim: (file) => Math.floor(file.count("intermediate_size", 7680) / 2),
    embed: (_facts, dModel) => ({ scale: rootOf(dModel) }),
    head: (facts) => ({ softcap: facts.factor("logits_soft_cap") ?? 30 }),
    tied: true,
    names: {
      norms: { attentionPre: "temporal_pre_norm", mlpPre: "channel_pre_norm" },
      ...{ attention: "temporal_block.", mlpAt: "mlp_block", finalNorm: "final_norm" },
    },
    ignored: [
      ...["attention_window_size", "conv1d_width", "lru_width", "w_init_variance_scale", "final_w_init_variance_scale"],
      "block_types",
    ],
    biases: () => ["o", "mlp"],
  },
];
