import { argmax, createDecoder, type Decoder } from "../../../examples/decoder/decoder.ts";
import type { HeldOut } from "../../../examples/induction/accuracy.ts";
import { scoreHead } from "../../../examples/induction/scores.ts";
import { Digest } from "../../../src/diagnostics/digest.ts";
import type { Cache, CacheFormat, Kernels, WeightFormat } from "../../../src/entries/core.ts";
import type { Context } from "../suite.ts";
import { expectEqual, expectSameBits, expectTrue, expectWithin } from "./expect.ts";

interface Expected {
  readonly tokens: readonly number[];
  readonly top: readonly { readonly id: number; readonly logit: number }[];
  readonly logits: readonly number[];
}

interface Formats {
  readonly weights?: WeightFormat;
  readonly cache?: CacheFormat;
}

/** Held-out sequences that are predicted: a few of them say enough. */
const SEQUENCES = 6;

/** The shipped model in the example's decoder: prefill, decode, predictions, heads. Returns a digest of simd's logits. */
export async function checkModel({ kernels, exact, fixtures, check }: Context): Promise<string> {
  const text = (file: string) => fixtures.texts[`model/${file}`] as string;
  const bytes = fixtures.files["model/model.safetensors"] as Uint8Array;
  const { tokens, top, logits } = JSON.parse(text("logits.json")) as Expected;
  const { sequences } = JSON.parse(text("heldout.json")) as HeldOut;
  const withDecoder = <T>(of: Kernels, use: (decoder: Decoder, caches: Cache[]) => T, formats: Formats = {}): T => {
    const decoder = createDecoder(of, bytes, text("config.json"), formats.weights);
    const caches = decoder.createCaches(96, formats.cache);
    try {
      return use(decoder, caches);
    } finally {
      for (const cache of caches) cache.release();
      decoder.release();
    }
  };
  const digest = new Digest();

  for (const of of kernels.build === "simd" ? [exact] : [kernels, exact]) {
    const { build } = of;
    await check(`model: ${build} logits are within 2e-4 of float64`, () =>
      withDecoder(of, (decoder, caches) => {
        const got = decoder.next({ tokens, caches });
        expectEqual("logits", got.length, logits.length);
        expectWithin("largest error", Math.max(...logits.map((logit, i) => Math.abs(logit - got[i]!))), 0, 2e-4);
        expectEqual("first guess", argmax(got), top[0]?.id);
      }),
    );
    await check(`model: ${build} gives the same bits by prefill, by chunks and by decode`, () =>
      withDecoder(of, (decoder, caches) => {
        const once = decoder.logits({ tokens, caches });
        for (const chunk of [1, 5]) {
          for (const cache of caches) cache.truncate(0);
          for (let at = 0; at < tokens.length; at += chunk)
            for (const [i, row] of decoder.logits({ tokens: tokens.slice(at, at + chunk), caches }).entries())
              expectSameBits(`chunks of ${chunk}: logits of token ${at + i}`, row, once[at + i] as Float32Array);
        }
      }),
    );
  }
  await check("model: a repeated text is continued", () =>
    withDecoder(kernels, (decoder, caches) => {
      let logits = decoder.next({ tokens: decoder.encode("qz7 mfk qz7 m"), caches });
      let continued = "";
      while (continued.length < 11) {
        const token = argmax(logits);
        continued += decoder.vocabulary[token];
        logits = decoder.next({ tokens: [token], caches });
      }
      expectEqual("continuation", continued, "fk qz7 mfk ");
    }),
  );
  const predicted = (formats: Formats, of: Kernels) =>
    withDecoder(of, (decoder, caches) => predict(decoder, caches, sequences.slice(0, SEQUENCES)), formats);
  await check("model: 99 % of held-out characters are predicted, the same ones by both builds", () => {
    const [some, all] = [predicted({}, kernels), predicted({}, exact)];
    expectWithin("accuracy", some.hits / some.guesses.length, 0.99, 1);
    expectEqual("guesses", some.guesses.join(" "), all.guesses.join(" "));
  });
  for (const formats of [
    { weights: "q8", cache: "q8" },
    { weights: "q4", cache: "q8" },
  ] as const)
    await check(`model: ${formats.weights} weights and ${formats.cache} caches predict 98 %`, () => {
      const { hits, guesses } = predicted(formats, kernels);
      expectWithin("accuracy", hits / guesses.length, 0.98, 1);
    });
  await check("model: layer 0 has a previous-token head, layer 1 an induction head", () =>
    withDecoder(kernels, (decoder) => {
      const tokens = Array.from(sequences[0]!.text, (character) => decoder.vocabulary.indexOf(character));
      const [first, second] = decoder.maps(tokens).map((maps) => [0, 1, 2, 3].map((h) => scoreHead(maps, h, tokens)));
      expectTrue("previous > 0.6", Math.max(...first!.map((head) => head.previous)) > 0.6);
      expectTrue("induction > 0.85", Math.max(...second!.map((head) => head.induction)) > 0.85);
    }),
  );
  withDecoder(exact, (decoder, caches) => {
    for (const row of decoder.logits({ tokens, caches })) digest.add(row);
  });
  return digest.toString();
}

/** The likeliest character at every place from the second repeated one on, and how often it is the right one. */
function predict(
  decoder: Decoder,
  caches: Cache[],
  sequences: HeldOut["sequences"],
): { hits: number; guesses: number[] } {
  const guesses: number[] = [];
  let hits = 0;
  for (const { segmentLen, text } of sequences) {
    const tokens = Array.from(text, (character) => decoder.vocabulary.indexOf(character));
    for (const cache of caches) cache.truncate(0);
    for (const [t, logits] of decoder.logits({ tokens: tokens.slice(0, -1), caches }).entries()) {
      if (t < segmentLen) continue;
      const guess = argmax(logits);
      guesses.push(guess);
      if (guess === tokens[t + 1]) hits++;
    }
  }
  return { hits, guesses };
}
