import { describe, expect, test } from "vitest";
import { loadKernels, type Tensor } from "../../../../src/entries/index.ts";
import { type Edit, forwardWith, meanRows, type Site, sitesOf } from "../../../../src/entries/inspect.ts";
import { latent } from "../../../../src/entries/latent.ts";
import { createSession, forward, loadModel, type Model, models } from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";
import { TINY, type TinyName, tinyFolder } from "../../../support/tiny-models.ts";

const kernels = await loadKernels({ models, quantized, latent });
/** More than two pages of 128 tokens, so that caches by age have pages of both formats. */
const IDS = Array.from({ length: 270 }, (_, i) => (i * 29 + (i % 7)) % 67);
const AGED = [
  { keys: "f32", values: "f32", tokens: 128 },
  { keys: "q4", values: "q4" },
] as const;

/** Edits of every kind at heads, branches and layers, for a call on tokens `begin` to `end` of the text. */
function editsOf(model: Model, other: ReadonlyMap<string, Tensor>, begin: number, end: number): Edit[] {
  const count = end - begin;
  const within = (tokens: readonly number[]) => tokens.filter((t) => t >= begin && t < end).map((t) => t - begin);
  const rowsOf = (site: Site): Tensor => {
    const { data, shape } = other.get(JSON.stringify(site)) as Tensor;
    const width = shape[1] as number;
    return { data: data.slice(begin * width, end * width), shape: [count, width] };
  };
  const mean = (site: Site) => meanRows(other.get(JSON.stringify(site)) as Tensor);
  const steer = Float32Array.from({ length: model.dModel }, (_, i) => Math.fround(0.3 - (i % 5) / 8));
  const tokens = within([2, 3, 70, 127, 128, 255, 269]);
  const all: Edit[] = [
    { at: "z", layer: 0, head: 1, set: 0 },
    { ...PATCHED[0], set: mean(PATCHED[0]) },
    { at: "mlpOut", layer: 0, scale: -0.5 },
    { ...PATCHED[1], set: rowsOf(PATCHED[1]) },
    { at: "residPre", layer: 1, add: steer, tokens },
  ];
  return all.filter((edit) => edit.tokens?.length !== 0);
}

const PATCHED = [
  { at: "z", layer: 1, head: 0 },
  { at: "attnOut", layer: 1 },
] as const satisfies Site[];

describe.each<[TinyName, object, object]>([
  ["llama", { weights: "f32" }, {}],
  ["llama", { weights: "f16" }, { format: "f16" }],
  ["llama", { weights: "bf16" }, { format: "q4" }],
  ["llama", { weights: "q8" }, { format: "q8" }],
  ["llama", { weights: "q8-row", activations: "fast" }, { format: AGED }],
  ["llama", { weights: "q4" }, { format: AGED }],
  ["gemma2", { weights: "q8" }, { format: "f16" }],
  ["gpt_oss", { weights: "q8" }, { format: "q8" }],
  ["deepseek_v3", { weights: "q8" }, { format: "f16" }],
])("%s with %o, session %o", async (name, weights, options) => {
  const model = await loadModel(kernels, tinyFolder(TINY[name]), weights);
  const sites = [...PATCHED, { at: "residPost", layer: 1 } as const];
  const capture = [{ at: "z", layer: 0, head: 1 } as const, ...sites];
  using source = createSession(model, options);
  const { captured } = forwardWith(
    source,
    IDS.map((id) => 66 - id),
    { capture: sites },
  );
  const other = new Map(sites.map((site, i) => [JSON.stringify(site), captured[i] as Tensor]));

  test("edits at once, in calls of any sizes and at each decode step give the same bits", () => {
    using whole = createSession(model, options);
    const edits = editsOf(model, other, 0, IDS.length);
    const once = forwardWith(whole, IDS, { rows: "all", edits, capture });
    using plain = createSession(model, options);
    const untouched = forward(plain, IDS, { rows: "all" }).logits;
    for (const token of [0, 64, 269])
      expect(once.logits.subarray(token * 67, (token + 1) * 67)).not.toEqual(
        untouched.subarray(token * 67, (token + 1) * 67),
      );
    expect(once.captured[0]!.data.every((value) => value === 0)).toBe(true);
    expect(once.captured[2]!.data).toEqual(other.get(JSON.stringify(PATCHED[1]))!.data);
    for (const cuts of [
      [0, 1, 60, 129, 263, 270],
      [0, 250, ...Array.from({ length: 20 }, (_, i) => 251 + i)],
    ]) {
      using pieces = createSession(model, options);
      for (const [i, end] of cuts.slice(1).entries()) {
        const begin = cuts[i] as number;
        const part = forwardWith(pieces, IDS.slice(begin, end), {
          ...{ rows: "all", edits: editsOf(model, other, begin, end), capture },
        });
        expect(part.logits).toEqual(once.logits.subarray(begin * 67, end * 67));
        for (const [c, { data }] of part.captured.entries()) {
          const width = once.captured[c]!.shape[1] as number;
          expect(data).toEqual(once.captured[c]!.data.subarray(begin * width, end * width));
        }
      }
    }
  });

  test("an edited decode step follows plain calls, changes its own token, and leaves earlier ones", () => {
    using plain = createSession(model, options);
    const before = forward(plain, IDS.slice(0, -1)).logits;
    using edited = createSession(model, options);
    expect(forward(edited, IDS.slice(0, -1)).logits).toEqual(before);
    const clean = forward(plain, IDS.slice(-1)).logits;
    for (const site of [...sitesOf(model, "z"), ...sitesOf(model, "mlpOut"), ...sitesOf(model, "attnIn")]) {
      expect(forwardWith(edited, IDS.slice(-1), { edits: [{ ...site, set: 0 }] }).logits).not.toEqual(clean);
      edited.truncate(IDS.length - 1);
    }
    expect(forwardWith(edited, IDS.slice(-1)).logits).toEqual(clean);
  });
});

