// A pass writes into its scratch and its caches, and nowhere else; and about how many operations it takes.

import { expect, test } from "vitest";
import { forward, passFlops } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { TINY, tinyFolder } from "../../../support/tiny-models.ts";

/** A decoder whose embeddings are narrower than its layers. */
const NARROW = {
  ...{ model_type: "opt", hidden_size: 40, word_embed_proj_dim: 24, ffn_dim: 52, num_hidden_layers: 2 },
  ...{ num_attention_heads: 4, vocab_size: 67, max_position_embeddings: 64, do_layer_norm_before: false },
};
const GUARD = 2 ** 20;

test.each(Object.entries({ ...TINY, opt: NARROW }))(
  "%s: memory below the scratch stays as it was",
  async (_, config) => {
    using kernels = await kernelsOf("simd");
    using model = await loadModel(kernels, tinyFolder(config));
    using session = createSession(model, { maxSeqLen: 32 });
    const guard = kernels.memory.allocate("guard", GUARD);
    kernels.memory.u8(guard, GUARD).fill(0x5a);
    forward(session, [1, 2, 3, 4, 5], { rows: "all" });
    forward(session, [6]);
    expect(kernels.memory.u8(guard, GUARD).findIndex((byte) => byte !== 0x5a)).toBe(-1);
  },
);

test("a pass takes the operations of each of its tokens, and those of the head for each output, and without any none", async () => {
  using kernels = await kernelsOf("simd");
  using model = await loadModel(kernels, tinyFolder(TINY.llama));
  const flops = (...calls: readonly (readonly [tokens: number, outputs: number])[]) =>
    passFlops(
      model,
      calls.map(([length, outputs]) => ({ ids: { length }, outputs })),
    );
  const [token, output] = [flops([1, 0]), flops([0, 1])];
  // In whole panels: 67 logits are 72, and 52 factors 56.
  const layer = 2 * 40 * (48 + 24 + 24 + 48 + 56 + 56 + 52);
  expect([token, output, flops()]).toEqual([2 * layer, 2 * 72 * 40, 0]);
  expect(flops([5, 2], [3, 0])).toBe(8 * token + 2 * output);
});
