// Random changes of whole models in GGUF.

import { expect, test } from "vitest";
import { forward } from "../../src/models/decoder/forward.ts";
import { createSession } from "../../src/models/decoder/session.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { gguf } from "../../src/models/spec/read-gguf.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import {
  bool,
  f32,
  f64,
  i32,
  list,
  type Typed,
  text,
  u32,
  u64,
  type Written,
  writeGguf,
} from "../support/gguf-writer.ts";
import { kernelsOf } from "../support/layers.ts";
import { calls } from "../support/sampled.ts";
import { ggufModel } from "../support/tiny-gguf.ts";
import { HYBRIDS, TINY, tinyTensors } from "../support/tiny-models.ts";

const RMS = { rms_norm_eps: 2 ** -14 };
const LLAMA = { ...TINY.llama, ...RMS };
const CONFIGS = [
  LLAMA,
  { ...LLAMA, model_type: "mixtral", num_local_experts: 5, num_experts_per_tok: 2 },
  { ...TINY.gpt2, layer_norm_epsilon: 2 ** -14 },
  { ...TINY.gpt_oss, ...RMS },
  { ...TINY.deepseek_v3, ...RMS },
  { ...TINY.gemma2, ...RMS },
  ...[HYBRIDS.granitemoehybrid, HYBRIDS.qwen3_5_text, HYBRIDS.qwen3_next].map((config) => ({ ...config, ...RMS })),
  { ...HYBRIDS.nemotron_h, layer_norm_epsilon: 2 ** -14 },
  { ...HYBRIDS.lfm2, norm_eps: 2 ** -14, conv_bias: false },
];

const VALUES: readonly Typed[] = [
  ...[0, 1, 2, 3, 7, 2 ** 31 - 1, 2 ** 32 - 1].map(u32),
  ...[Number.NaN, 0, -1, 1e-30, 1e30, Number.POSITIVE_INFINITY].map(f32),
  ...[i32(-1), f64(0.5), u64(2n ** 60n), u64(4n), bool(true), bool(false), text(""), text("yarn"), text("linear")],
  ...[list(4, []), list(4, [1]), list(4, [1, 2, 3]), list(8, ["a"]), list(7, [true, false]), list(10, [4n, 4n])],
  list(6, [Number.NaN, 1]),
];

/** Keys that a file may have besides its own. */
const OTHERS = [
  ...["key_length", "value_length", "scale", "sliding_window", "sliding_window_pattern", "causal", "max_alibi_bias"],
  ...["kv_lora_rank", "q_lora_rank"],
].map((key) => `attention.${key}`);
const MORE = [
  ...["scaling.type", "scaling.factor", "scaling.original_context_length", "dimension_count", "freq_base"].map(
    (key) => `rope.${key}`,
  ),
  ...["count", "used_count", "group_count", "gating_func", "weights_scale", "shared_count", "feed_forward_length"].map(
    (key) => `expert_${key}`,
  ),
  ...["conv_kernel", "state_size", "group_count", "inner_size", "time_step_rank"].map((key) => `ssm.${key}`),
  ...["logit_scale", "final_logit_softcapping", "attn_logit_softcapping", "residual_scale", "embedding_scale"],
];

test("whatever is changed in 900 files, they are refused with BAD_FILE and leave nothing allocated, or run", async () => {
  const kernels = await kernelsOf("relaxed");
  const random = createRandom(16);
  const pick = <T>(all: readonly T[]): T => all[random.int(0, all.length - 1)] as T;
  const models = CONFIGS.map((config) => ggufModel(config, tinyTensors(config)));
  let [refused, ran] = [0, 0];
  const files = calls(900, 300);
  for (let i = 0; i < files; i++) {
    const { metadata: keys, tensors: all } = pick(models);
    const metadata = { ...keys };
    const tensors = all.map((tensor): { -readonly [K in keyof Written]: Written[K] } => ({ ...tensor }));
    const name = String(keys["general.architecture"]?.value);
    for (let change = 0; change <= i % 3; change++) {
      const tensor = pick(tensors);
      const kind = pick(["value", "value", "value", "key", "drop", "turn", "flatten", "swap", "type"]);
      const known = [...Object.keys(metadata), ...[...OTHERS, ...MORE].map((key) => `${name}.${key}`)];
      if (kind === "value") metadata[pick(known)] = pick(VALUES);
      else if (kind === "key") delete metadata[pick(Object.keys(metadata))];
      else if (kind === "drop") tensors.splice(tensors.indexOf(tensor), 1);
      else if (kind === "turn") tensor.shape = [...tensor.shape].reverse();
      else if (kind === "flatten") tensor.shape = [tensor.bytes.length / 4];
      else if (kind === "type") tensor.type = pick([1, 8, 24, 26, 30]);
      else {
        const other = pick(tensors);
        [tensor.name, other.name] = [other.name, tensor.name];
      }
    }
    const before = kernels.usedBytes;
    try {
      using model = await loadModel(kernels, writeGguf({ metadata, tensors }), { maxSeqLen: 32, gguf });
      using session = createSession(model);
      expect(forward(session, [1, 2, 3]).logits.length).toBe(model.vocabSize);
      ran++;
    } catch (error) {
      expect(error).toMatchObject({ code: "BAD_FILE" });
      expect(kernels.usedBytes).toBe(before);
      refused++;
    }
  }
  // Both happen, or the changes are none or too large.
  expect([refused > files / 9, ran > files / 36]).toEqual([true, true]);
  kernels.release();
});
