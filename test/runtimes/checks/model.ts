import type { HeldOut } from "../../../examples/induction/accuracy.ts";
import { attentionMaps } from "../../../examples/induction/maps.ts";
import { scoreHead } from "../../../examples/induction/scores.ts";
import type { CacheFormat, Kernels, WeightFormat } from "../../../src/entries/core.ts";
import type { Session } from "../../../src/entries/models.ts";
import { FloatDigest } from "../../../src/tools/diagnostics/self-test.ts";
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

/** The shipped model: prefill, decode, predictions, heads. Returns a digest of simd's logits. */
export async function checkModel({ kernels, exact, fixtures, models, check }: Context): Promise<string> {
  const { createSession, forward, loadModel } = models;
  const text = (file: string) => fixtures.texts[`model/${file}`] as string;
  const bytes = fixtures.files["model/model.safetensors"] as Uint8Array;
  const { tokens, top, logits } = JSON.parse(text("logits.json")) as Expected;
  const { sequences } = JSON.parse(text("heldout.json")) as HeldOut;
  const json = text("config.json");
  const { vocabulary } = JSON.parse(json) as { vocabulary: string };
  const encode = (from: string) => Array.from(from, (character) => vocabulary.indexOf(character));
  const files: Readonly<Record<string, Uint8Array>> = {
    "config.json": new TextEncoder().encode(json),
    "model.safetensors": bytes,
  };
  const withSession = async <T>(of: Kernels, use: (session: Session) => T, formats: Formats = {}): Promise<T> => {
    const model = await loadModel(of, (name) => files[name], { weights: { attention: formats.weights } });
    const session = createSession(model, { maxSeqLen: 96, format: formats.cache });
    try {
      return use(session);
    } finally {
      session.release();
      model.release();
    }
  };
  /** Logits after each of the ids, by row. */
  const logitsOf = (session: Session, ids: readonly number[]): Float32Array[] => {
    const { logits } = forward(session, ids, { rows: "all" });
    const { vocabSize } = session.model;
    return ids.map((_, t) => logits.subarray(t * vocabSize, (t + 1) * vocabSize));
  };
  /** The likeliest character at every place from the second repeated one on, and how often it is the right one. */
  const predict = (session: Session, of: HeldOut["sequences"]) => {
    const guesses: number[] = [];
    let hits = 0;
    for (const { segmentLen, text } of of) {
      const tokens = encode(text);
      session.truncate(0);
      const { ids } = forward(session, tokens.slice(0, -1), { rows: "all", top: 1 });
      for (let t = segmentLen; t < tokens.length - 1; t++) {
        const guess = ids?.[t] as number;
        guesses.push(guess);
        if (guess === tokens[t + 1]) hits++;
      }
    }
    return { hits, guesses };
  };
  const digest = new FloatDigest();

  for (const of of kernels.build === "simd" ? [exact] : [kernels, exact]) {
    const { build } = of;
    await check(`model: ${build} logits are within 2e-4 of float64`, () =>
      withSession(of, (session) => {
        const got = forward(session, tokens).logits;
        expectEqual("logits", got.length, logits.length);
        expectWithin("largest error", Math.max(...logits.map((logit, i) => Math.abs(logit - got[i]!))), 0, 2e-4);
        expectEqual("first guess", got.indexOf(Math.max(...got)), top[0]?.id);
      }),
    );
    await check(`model: ${build} gives the same bits by prefill, by chunks and by decode`, () =>
      withSession(of, (session) => {
        const once = logitsOf(session, tokens);
        for (const chunk of [1, 5]) {
          session.truncate(0);
          for (let at = 0; at < tokens.length; at += chunk)
            for (const [i, row] of logitsOf(session, tokens.slice(at, at + chunk)).entries())
              expectSameBits(`chunks of ${chunk}: logits of token ${at + i}`, row, once[at + i] as Float32Array);
        }
      }),
    );
  }
  await check("model: a repeated text is continued", () =>
    withSession(kernels, (session) => {
      let next: ArrayLike<number> = encode("qz7 mfk qz7 m");
      let continued = "";
      while (continued.length < 11) {
        next = forward(session, next, { top: 1 }).ids as Int32Array;
        continued += vocabulary[next[0] as number];
      }
      expectEqual("continuation", continued, "fk qz7 mfk ");
    }),
  );
  const predicted = (formats: Formats, of: Kernels) =>
    withSession(of, (session) => predict(session, sequences.slice(0, SEQUENCES)), formats);
  await check("model: 99 % of held-out characters are predicted, the same ones by both builds", async () => {
    const [some, all] = [await predicted({}, kernels), await predicted({}, exact)];
    expectWithin("accuracy", some.hits / some.guesses.length, 0.99, 1);
    expectEqual("guesses", some.guesses.join(" "), all.guesses.join(" "));
  });
  for (const formats of [
    { weights: "q8", cache: "q8" },
    { weights: "q4", cache: "q8" },
  ] as const)
    await check(`model: ${formats.weights} weights and ${formats.cache} caches predict 98 %`, async () => {
      const { hits, guesses } = await predicted(formats, kernels);
      expectWithin("accuracy", hits / guesses.length, 0.98, 1);
    });
  await check("model: layer 0 has a previous-token head, layer 1 an induction head", () => {
    const tokens = encode(sequences[0]!.text);
    const [first, second] = attentionMaps(kernels, bytes, json, tokens).map((maps) =>
      [0, 1, 2, 3].map((h) => scoreHead(maps, h, tokens)),
    );
    expectTrue("previous > 0.6", Math.max(...first!.map((head) => head.previous)) > 0.6);
    expectTrue("induction > 0.85", Math.max(...second!.map((head) => head.induction)) > 0.85);
  });
  await withSession(exact, (session) => {
    for (const row of logitsOf(session, tokens)) digest.add(row);
  });
  return digest.toString();
}
