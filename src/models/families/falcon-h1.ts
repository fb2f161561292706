// Falcon-H1: attention and a scan of Mamba-2 side by side in each layer, with a factor at each place.

import type { AttentionRules, ParallelRules, RecurrentRules } from "./attention-rules.ts";
import type { Facts } from "./facts.ts";
import type { Family } from "./family.ts";
import { HYBRID_FIELDS, type MambaFactors, readGgufMamba, readMamba } from "./mamba.ts";

const factorOf = (facts: Facts, name: string): number => facts.factor(name) ?? 1;

/** A list of factors. */
function factorsOf(facts: Facts, name: string, count: number): readonly number[] {
  const given = facts.list(name) ?? new Array(count).fill(1);
  const isRight = given.length === count && given.every((each) => typeof each === "number" && each > 0 && each <= 1e6);
  if (!isRight) throw facts.refusal(name, `${count} numbers from above 0 to 1e6`, given);
  return given as readonly number[];
}

/** The factor on inputs of attention is one of scores, twice, and of values. */
const scale = (facts: Facts): number => {
  const headDim = facts.count("head_dim", facts.count("hidden_size") / facts.count("num_attention_heads"));
  const input = factorOf(facts, "attention_in_multiplier");
  return (factorOf(facts, "key_multiplier") * input * input) / Math.sqrt(headDim);
};

const attention: AttentionRules = {
  ...{ types: "falcon_h1", rope: { theta: 100_000 }, scale, beside: ["mamba_d_state"] },
  gguf: { names: "falcon-h1", wholeKeys: "ssm.state_size" },
};

const scan: RecurrentRules = {
  kind: "recurrent",
  read(facts) {
    const input = factorOf(facts, "ssm_in_multiplier");
    // Factors on what a matrix reads are applied behind it, and its bias has none.
    for (const [field, factor] of Object.entries({
      mamba_proj_bias: input,
      attention_bias: factorOf(facts, "attention_in_multiplier"),
      mlp_bias: factorsOf(facts, "mlp_multipliers", 2)[0],
    }))
      if (factor !== 1 && facts.flag(field, false))
        throw facts.refusal(field, "false where inputs have a factor", true);
    const factors = factorsOf(facts, "ssm_multipliers", 5).map((each) => each * input);
    const fields = { ...HYBRID_FIELDS, norm: "mamba_rms_norm", normFirst: "mamba_norm_before_gate" };
    const absent = { heads: 128, headDim: 64, state: 256, groups: 1 };
    return readMamba(facts, "", fields, absent, factors as unknown as MambaFactors);
  },
};

const both: ParallelRules = {
  kind: "parallel",
  parts: [
    {
      ...{ rules: attention, at: "self_attn." },
      scale: (facts) => factorOf(facts, "attention_out_multiplier") * factorOf(facts, "attention_in_multiplier"),
    },
    { rules: scan, at: "mamba.", scale: (facts) => factorOf(facts, "ssm_out_multiplier") },
  ],
};

export const decoders = (): Family[] => [
  {
    attention,
    mixer: () => both,
    // All factors are in the weights of GGUF files.
    gguf: { recurrent: (keys, has) => readGgufMamba(keys, has("ssm_norm.weight")), beside: true },
    // The factor of gates is within and before the activation.
    gateScale: (facts) => factorsOf(facts, "mlp_multipliers", 2)[0] as number,
    mlpScale: (facts) => factorsOf(facts, "mlp_multipliers", 2).reduce((product, each) => product * each, 1),
    embed: (facts) => ({ scale: factorOf(facts, "embedding_multiplier") }),
    head: (facts) => ({ scale: factorOf(facts, "lm_head_multiplier") }),
    names: {
      norms: { attentionPre: "input_layernorm", mlpPre: "pre_ff_layernorm" },
      ...{ mlpAt: "feed_forward", finalNorm: "final_layernorm" },
    },
    ignored: [
      ...["mamba_chunk_size", "mamba_d_ssm", "mamba_expand", "num_logits_to_keep", "mamba_use_mlp"],
      ...["attention_bias", "mamba_proj_bias", "projectors_bias", "mlp_bias"],
    ],
  },
];
