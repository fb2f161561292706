import type { Kernels } from "../../../src/entries/core.ts";
import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import { FloatDigest } from "../../../src/tools/diagnostics/self-test.ts";
import { encoderFolder, TINY_ENCODERS, type TinyEncoder } from "../../support/tiny-encoders.ts";
import { seq2seqFolder, sourceFor, TINY_SEQ2SEQ, type TinySeq2Seq } from "../../support/tiny-seq2seq.ts";
import type { Context } from "../suite.ts";
import { expectEqual, expectSameBits, expectThrown, expectTrue } from "./expect.ts";

const text = (length: number) => Array.from({ length }, (_, i) => (i * 29 + length) % 67);
/** Texts of a token, of some, and of more than a page of keys and a chunk of rows. */
const BATCH = [1, 7, 150, 3, 300, 24].map(text);
/** The digest of what the simd build computes here. */
const PUBLISHED = "7f872fd444a9f9cd";
const ENCODERS = Object.keys(TINY_ENCODERS) as TinyEncoder[];
const HALVES = Object.keys(TINY_SEQ2SEQ) as TinySeq2Seq[];

/**
 * Whole encoders, and models with two halves, of random weights: each text has its bits alone and in a batch. Returns a digest of
 * simd's vectors, states, logits and features of a sound.
 */
export async function checkEncoders({ kernels, exact, models, check }: Context): Promise<string> {
  const { embed, embedAsync, encode, loadEncoder, loadSeq2Seq, logMel, maskedLogits, readSource } = models;
  const digest = new FloatDigest();
  const open = (of: Kernels, name: TinyEncoder) => loadEncoder(of, encoderFolder(name), { weights: "f32" });
  for (const name of ENCODERS) {
    await check(`encoders: ${name} gives each text of a ragged batch the bits that it has alone`, async () => {
      const model = await open(kernels, name);
      const vectors = embed(model, BATCH, { normalize: true });
      const sliced = await embedAsync(model, BATCH, { normalize: true, sliceMs: 1e-3 });
      for (const [i, ids] of BATCH.entries()) {
        const [alone] = embed(model, [ids], { normalize: true });
        expectSameBits(`text ${i}`, vectors[i] as Float32Array, alone as Float32Array);
        expectSameBits(`text ${i} in slices`, sliced[i] as Float32Array, alone as Float32Array);
      }
      model.release();
    });
    await check(`encoders: ${name} computes vectors, states and logits in the simd build`, async () => {
      const model = await open(exact, name);
      for (const pooling of ["mean", "cls", "last"] as const)
        for (const vector of embed(model, BATCH, { pooling })) digest.add(vector);
      for (const states of encode(model, BATCH)) digest.add(states);
      if (name !== "nomic_bert")
        for (const { logits } of maskedLogits(model, BATCH.slice(0, 2), { top: 5 })) digest.add(logits);
      model.release();
    });
  }
  for (const name of HALVES)
    await check(`encoders: ${name} reads a source and writes tokens, at once and one by one`, async () => {
      const first = await loadSeq2Seq(kernels, seq2seqFolder(name), { weights: "f32" });
      const [whole, pieces] = [
        await readSource(first, sourceFor(name, 40)),
        await readSource(first, sourceFor(name, 40)),
      ];
      const { logits } = models.forward(whole, [0, 5, 9]);
      for (const id of [0, 5]) models.forward(pieces, [id]);
      expectSameBits("logits", models.forward(pieces, [9]).logits, logits);
      for (const each of [whole, pieces, first]) each.release();

      const model = await loadSeq2Seq(exact, seq2seqFolder(name), { weights: "f32" });
      const session = await readSource(model, sourceFor(name, 40));
      digest.add(models.forward(session, [0]).logits);
      const tokens: number[] = [];
      for await (const { id } of models.generate(session, [5], { maxTokens: 12 })) tokens.push(id);
      expectEqual("tokens", tokens.length, 12);
      digest.add(Float32Array.from(tokens));
      for (const each of [session, model]) each.release();
    });
  await check("encoders: the features of a sound", () => {
    const features = logMel(createRandom(5).floats(8000), { sampleRate: 16_000, seconds: 1 });
    expectEqual("shape", features.shape.join(" "), "80 100");
    digest.add(features.data);
  });
  await check("encoders: a model that does not fit is refused before it is read", async () => {
    const options = { maxBytes: 1000, onProgress: () => expectTrue("nothing is read", false) };
    await expectThrown(() => loadEncoder(kernels, encoderFolder("bert"), options), {
      kind: "OUT_OF_MEMORY",
      text: /^loadEncoder: options\.maxBytes expected \d+ or more .*; what fits: no format$/,
    });
  });
  const found = digest.toString();
  await check("encoders: the simd build has the bits of all engines", () => expectEqual("digest", found, PUBLISHED));
  return found;
}
