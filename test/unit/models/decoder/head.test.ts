// What is done to logits behind the head.

import { expect, test } from "vitest";
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
