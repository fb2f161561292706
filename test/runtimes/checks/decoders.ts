import { Digest } from "../../../src/diagnostics/digest.ts";
import type { Kernels } from "../../../src/entries/core.ts";
import { TINY, type TinyName, tinyFolder } from "../../support/tiny-models.ts";
import type { Context } from "../suite.ts";
import { expectEqual, expectSameBits, expectTrue } from "./expect.ts";

const PROMPT = Array.from({ length: 20 }, (_, i) => (i * 29 + 5) % 67);
const NAMES = Object.keys(TINY) as TinyName[];

/** Whole decoders of random weights: the same bits in pieces, plans, tokens. Returns a digest of simd's logits and tokens. */
export async function checkDecoders({ kernels, exact, models, check }: Context): Promise<string> {
  const { createSession, forward, generate, loadModel, planModel } = models;
  for (const of of kernels.build === "simd" ? [exact] : [kernels, exact])
    await check(`decoders: the ${of.build} build reaches the published digest, greedy tokens included`, async () => {
      const { ok, same, digest, expected } = await models.selfTestModels(of);
      expectEqual("digest", digest, expected);
      expectTrue("the same bits in each way, and ok", same && ok);
    });
  const digest = new Digest();
  const open = (of: Kernels, name: TinyName) => loadModel(of, tinyFolder(TINY[name]), { weights: "f32" });
  for (const name of NAMES)
    await check(`decoders: ${name} gives the same bits at once and in pieces, and its plan is exact`, async () => {
      const model = await open(kernels, name);
      const [whole, pieces] = [createSession(model, { maxSeqLen: 40 }), createSession(model, { maxSeqLen: 40 })];
      const { logits } = forward(whole, PROMPT);
      forward(pieces, PROMPT.slice(0, 7));
      expectSameBits("logits", forward(pieces, PROMPT.slice(7)).logits, logits);
      expectEqual("bytes", model.bytes, planModel(TINY[name], { weights: "f32" }).weights);
      for (const one of [whole, pieces, model]) one.release();
    });
  for (const name of NAMES)
    await check(`decoders: ${name} samples tokens in the simd build`, async () => {
      const model = await open(exact, name);
      const session = createSession(model, { maxSeqLen: 60 });
      digest.add(forward(session, PROMPT).logits);
      const tokens: number[] = [];
      const options = { maxTokens: 24, temperature: 0.9, topP: 0.95, seed: 11 };
      for await (const { id } of generate(session, [1], options)) tokens.push(id);
      expectEqual("tokens", tokens.length, 24);
      digest.add(Float32Array.from(tokens));
      session.release();
      model.release();
    });
  return digest.toString();
}
