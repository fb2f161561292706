// Factors that files state: what is loaded computes finite logits, and others are refused by the name of the field.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Kernels } from "../../../../src/entries/core.ts";
import type { ModelSource } from "../../../../src/entries/models.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { gguf } from "../../../../src/models/spec/read-gguf.ts";
import { f32, writeGguf } from "../../../support/gguf-writer.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { type GgufModel, ggufModel } from "../../../support/tiny-gguf.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
});
afterAll(() => kernels.release());

/** "finite" if all logits of a short text are, else what is not, or the message. */
async function outcome(source: ModelSource): Promise<string> {
  try {
    using model = await loadModel(kernels, source, { gguf });
    using session = createSession(model, { maxSeqLen: 9 });
    const { logits } = forward(session, [5, 6, 7, 5, 9]);
    return logits.every(Number.isFinite) ? "finite" : `logits ${logits.slice(0, 4)}`;
  } catch (error) {
    return (error as Error).message;
  }
}

const EXTREMES = [1e-6, 1e6];
const BEYOND = [1e-7, 1.1e6, 1e38, 1e300];
const RULE = "expected a number from 1e-6 to 1e6, got";

const LONGROPE = {
  ...{ ...TINY.llama, model_type: "phi3", original_max_position_embeddings: 128 },
  rope_scaling: { type: "longrope", short_factor: [1, 1, 1.5, 2, 2, 2.5], long_factor: [1, 2, 3, 5, 6, 8] },
};
const YARN = { type: "yarn", factor: 4, original_max_position_embeddings: 128 };
const scaled = (config: { readonly rope_scaling?: object }, field: string, rest: object = {}) =>
  [
    field,
    (value: number) => ({ ...config, rope_scaling: { ...config.rope_scaling, ...rest, [field]: value } }),
  ] as const;
const stated = (config: object, field: string) => [field, (value: number) => ({ ...config, [field]: value })] as const;
const GRANITE = { ...TINY.llama, model_type: "granite" };
const DEEPSEEK = { ...TINY.deepseek_v3, rope_scaling: YARN };

describe("config.json", () => {
  test.each([
    ["llama", ...scaled({ ...TINY.llama, rope_scaling: YARN }, "attention_factor")],
    ["llama", ...scaled({ ...TINY.llama, rope_scaling: YARN }, "mscale", { mscale_all_dim: 1 })],
    ["llama", ...scaled({ ...TINY.llama, rope_scaling: YARN }, "mscale_all_dim", { mscale: 1 })],
    ["deepseek_v3", ...scaled(DEEPSEEK, "mscale_all_dim")],
    ["phi3", ...scaled(LONGROPE, "attention_factor")],
    ["granite", ...stated(GRANITE, "attention_multiplier")],
    ["granite", ...stated(GRANITE, "embedding_multiplier")],
    ["granite", ...stated(GRANITE, "logits_scaling")],
    ["granite", ...stated(GRANITE, "residual_multiplier")],
    ["cohere2", ...stated({ ...TINY.llama, model_type: "cohere2" }, "logit_scale")],
    ["gemma2", ...stated(TINY.gemma2, "query_pre_attn_scalar")],
    ["gemma2", ...stated(TINY.gemma2, "attn_logit_softcapping")],
    ["gemma2", ...stated(TINY.gemma2, "final_logit_softcapping")],
    ["deepseek_v3", ...stated(TINY.deepseek_v3, "routed_scaling_factor")],
  ])("%s: %s gives finite logits from 1e-6 to 1e6, and is refused beyond", async (_, field, change) => {
    for (const value of EXTREMES) expect([value, await outcome(tinyFolder(change(value)))]).toEqual([value, "finite"]);
    // The tensors are those of a model that is accepted.
    const tensors = tinyTensors(change(1));
    for (const value of BEYOND)
      expect(await outcome(tinyFolder(change(value), tensors))).toMatch(
        new RegExp(`^\\w+: ${field} ${RULE.replace(".", "\\.")} `),
      );
  });

  test("an epsilon that float32 holds gives finite logits, and another one is refused", async () => {
    const config = (eps: number) => ({ ...TINY.llama, rms_norm_eps: eps });
    for (const eps of [1e-44, 3e38]) expect(await outcome(tinyFolder(config(eps)))).toBe("finite");
    for (const eps of [1e-46, 1e39])
      expect(await outcome(tinyFolder(config(eps), tinyTensors(TINY.llama)))).toBe(
        `loadModel: rms_norm_eps expected a finite float32 number > 0, got ${eps}`,
      );
  });

  test("longrope trained on one token is refused, since the logarithm of that length divides", async () => {
    const config = { ...LONGROPE, original_max_position_embeddings: 1 };
    expect(await outcome(tinyFolder(config, tinyTensors(LONGROPE)))).toContain(
      ": original_max_position_embeddings expected an integer >= 2, whose logarithm divides, got 1",
    );
  });
});

describe("GGUF", () => {
  const NORMED = { rms_norm_eps: 2 ** -14 };
  /** Files of latent attention have no biases. */
  const modelOf = (config: object): GgufModel =>
    ggufModel(config, new Map([...tinyTensors(config)].filter(([name]) => !/(_a\w*|_b|o)_proj\w*\.bias/.test(name))));

  test.each([
    ["phi3", "rope.scaling.attn_factor", { ...LONGROPE, ...NORMED, tie_word_embeddings: false }],
    ["granite", "attention.scale", { ...GRANITE, ...NORMED }],
    ["granite", "embedding_scale", { ...GRANITE, ...NORMED }],
    ["granite", "logit_scale", { ...GRANITE, ...NORMED }],
    ["granite", "residual_scale", { ...GRANITE, ...NORMED }],
    ["gemma2", "attn_logit_softcapping", { ...TINY.gemma2, ...NORMED }],
    ["gemma2", "final_logit_softcapping", { ...TINY.gemma2, ...NORMED }],
    ["deepseek2", "rope.scaling.yarn_log_multiplier", { ...DEEPSEEK, ...NORMED }],
    ["deepseek2", "expert_weights_scale", { ...DEEPSEEK, ...NORMED }],
  ])("%s: %s gives finite logits from 1e-6 to 1e6, and is refused beyond", async (architecture, key, config) => {
    const name = `${architecture}.${key}`;
    const saidOf = (value: number) => {
      const model = modelOf(config);
      model.metadata[name] = f32(value);
      return outcome(writeGguf(model));
    };
    // Just above 1e-6 in float32.
    for (const value of [1.000001e-6, 1e6]) expect([value, await saidOf(value)]).toEqual([value, "finite"]);
    for (const value of [1e-7, 1.1e6, 1e38])
      expect(await saidOf(value)).toBe(`loadModel: key "${name}" ${RULE} ${Math.fround(value)}`);
  });
});
