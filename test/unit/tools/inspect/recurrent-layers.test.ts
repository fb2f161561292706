// Models of which some layers have heads and others a recurrence: all that tools know of heads, and the rest by its name.

import { describe, expect, test } from "vitest";
import { loadKernels } from "../../../../src/entries/index.ts";
import {
  captureRun,
  copyingScores,
  decomposeResid,
  detectHeads,
  explainScore,
  forwardWith,
  inspect,
  layerConfig,
  layerMixers,
  logitAttrs,
  modelDigest,
  replay,
  sitesOf,
  statistics,
  traceAttention,
} from "../../../../src/entries/inspect.ts";
import { latent } from "../../../../src/entries/latent.ts";
import { createSession, forward, loadModel, models } from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";
import { sampled } from "../../../support/sampled.ts";
import { HYBRIDS, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

const kernels = await loadKernels({ models, quantized, latent, statistics });
const IDS = [5, 60, 2, 33, 33, 7, 41, 8, 9, 60, 2];
const LAST = IDS.length - 1;

const MIXERS: Readonly<Record<keyof typeof HYBRIDS, readonly string[]>> = {
  lfm2: ["gated convolution", "attention", "gated convolution"],
  lfm3: ["gated convolution", "attention", "attention"],
  jamba: ["Mamba", "attention", "Mamba"],
  recurrent_gemma: ["gated linear recurrence", "attention", "gated linear recurrence"],
  mamba2: ["Mamba-2", "Mamba-2"],
  falcon_h1: ["attention and Mamba-2", "attention and Mamba-2"],
  nemotron_h: ["Mamba-2", "Mamba-2", "attention"],
  qwen3_5_text: ["gated delta rule", "attention", "gated delta rule"],
  olmo_hybrid: ["gated delta rule", "attention"],
  kimi_linear: ["gated delta rule", "latent attention", "gated delta rule"],
  qwen3_next: ["gated delta rule", "attention"],
  minimax: ["linear attention", "attention", "linear attention"],
  granitemoehybrid: ["Mamba-2", "attention"],
};
const sum = (values: Iterable<number>) => [...values].reduce((total, value) => total + value, 0);
const size = (values: Iterable<number>) => sum([...values].map(Math.abs));

describe.each(sampled(Object.keys(HYBRIDS) as (keyof typeof HYBRIDS)[], 3))("%s", async (name) => {
  const model = await loadModel(kernels, tinyFolder(HYBRIDS[name]));
  const mixers = layerMixers(model);
  const headed = [...mixers.keys()].filter(
    (layer) => mixers[layer]?.includes("attention") && mixers[layer] !== "linear attention",
  );
  const headless = [...mixers.keys()].filter((layer) => !headed.includes(layer));

  test("layers are named by what mixes their tokens, and those without heads are refused where heads are asked for", () => {
    expect(mixers).toEqual(MIXERS[name]);
    using session = createSession(model);
    for (const layer of headless) {
      const got = `${layer}: ${mixers[layer]}`;
      const rule = "expected a layer with heads of attention";
      expect(() => layerConfig(model, layer)).toThrow(`layerConfig: layer ${rule}, got ${got}`);
      expect(() => forwardWith(session, IDS, { patterns: [layer] })).toThrow(
        `forwardWith: options.patterns[0] ${rule}, got ${got}`,
      );
      expect(() => forwardWith(session, IDS, { statistics: { layers: [layer] } })).toThrow(
        `layers[0] ${rule}, got ${got}`,
      );
      expect(() => forwardWith(session, IDS, { capture: [{ at: "z", layer }] })).toThrow(
        `expected a site of layer ${layer}, a ${mixers[layer]} without heads, got "z"`,
      );
      expect(() => traceAttention({ model, layer }, new Float32Array(model.dModel))).toThrow(
        `traceAttention: attention.layer ${rule}, got ${got}`,
      );
      using run = captureRun(session, IDS);
      const place = { layer, head: 0, query: LAST, key: 0 };
      expect(() => explainScore(run, place)).toThrow(`explainScore: place.layer ${rule}, got ${got}`);
      session.truncate(0);
    }
    if (headed.length === 0) expect(() => sitesOf(model, "z")).toThrow(`a ${mixers[0]} without heads, got "z"`);
    else expect([...new Set(sitesOf(model, "z").map(({ layer }) => layer))]).toEqual(headed);
  });

  test("patterns and statistics of the layers that have heads leave the logits as they are", () => {
    using plain = createSession(model);
    const { logits } = forward(plain, IDS);
    using session = createSession(model);
    const seen = forwardWith(session, IDS, { patterns: headed, statistics: {} });
    expect(seen.logits).toEqual(logits);
    expect(seen.statistics.length).toBe(headed.length);
    for (const [i, { data, shape }] of seen.patterns.entries()) {
      const layer = headed[i] as number;
      const { numHeads } = layerConfig(model, layer);
      expect(shape).toEqual([numHeads, IDS.length, IDS.length]);
      for (let at = 0; at < data.length; at += IDS.length)
        expect(sum(data.subarray(at, at + IDS.length))).toBeCloseTo(1, 5);
      const { topWeights } = seen.statistics[i]!;
      for (const [row, most] of topWeights.data.entries())
        expect(most).toBeCloseTo(Math.max(...data.subarray(row * IDS.length, (row + 1) * IDS.length)), 5);
    }
  });

  test("a residual and a logit are the sum of heads, recurrences and MLPs, within 1e-6 of their magnitudes", () => {
    using session = createSession(model);
    const last = model.layers - 1;
    const { captured } = forwardWith(session, IDS, { capture: [{ at: "residPre", layer: last }] });
    session.truncate(0);
    using run = captureRun(session, IDS);
    const { components, parts } = decomposeResid(run, { token: 6, layer: last });
    const [count, width] = parts.shape as [number, number];
    for (const layer of [...mixers.keys()].slice(0, last)) {
      const own = components.filter((each) => each.layer === layer);
      const heads = headed.includes(layer) ? layerConfig(model, layer).numHeads : 0;
      expect(own.filter(({ kind }) => kind === "head").length).toBe(heads);
      const hasRecurrence = mixers[layer] !== "attention" && mixers[layer] !== "latent attention";
      expect(own.some(({ kind }) => kind === "recurrent")).toBe(hasRecurrence);
    }
    const row = captured[0]!.data.subarray(6 * width, 7 * width);
    const largest = Math.max(...row.map(Math.abs));
    for (let d = 0; d < width; d++) {
      const all = Array.from({ length: count }, (_, i) => parts.data[i * width + d]!);
      expect(Math.abs(sum(all) - row[d]!)).toBeLessThan(1e-6 * (largest + size(all)));
      expect(Math.abs(all.at(-1)!)).toBeLessThan(1e-6 * (largest + size(all)));
    }
    for (const layer of headed) {
      const { parts, components } = explainScore(run, { layer, head: 0, query: LAST, key: 3 });
      expect(parts.length).toBe(components.query.length * components.key.length);
    }
    const { parts: logit } = logitAttrs(run, { token: LAST, id: 7 });
    expect(Math.abs(logit.at(-1)!)).toBeLessThan(1e-6 * (1 + size(logit)));
  });

  test("heads are detected and repeated by a record, and a digest sees every weight", async () => {
    const count = sum(headed.map((layer) => layerConfig(model, layer).numHeads));
    expect(detectHeads(model, [IDS], { copying: true }).length).toBe(count);
    expect(copyingScores(model).map((scores) => scores.length > 0)).toEqual(
      [...mixers.keys()].map((layer) => headed.includes(layer)),
    );
    const { record } = await inspect(model, "forward", { ids: IDS, patterns: headed });
    expect((await replay(model, record)).same).toBe(true);
    const tensors = tinyTensors(HYBRIDS[name]);
    const digests = new Set([await modelDigest(model)]);
    for (const [changed, { data, shape }] of tensors) {
      const other = new Map(tensors).set(changed, { data: data.map((x, i) => (i === 0 ? 0.375 - x : x)), shape });
      using own = await loadModel(kernels, tinyFolder(HYBRIDS[name], other));
      digests.add(await modelDigest(own));
    }
    expect(digests.size).toBe(1 + tensors.size);
  });
});

test.each(["lfm2", "qwen3_5_text", "falcon_h1"] as const)(
  "%s: what a head writes, behind its gates, is what attention lacks without it",
  async (name) => {
    using model = await loadModel(kernels, tinyFolder(HYBRIDS[name]));
    const [place] = sitesOf(model, "z");
    const layer = place!.layer as number;
    using session = createSession(model);
    const capture = [{ at: "attnOut", layer } as const];
    const [kept] = forwardWith(session, IDS, { capture }).captured;
    session.truncate(0);
    const [left] = forwardWith(session, IDS, { capture, edits: [{ ...place!, set: 0 }] }).captured;
    session.truncate(0);
    using run = captureRun(session, IDS);
    const { components, parts } = decomposeResid(run, { token: LAST, layer: layer + 1 });
    const at = components.findIndex((each) => each.kind === "head" && each.layer === layer && each.head === 0);
    const width = model.dModel;
    const lacks = kept!.data.slice(LAST * width).map((value, d) => value - left!.data[LAST * width + d]!);
    expect(size(lacks)).toBeGreaterThan(0.01);
    for (const [d, value] of lacks.entries()) expect(parts.data[at * width + d]! - value).toBeCloseTo(0, 5);
  },
);
