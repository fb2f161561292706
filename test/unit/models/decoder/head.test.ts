// What is before the first layer and behind the last one: projections of a narrow table, and what is done to logits.

import { expect, test } from "vitest";
import type { Tensor } from "../../../../src/base/tensor/tensor.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

test("a cap of c makes c · tanh(x / c) of a logit x within 1e-5, for a c of 1 too", async () => {
  using kernels = await kernelsOf("simd");
  const tensors = tinyTensors(TINY.gemma2);
  const logitsOf = async (cap: number | null) => {
    const config = { ...TINY.gemma2, final_logit_softcapping: cap };
    using model = await loadModel(kernels, tinyFolder(config, tensors));
    using session = createSession(model, { maxSeqLen: 8 });
    return forward(session, [1, 2, 3]).logits.slice();
  };
  const plain = await logitsOf(null);
  for (const cap of [0.5, 1, 8]) {
    const capped = await logitsOf(cap);
    const far = capped.map((x, i) => Math.abs(x - cap * Math.tanh((plain[i] as number) / cap)));
    expect(Math.max(...far), `cap ${cap}`).toBeLessThan(1e-5);
  }
  expect(Math.max(...plain)).toBeGreaterThan(1);
});

test("a table that is narrower than the layers gives what the product with its projections gives as a table, within 1e-5 of the largest logit", async () => {
  using kernels = await kernelsOf("simd");
  const wide = {
    ...{ model_type: "opt", hidden_size: 40, ffn_dim: 48, num_hidden_layers: 2, num_attention_heads: 4 },
    ...{ vocab_size: 67, max_position_embeddings: 64, do_layer_norm_before: true, tie_word_embeddings: false },
  };
  const narrow = { ...wide, word_embed_proj_dim: 24, tie_word_embeddings: true };
  const tensors = new Map([...tinyTensors(narrow)].filter(([name]) => !/project_(in|out)\.bias/.test(name)));
  const [table, into, out] = ["embed_tokens", "project_in", "project_out"].map(
    (name) => (tensors.get(`model.decoder.${name}.weight`) as Tensor).data,
  ) as [Float32Array, Float32Array, Float32Array];
  /** The table times what widens its rows, `at` the place of a weight of column c and component i of a narrow row. */
  const widened = (by: Float32Array, at: (c: number, i: number) => number): Tensor => {
    const data = Float32Array.from({ length: 67 * 40 }, (_, place) => {
      const [row, c] = [Math.floor(place / 40), place % 40];
      return table.subarray(24 * row, 24 * (row + 1)).reduce((sum, x, i) => sum + x * (by[at(c, i)] as number), 0);
    });
    return { data, shape: [67, 40] };
  };
  const product = new Map([...tensors].filter(([name]) => !name.includes("project_")));
  product.set(
    "model.decoder.embed_tokens.weight",
    widened(into, (c, i) => 24 * c + i),
  );
  product.set(
    "lm_head.weight",
    widened(out, (c, i) => 40 * i + c),
  );
  const logitsOf = async (config: object, own: ReadonlyMap<string, Tensor>) => {
    using model = await loadModel(kernels, tinyFolder(config, own));
    using session = createSession(model, { maxSeqLen: 8 });
    return forward(session, [1, 2, 2, 3], { rows: "all" }).logits;
  };
  const [got, want] = [await logitsOf(narrow, tensors), await logitsOf(wide, product)];
  const far = Math.max(...got.map((x, i) => Math.abs(x - (want[i] as number))));
  expect(far / Math.max(...want.map(Math.abs))).toBeLessThan(1e-5);
});
