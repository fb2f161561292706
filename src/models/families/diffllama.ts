// DiffLlama: differential attention, in which a head's outputs are those of one softmax less a share of those of another.

import { exp } from "../../base/util/math.ts";
import type { AttentionRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = {
  types: "diffllama",
  // Both heads of a pair attend values as wide as two keys.
  more: (_file, { headDim }) => ({ valueDim: 2 * headDim }),
};

export const decoders = (): Family[] => [
  {
    attention,
    norm: { eps: 1e-5 },
    heads: (facts, layer) => {
      const groups = facts.count("num_key_value_heads");
      if (groups % 2 !== 0) throw facts.refusal("num_key_value_heads", "an even number", groups);
      return { pairs: { first: 0.8 - 0.6 * exp(-0.3 * layer), eps: facts.number("rms_norm_eps") ?? 1e-5 } };
    },
    ignored: ["lambda_std_dev"],
  },
];
