import type { Context } from "../suite.ts";
import { expectEqual } from "./expect.ts";

const ROOFLINE = { flops: 50e9, bytes: 10e9 };

/** What models cost, and a model for a budget: the same on every engine. */
export async function checkConfigure({ configure: entry, models, check }: Context): Promise<void> {
  await check("configure: a budget has the same sizes and bytes everywhere", () => {
    const found = entry.configure({ parameterBudget: 125e6, seqLen: 2048, target: "browser", roofline: ROOFLINE });
    const { dModel, numHeads, headDim, layers, config, weights, cache, memory, speed } = found;
    expectEqual("sizes", [dModel, numHeads, headDim, layers].join(), "768,12,64,14");
    const plan = models.planModel(config, { weights, format: cache, maxSeqLen: 2048 });
    expectEqual("memory", memory.total, plan.total);
    expectEqual("decode", speed?.decodeTokensPerSecond.toFixed(6), "58.533281");
  });
  await check("configure: a hybrid's parameters, caches and states", () => {
    const { parameters, tokenBytes, stateBytes } = entry.describeModel({
      ...{ model_type: "falcon_h1", hidden_size: 1024, intermediate_size: 2048, num_hidden_layers: 36 },
      ...{ num_attention_heads: 8, num_key_value_heads: 2, head_dim: 64, vocab_size: 32784, mamba_d_ssm: 1536 },
      ...{ mamba_n_heads: 24, mamba_d_head: 64, mamba_d_state: 128, mamba_n_groups: 1, mamba_d_conv: 4 },
    });
    expectEqual("costs", [parameters, tokenBytes, stateBytes].join(), "521411104,18432,29085696");
  });
}
