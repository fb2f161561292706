// A pass writes into its scratch and its caches, and nowhere else.

import { expect, test } from "vitest";
import { forward } from "../../../../src/models/decoder/forward.ts";
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
