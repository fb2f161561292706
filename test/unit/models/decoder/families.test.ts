// A tiny model of each family as transformers saves it, beside the logits that transformers gives: test/vectors/families.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Kernels } from "../../../../src/entries/core.ts";
import { planModel } from "../../../../src/entries/models.ts";
import { readIndex } from "../../../conformance/case.ts";
import { runFolder } from "../../../conformance/suite.ts";
import { kernelsOf } from "../../../support/layers.ts";

const folder = join(import.meta.dirname, "../../../vectors/families");

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
});
afterAll(() => kernels.release());

test.each(readIndex(folder))("$name has the outputs of transformers", async (entry) => {
  expect(await runFolder(folder, kernels, [entry])).toMatchObject([{ state: "passed", problems: [] }]);
});

test("convolutions of recurrent layers have no other activation than SiLU", () => {
  const config = JSON.parse(readFileSync(join(folder, "qwen3.5/config.json"), "utf8"));
  expect(() => planModel({ ...config, hidden_act: "gelu" })).toThrow(
    'planModel: hidden_act expected "silu", since layers are recurrent, got "gelu"',
  );
});

test("a dynamic scaling of RoPE changes nothing up to max_position_embeddings, and is refused beyond", () => {
  const config = JSON.parse(readFileSync(join(folder, "arcee/config.json"), "utf8"));
  config.rope_parameters = { rope_type: "dynamic", rope_theta: 1e4, factor: 2 };
  expect(planModel(config)).toEqual(planModel({ ...config, rope_parameters: { rope_theta: 1e4 } }));
  expect(() => planModel(config, { maxSeqLen: config.max_position_embeddings + 1 })).toThrow(
    'up to max_position_embeddings, since others are unsupported, got "dynamic"',
  );
});
