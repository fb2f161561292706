// Matrices that are packed in several parts, in formats whose blocks have minimums, beside them or apart.

import { expect, test } from "vitest";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { gguf } from "../../../../src/models/spec/read-gguf.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { writeGguf } from "../../../support/gguf-writer.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { ggufModel } from "../../../support/tiny-gguf.ts";
import { tinyTensors } from "../../../support/tiny-models.ts";

const PHI3 = {
  ...{ model_type: "phi3", hidden_size: 256, intermediate_size: 256, num_hidden_layers: 1, vocab_size: 1652 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 512, rms_norm_eps: 2 ** -14 },
  tie_word_embeddings: false,
};

test.each([
  ["Q4_K", 12, 144],
  ["Q5_K", 13, 176],
  ["IQ4_XS", 23, 136],
] as const)(
  "a head of %s that is packed in several parts gives the logits of its floats within 1 %",
  async (_name, type, size) => {
    using kernels = await kernelsOf("simd");
    const random = createRandom(3);
    const model = ggufModel(PHI3, tinyTensors(PHI3));
    const tensors = model.tensors.map((tensor) => {
      if (tensor.name !== "output.weight") return tensor;
      const bytes = Uint8Array.from({ length: (tensor.bytes.length / 4 / 256) * size }, () => random.int(0, 255));
      // Scales of about 3e-4 and minimums of about 2e-3, as float16; the former alone.
      for (let at = 0; at < bytes.length; at += size)
        bytes.set([0xea, 0x0c, 0x19, 0x18].slice(0, type === 23 ? 2 : 4), at);
      return { ...tensor, type, bytes };
    });
    const logitsOf = async (weights?: "f32") => {
      using loaded = await loadModel(kernels, writeGguf({ ...model, tensors }), { gguf, weights });
      using session = createSession(loaded, { maxSeqLen: 8 });
      return forward(session, [1, 2, 3]).logits.slice();
    };
    const [got, want] = [await logitsOf(), await logitsOf("f32")];
    const most = Math.max(...want.map(Math.abs));
    expect(Math.max(...got.map((x, i) => Math.abs(x - (want[i] as number)))) / most).toBeLessThan(0.01);
    expect(got).not.toEqual(want);
  },
);
