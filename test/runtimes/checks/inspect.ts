import type { Edit, Site } from "../../../src/entries/inspect.ts";
import { FloatDigest } from "../../../src/tools/diagnostics/self-test.ts";
import { TINY, type TinyName, tinyFolder } from "../../support/tiny-models.ts";
import type { Context } from "../suite.ts";
import { expectEqual, expectSameBits, expectTrue } from "./expect.ts";

const PROMPT = Array.from({ length: 20 }, (_, i) => (i * 29 + 5) % 67);
const NAMES: readonly TinyName[] = ["llama", "gpt2", "gemma2"];
const CAPTURE: readonly Site[] = [
  { at: "z", layer: 0 },
  { at: "residPost", layer: 1 },
];
const EDITS: readonly Edit[] = [{ at: "z", layer: 0, head: 1, set: 0 }];
/** The digest of what the simd build computes here. */
const PUBLISHED = "50a69023e0d22bc7";

/** The record of a run of the simd build on `llama`, as a link: of ids, a head without effect, and the pattern of a layer. */
const LINK =
  "iQHYQFggXLh-hAMsu1InQJMxCEt1aYy3KkCl4wBbfuQYT-N6K-BjZjMyZHNpbWT0GghayO9nZm9yd2FyZKNjaWRzlAUYIhg_GBkYNhAYLQcYJBhBGBsY" +
  "OBIYLwkYJgAYHRg6FGVlZGl0c4GkYmF0YXpjc2V0AGRoZWFkAWVsYXllcgBocGF0dGVybnOBAdhAWCAgeIP-Ejjg2Yqyjs0PNC48MsJLuPpA4ma-WOo0HScpirn6qCA";

/** Interventions, attention patterns and records in decoders of random weights. Returns a digest of what simd's passes give. */
export async function checkInspect({ kernels, exact, models, inspect, check }: Context): Promise<string> {
  const { createSession, forward, loadModel } = models;
  const { decodeRecord, detectionPattern, encodeRecord, forwardWith, headScores, replay } = inspect;
  const digest = new FloatDigest();
  for (const name of NAMES)
    await check(`inspect: ${name} has the bits of forward until it is edited`, async () => {
      const model = await loadModel(kernels, tinyFolder(TINY[name]));
      const [plain, seen, edited] = [createSession(model), createSession(model), createSession(model)];
      const { logits } = forward(plain, PROMPT);
      expectSameBits("logits", forwardWith(seen, PROMPT, { capture: CAPTURE, patterns: [0] }).logits, logits);
      const after = forwardWith(edited, PROMPT, { edits: EDITS }).logits;
      expectTrue(
        "an edit changes logits",
        after.some((value, i) => value !== logits[i]),
      );
      for (const one of [plain, seen, edited, model]) one.release();
    });
  for (const name of NAMES)
    await check(`inspect: ${name} gives rows, patterns and scores of heads in the simd build`, async () => {
      const model = await loadModel(exact, tinyFolder(TINY[name]));
      const session = createSession(model);
      const { logits, captured, patterns } = forwardWith(session, PROMPT, {
        edits: EDITS,
        capture: CAPTURE,
        patterns: [1],
      });
      for (const { data } of [...captured, ...patterns]) digest.add(data);
      digest.add(logits);
      for (const pattern of patterns)
        digest.add(Float32Array.from(headScores(pattern, detectionPattern("previous", PROMPT))));
      session.release();
      model.release();
    });
  await check("inspect: a link of another runtime is repeated bit for bit, and is the same here", async () => {
    const model = await loadModel(exact, tinyFolder(TINY.llama));
    const record = decodeRecord(LINK);
    const { same, record: own } = await replay(model, record);
    expectTrue("the results have the recorded bits", same);
    const { stamp } = record.kernels;
    expectEqual("link", encodeRecord({ ...own, kernels: { ...own.kernels, stamp } }), LINK);
    model.release();
  });
  const found = digest.toString();
  await check("inspect: the simd build has the bits of all engines", () => expectEqual("digest", found, PUBLISHED));
  return found;
}
