import type { Kernels } from "../../../src/entries/core.ts";
import { FloatDigest } from "../../../src/tools/diagnostics/self-test.ts";
import { TINY, type TinyName, tinyFolder } from "../../support/tiny-models.ts";
import type { Context } from "../suite.ts";
import { expectEqual, expectSameBits, expectTrue } from "./expect.ts";

const PROMPT = Array.from({ length: 20 }, (_, i) => (i * 29 + 5) % 67);
const NAMES = Object.keys(TINY) as TinyName[];

/** Whole decoders of random weights: the same bits in pieces, plans, tokens. Returns a digest of simd's logits and tokens. */
export async function checkDecoders({ kernels, exact, models, text, check }: Context): Promise<string> {
  const { createSession, forward, generate, loadModel, planModel } = models;
  for (const of of kernels.build === "simd" ? [exact] : [kernels, exact])
    await check(`decoders: the ${of.build} build reaches the published digest, greedy tokens included`, async () => {
      const { ok, same, digest, expected } = await models.selfTestModels(of);
      expectEqual("digest", digest, expected);
      expectTrue("the same bits in each way, and ok", same && ok);
    });
  const digest = new FloatDigest();
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
  await check("text: pieces of whole characters, a stop string, and the error without a library", async () => {
    const model = await open(kernels, "llama");
    // Two tokens make a character, so that every piece has one.
    const pairs: Parameters<typeof text.generateText>[1] = {
      encode: (given) => Array.from(given, (letter) => letter.charCodeAt(0) % 67),
      decode: (ids) => "😀".repeat(ids.length >> 1) + (ids.length % 2 === 1 ? "\uFFFD" : ""),
    };
    const all = text.generateText(model, pairs, [1, 2], { maxTokens: 7 });
    const pieces: string[] = [];
    let next = await all.next();
    for (; !next.done; next = await all.next()) pieces.push(next.value);
    expectEqual("pieces", pieces.join(","), "😀,😀,😀,\uFFFD");
    expectEqual("reason", next.value.reason, "length");
    const stopped = await text.generateText(model, pairs, [1, 2], { maxTokens: 7, stop: "😀" }).next();
    expectEqual("a stop string", Object(stopped.value).stop, "😀");
    const failure = await text.loadTokenizer(() => undefined, { library: {} as never }).catch(({ message }) => message);
    expectTrue("the library is named", String(failure).includes("@huggingface/tokenizers"));
    model.release();
  });
  return digest.toString();
}
