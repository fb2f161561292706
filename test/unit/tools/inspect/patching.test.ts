import { describe, expect, test } from "vitest";
import { loadKernels, type Tensor } from "../../../../src/entries/index.ts";
import { type Edit, forwardWith, patchPaths, patchSites, type Site, sitesOf } from "../../../../src/entries/inspect.ts";
import { latent } from "../../../../src/entries/latent.ts";
import { createSession, loadModel, type Model, models } from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";
import { TINY, type TinyName, tinyFolder } from "../../../support/tiny-models.ts";

const kernels = await loadKernels({ models, quantized, latent });
const ids = [5, 60, 2, 33, 33, 7, 41];
const from = [5, 60, 17, 33, 30, 7, 41];
const texts = { ids, from, answers: [9, 20] };
const load = (name: TinyName) => loadModel(kernels, tinyFolder(TINY[name]));

function run(model: Model, tokens: number[], edits: Edit[] = [], capture: Site[] = []) {
  using session = createSession(model);
  const { logits, captured } = forwardWith(session, tokens, { edits, capture });
  return { score: logits[9]! - logits[20]!, captured };
}

/** a + b - c. */
const shifted = (a: Tensor, b: Tensor, c: Tensor): Tensor => ({
  data: a.data.map((value, i) => value + (b.data[i]! - c.data[i]!)),
  shape: a.shape,
});

describe.each(["llama", "gemma2", "phi", "gpt_oss", "deepseek_v3"] as const)("%s", async (name) => {
  const model = await load(name);
  const last: Site = { at: "residPost", layer: 1 };

  test("a text patched into itself changes no bit, at any site", () => {
    const { score } = run(model, ids);
    for (const at of ["embed", "residPre", "attnIn", "z", "attnOut", "mlpIn", "mlpOut", "residPost"] as const) {
      const { clean, other, patched } = patchSites(model, { ...texts, from: ids, sites: at });
      expect([clean, other, ...patched].every((each) => each === score)).toBe(true);
    }
    const { patched } = patchPaths(model, { ...texts, from: ids, senders: "z", receivers: [last] });
    expect(patched.every((each) => each === score)).toBe(true);
  });

  test("all that the first layer reads, or that the last one gives, is the whole difference", () => {
    const { clean, other, patched } = patchSites(model, { ...texts, sites: [{ at: "embed" }, last] });
    expect([clean, other]).toEqual([run(model, ids).score, run(model, from).score]);
    expect(clean).not.toBe(other);
    expect(patched).toEqual([other, other]);
  });

  test("a path from a token's row to the logits is what it adds to the last residual", () => {
    const [embed, sum] = run(model, ids, [], [{ at: "embed" }, last]).captured as [Tensor, Tensor];
    const [other] = run(model, from, [], [{ at: "embed" }]).captured as [Tensor];
    // The answers are behind the last token, whose embedding is the same in both texts: so it is that of another token here.
    const apart = { ...texts, from: [...from.slice(0, -1), 11] };
    const [changed] = run(model, apart.from, [], [{ at: "embed" }]).captured as [Tensor];
    const scoreOf = (rows: Tensor) => run(model, ids, [{ ...last, set: shifted(sum, rows, embed) }]).score;
    const paths = (request: typeof texts) =>
      patchPaths(model, { ...request, senders: "embed", receivers: [last] }).patched[0]!;
    expect(paths(texts)).toBeCloseTo(scoreOf(other), 5);
    expect(paths(apart)).toBeCloseTo(scoreOf(changed), 5);
    expect(Math.abs(paths(apart) - paths(texts))).toBeGreaterThan(1e-3);
  });
});

