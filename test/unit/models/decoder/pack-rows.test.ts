// Matrices of 16-bit floats, which a kernel widens before they are packed in another format.

import { expect, test } from "vitest";
import { type StoredTensor, toFloats } from "../../../../src/base/tensor/dtypes.ts";
import { writeSafetensors } from "../../../../src/files/safetensors/safetensors.ts";
import { WEIGHT_FORMATS } from "../../../../src/layers/linear/formats.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { narrowBf16, narrowF16 } from "../../../../src/reference/numbers.ts";
import { kernelsOf, threadedKernels } from "../../../support/layers.ts";
import { TINY, type TinyName, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

const NARROW = { F16: narrowF16, BF16: narrowBf16 };

/** A folder whose tensors are of 16 bits, and one with the same values in float32. */
function foldersOf(name: TinyName, dtype: keyof typeof NARROW) {
  // Large enough that packing takes several parts, the last one of half a panel.
  const config = { ...TINY[name], vocab_size: 1652 };
  const tensors = tinyTensors(config);
  const halves = Array.from(tensors, ([key, { data, shape }]): StoredTensor => {
    const bytes = new Uint8Array(Uint16Array.from(data, NARROW[dtype]).buffer);
    return { name: key, dtype, shape, bytes };
  });
  const floats = halves.map((tensor) => [tensor.name, { data: toFloats(tensor), shape: tensor.shape }] as const);
  const rest = tinyFolder(config, new Map(floats));
  const file = writeSafetensors(new Map(halves.map((tensor) => [tensor.name, tensor])));
  return { floats: rest, halves: (asked: string) => (asked === "model.safetensors" ? file : rest(asked)) };
}

test.each(["F16", "BF16"] as const)(
  "%s are packed to the bits of the same floats, in every format",
  async (dtype) => {
    const trials = [
      [await kernelsOf("relaxed"), ["llama", "qwen2_moe", "gpt_oss", "gpt2"]],
      [await threadedKernels("relaxed", 2), ["llama"]],
    ] as const;
    for (const [kernels, names] of trials) {
      for (const name of names) {
        const folders = foldersOf(name, dtype);
        const run = async (source: Parameters<typeof loadModel>[1], weights: (typeof WEIGHT_FORMATS)[number]) => {
          using model = await loadModel(kernels, source, { weights });
          using session = createSession(model, { maxSeqLen: 9 });
          return forward(session, [5, 6, 1651]).logits;
        };
        for (const weights of WEIGHT_FORMATS)
          expect(await run(folders.halves, weights), `${name} ${weights}`).toEqual(await run(folders.floats, weights));
      }
      kernels.release();
    }
  },
  60_000,
);