const SMALL = { hidden_size: 40, intermediate_size: 52, num_hidden_layers: 2, vocab_size: 67, num_attention_heads: 4 };

describe.each<[string, object, "residMid" | "residPost"]>([
  ["norms before branches", TINY.llama, "residMid"],
  [
    "norms behind branches",
    { model_type: "olmo2", ...SMALL, num_key_value_heads: 2, max_position_embeddings: 512 },
    "residMid",
  ],
  ["branches side by side", TINY.phi, "residPost"],
])("what a branch reads, with %s", async (_, config, sum) => {
  const model = await loadModel(kernels, tinyFolder(config));
  const capture: Site[] = [{ at: "residPre" }, { at: "attnOut" }, { at: "mlpIn" }, { at: "mlpOut" }, { at: sum }].map(
    (site) => ({ ...site, layer: 0 }) as Site,
  );
  const run = (edits: Edit[]) => {
    using session = createSession(model);
    return forwardWith(session, IDS, { edits, capture }).captured as [Tensor, Tensor, Tensor, Tensor, Tensor];
  };

  test("can be changed without changing the residual, or what the other branch reads beside it", () => {
    const [pre, attnOut, mlpIn, mlpOut, after] = run([]);
    const edited = run([{ at: "attnIn", layer: 0, set: 0 }]);
    expect(edited[0]).toEqual(pre);
    expect(edited[1]).not.toEqual(attnOut);
    const added = edited[0].data.map((value, i) => value + edited[1].data[i]!);
    const both = added.map((value, i) => value + edited[3].data[i]!);
    expect(edited[4].data).toEqual(sum === "residMid" ? added : both);
    expect(edited[4]).not.toEqual(after);
    if (sum === "residPost") expect([edited[2], edited[3]]).toEqual([mlpIn, mlpOut]);
    const doubled = run([{ at: "mlpIn", layer: 0, scale: 2 }]);
    expect(doubled[2].data).toEqual(mlpIn.data.map((value) => 2 * value));
    expect(doubled[3]).not.toEqual(mlpOut);
    expect(doubled[1]).toEqual(attnOut);
  });
});

test("branches that are added to what they read add to it as it was", async () => {
  const config = { model_type: "bloom", hidden_size: 40, n_head: 4, n_layer: 2, vocab_size: 67, seq_length: 512 };
  const folder = tinyFolder({ ...config, apply_residual_connection_post_layernorm: true });
  const model = await loadModel(kernels, folder);
  using session = createSession(model);
  const capture: Site[] = [
    { at: "attnIn", layer: 0 },
    { at: "attnOut", layer: 0 },
    { at: "residMid", layer: 0 },
  ];
  const [read] = forwardWith(session, IDS, { capture }).captured as [Tensor];
  session.truncate(0);
  const edits: Edit[] = [{ at: "attnIn", layer: 0, scale: 3 }];
  const [tripled, added, mid] = forwardWith(session, IDS, { capture, edits }).captured as [Tensor, Tensor, Tensor];
  expect(tripled.data).toEqual(read.data.map((value) => 3 * value));
  expect(mid.data).toEqual(read.data.map((value, i) => value + added.data[i]!));
});