describe("llama", async () => {
  const model = await load("llama");
  const sender: Site = { at: "z", layer: 0, head: 1 };

  test.each<Site>([
    { at: "q", layer: 1, head: 2 },
    { at: "k", layer: 1, head: 0 },
    { at: "attnIn", layer: 1 },
    { at: "mlpIn", layer: 1 },
    { at: "mlpIn", layer: 0 },
  ])(
    "a path from a head to $at of layer $layer is what the head adds to the residual there, and nothing else",
    (to) => {
      const [z] = run(model, from, [], [sender]).captured as [Tensor];
      const pre: Site = { at: to.at === "mlpIn" ? "residMid" : "residPre", layer: to.layer };
      const branch: Site = { at: "attnOut", layer: 0 };
      const [residual, clean] = run(model, ids, [], [pre, branch]).captured as [Tensor, Tensor];
      const [patched] = run(model, ids, [{ ...sender, set: z }], [branch]).captured as [Tensor];
      const [read] = run(model, ids, [{ ...pre, set: shifted(residual, patched, clean) }], [to]).captured as [Tensor];
      const expected = run(model, ids, [{ ...to, set: read }]).score;
      const result = patchPaths(model, { ...texts, senders: [sender], receivers: [to] });
      expect(result.patched[0]).toBeCloseTo(expected, 5);
      expect(Math.abs(result.patched[0]! - result.clean)).toBeGreaterThan(1e-4);
    },
  );

  test("paths through MLPs lead through them, and only then", () => {
    const to: Site = { at: "attnIn", layer: 1 };
    const [z] = run(model, from, [], [sender]).captured as [Tensor];
    const [read] = run(model, ids, [{ ...sender, set: z }], [to]).captured as [Tensor];
    const expected = run(model, ids, [{ ...to, set: read }]).score;
    const request = { ...texts, senders: [sender], receivers: [to] };
    expect(patchPaths(model, { ...request, throughMlps: true }).patched).toEqual([expected]);
    expect(patchPaths(model, request).patched).not.toEqual([expected]);
  });

  test("a name stands for each head of each layer, or for those before a receiver", () => {
    const { patches, patched } = patchSites(model, { ...texts, sites: "z" });
    const heads = [0, 1].flatMap((layer) => [0, 1, 2, 3].map((head) => ({ at: "z", layer, head })));
    expect(patches).toEqual(heads);
    expect(sitesOf(model, "k")).toHaveLength(4);
    const [z] = run(model, from, [], [{ at: "z", layer: 1, head: 3 }]).captured as [Tensor];
    expect(patched[7]).toBe(run(model, ids, [{ at: "z", layer: 1, head: 3, set: z }]).score);
    const paths = patchPaths(model, { ...texts, senders: "z", receivers: [{ at: "q", layer: 1, head: 0 }] });
    expect(paths.patches).toEqual(heads.slice(0, 4));
    const listed = [0, 1, 2, 3].map((head): Site => ({ at: "q", layer: 1, head }));
    const named = patchPaths(model, { ...texts, senders: [sender], receivers: "q" });
    expect(named).toEqual(patchPaths(model, { ...texts, senders: [sender], receivers: listed }));
  });

  test("tokens are patched together or one by one", () => {
    const sites: Site[] = [{ at: "residPre", layer: 1 }];
    const both = patchSites(model, { ...texts, sites, tokens: [2, 4] });
    expect(both.patches).toEqual([{ at: "residPre", layer: 1, tokens: [2, 4] }]);
    const each = patchSites(model, { ...texts, sites, eachToken: true });
    expect(each.patches.map(({ tokens }) => tokens)).toEqual(ids.map((_, token) => [token]));
    // The texts have their first two tokens in common.
    expect(each.patched.slice(0, 2)).toEqual([each.clean, each.clean]);
    expect(each.patched[2]).not.toBe(each.clean);
    expect(both.patched[0]).not.toBe(each.patched[2]);
  });

  test.each<[string, object, string]>([
    ["texts of other lengths", { from: [1] }, "patchSites: request.from expected 7 tokens, as many as ids, got 1"],
    ["no text", { ids: [], from: [] }, "patchSites: request.ids expected 1 or more tokens, got none"],
    ["one answer", { answers: [1] }, "patchSites: request.answers expected 2 tokens, got 1"],
    ["an answer that is no token", { answers: [1, 67] }, "request.answers[1] expected an integer from 0 to 66, got 67"],
    ["no sites", { sites: [] }, "patchSites: request.sites expected 1 or more sites, got none"],
    ["a site too many", { sites: [{ at: "z", layer: 2 }] }, "request.sites[0].layer expected an integer from 0 to 1"],
    ["an unknown name", { sites: "mlp" }, 'patchSites: request.sites expected "embed" or'],
    ["a token too many", { tokens: [7] }, "request.tokens[0] expected an integer from 0 to 6, got 7"],
    ["no tokens", { tokens: [] }, "request.tokens expected 1 to 7 tokens, each once, got none"],
    ["a misspelt field", { site: "z" }, "site"],
  ])("patchSites refuses %s", (_, request, text) => {
    expect(() => patchSites(model, { ...texts, sites: "z", ...request })).toThrow(text);
  });

  test.each<[string, object, string]>([
    [
      "a sender behind all receivers",
      { senders: [sender, { at: "z", layer: 1 }] },
      "patchPaths: request.senders[1] expected a site before a receiver, got z of layer 1",
    ],
    [
      "a receiver before all senders",
      {
        receivers: [
          { at: "q", layer: 1 },
          { at: "v", layer: 0 },
        ],
      },
      "patchPaths: request.receivers[1] expected a site behind a sender, got v of layer 0",
    ],
    ["a sender that is none", { senders: [{ at: "q", layer: 0 }] }, 'request.senders[0].at expected "embed" or'],
    ["a receiver that is none", { receivers: [{ at: "z", layer: 1 }] }, 'request.receivers[0].at expected "residPre"'],
    ["no receiver behind any sender", { senders: "z", receivers: [{ at: "q", layer: 0 }] }, "a site before a receiver"],
  ])("patchPaths refuses %s", (_, request, text) => {
    const receivers: Site[] = [{ at: "q", layer: 1 }];
    expect(() => patchPaths(model, { ...texts, senders: [sender], receivers, ...request })).toThrow(text);
  });
});

test("MLPs beside attention do not read it, and are no receivers of it", async () => {
  const model = await load("phi");
  const receivers: Site[] = [{ at: "mlpIn", layer: 0 }];
  expect(() => patchPaths(model, { ...texts, senders: "attnOut", receivers })).toThrow(
    "request.senders[0] expected a site before a receiver, got attnOut of layer 0",
  );
  const { clean, patched } = patchPaths(model, { ...texts, senders: "residPre", receivers });
  expect(patched).toHaveLength(1);
  expect(patched[0]).not.toBe(clean);
});
