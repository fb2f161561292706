// What is claimed of the studies of stories-heads, induction-formation and gqa-conversion, and that their pages say what their
// numbers say. studies.test.ts compares pages and figures with result.json.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, test } from "vitest";
import { convertCheckpoint, METHODS } from "../../examples/studies/gqa-conversion/convert.ts";
import type { GqaResult } from "../../examples/studies/gqa-conversion/result.ts";
import { study as gqaConversion } from "../../examples/studies/gqa-conversion/study.ts";
import { drawHeatMaps } from "../../examples/studies/heat-map.ts";
import type { FormationResult } from "../../examples/studies/induction-formation/result.ts";
import { study as inductionFormation } from "../../examples/studies/induction-formation/study.ts";
import { lossesOf, nextOf } from "../../examples/studies/losses.ts";
import { LOOKS, MODEL, readStories } from "../../examples/studies/stories-heads/looks.ts";
import { byWeight, NEEDED, type StoriesResult } from "../../examples/studies/stories-heads/result.ts";
import { study as storiesHeads } from "../../examples/studies/stories-heads/study.ts";
import { askFor, shareKnown } from "../../examples/studies/stories-heads/without.ts";
import { mean } from "../../examples/studies/study.ts";
import { loadKernels, type Tensor } from "../../src/entries/index.ts";
import { createSession, forward, loadModel, models } from "../../src/entries/models.ts";
import { writeSafetensors } from "../../src/entries/weights.ts";
import { TINY, tinyTensors } from "../support/tiny-models.ts";

const read = (name: string) =>
  JSON.parse(readFileSync(new URL(`../../examples/studies/${name}/result.json`, import.meta.url), "utf8"));

/** The answer of a page. */
const answerOf = (page: string) => /## Answer\n[\s\S]*?(?=\n## )/.exec(page)![0];

describe("stories-heads", () => {
  const result = read("stories-heads") as StoriesResult;
  const lookOf = (name: string) => result.looks.find((look) => look.name.startsWith(name))!;

  test("every word of a look has something to look at, before the place that looks", () => {
    for (const look of LOOKS)
      for (const { words, probes } of readStories())
        for (const { at } of probes.filter(({ name }) => look.probes.includes(name))) {
          const [from, to] = [look.from(words, at), look.to(words, at)];
          expect(from).toBeLessThan(at);
          expect(to.length).toBeGreaterThan(0);
          for (const place of to)
            expect(place > 0 && place <= from, `${look.name}: ${words.slice(place, at + 1)}`).toBe(true);
        }
  });

  test("accuracies of result.json with all heads, without the head that a verb agrees by, and without another, are those of the model", async () => {
    const kernels = await loadKernels({ deterministic: true, models });
    const session = createSession(await loadModel(kernels, MODEL));
    const name = "was or were";
    const stories = readStories();
    const asked = askFor(LOOKS.find((look) => look.name.startsWith(name))!, stories.slice(stories.length / 2));
    const { accuracy, withoutZero, weights } = lookOf(name);
    const [first] = byWeight(weights);
    const without = ({ layer, head }: { layer: number; head: number }) =>
      shareKnown(session, asked, [{ at: "z", layer, head, set: 0 }]);
    expect(shareKnown(session, asked)).toBe(accuracy);
    expect(without(first!)).toBe(withoutZero[first!.layer]![first!.head]);
    expect(without({ layer: 1, head: 6 })).toBe(withoutZero[1]![6]);
    kernels.release();
  });

  test("one head carries agreement in number, several share what it was, and random others are not missed like these", () => {
    const number = lookOf("was or were");
    expect(number.accuracy - Math.min(...number.withoutZero.flat())).toBeGreaterThan(0.4);
    const it = lookOf("it:");
    for (const { layer, head } of byWeight(it.weights).slice(0, 6))
      expect(it.accuracy - it.withoutZero[layer]![head]!).toBeLessThan(NEEDED);
    for (const look of [number, it, lookOf("names"), lookOf("lists")]) {
      const { zero, mean: byMean, othersZero, othersMean } = look.groups.at(-1)!;
      expect(mean(othersZero) - zero).toBeGreaterThan(0.5);
      expect(mean(othersMean) - byMean).toBeGreaterThan(0.5);
    }
  });

  test("the answer follows the numbers", () => {
    const [{ layer, head }] = byWeight(lookOf("was or were").weights) as [{ layer: number; head: number }];
    const name = `${layer}.${head}`;
    expect(answerOf(storiesHeads.writePage(result))).toContain(`without ${name} alone: `);
    expect(answerOf(storiesHeads.writePage(result))).toMatch(/needed alone for [^.]*"was or were/);
    const changed = read("stories-heads");
    for (const look of changed.looks) look.withoutZero[layer]![head] = look.accuracy;
    expect(answerOf(storiesHeads.writePage(changed))).not.toContain(`without ${name} alone: `);
  });
});

describe("induction-formation", () => {
  const result = read("induction-formation") as FormationResult;
  const two = result.runs.filter(({ layers }) => layers === 2);
  const one = result.runs.filter(({ layers }) => layers === 1);
  const last = ({ checkpoints }: (typeof two)[number]) => checkpoints.at(-1)!;

  test("three seeds each, and losses of headwise within 1e-5 of PyTorch's", () => {
    expect([two, one].map((runs) => runs.map(({ seed }) => seed))).toEqual([
      [1, 2, 3],
      [1, 2, 3],
    ]);
    expect(result.difference).toBeLessThan(1e-5);
  });

  test("two layers end with both heads and copy within 0.1 nats, one layer with neither", () => {
    for (const run of two) {
      const { late, previous, induction } = last(run);
      expect(late).toBeLessThan(0.1);
      expect(Math.max(...previous[0]!)).toBeGreaterThan(0.8);
      expect(Math.max(...induction[1]!)).toBeGreaterThan(0.8);
    }
    for (const run of one) {
      const { late, previous, induction } = last(run);
      expect(late).toBeGreaterThan(3);
      expect(Math.max(...previous[0]!, ...induction[0]!)).toBeLessThan(0.2);
    }
  });

  test("the late loss falls by more than half within a tenth of the steps, as the induction score rises", () => {
    for (const { checkpoints } of two) {
      const steps = checkpoints.at(-1)!.step;
      const falls = checkpoints.flatMap((from) =>
        checkpoints.filter((to) => to.step - from.step === steps / 10).map((to) => ({ from, to })),
      );
      const { from, to } = falls.reduce((most, each) =>
        each.from.late - each.to.late > most.from.late - most.to.late ? each : most,
      );
      expect(from.late - to.late).toBeGreaterThan(checkpoints[0]!.late / 2);
      expect(Math.max(...to.induction[1]!) - Math.max(...from.induction[1]!)).toBeGreaterThan(0.4);
    }
  });

  test("in every seed the previous-token score reaches 0.2 before the induction score does", () => {
    for (const { checkpoints } of two) {
      const risen = (of: "previous" | "induction", layer: number) =>
        checkpoints.find((each) => Math.max(...each[of][layer]!) >= 0.2)!.step;
      expect(risen("previous", 0)).toBeLessThan(risen("induction", 1));
    }
  });

  test("without the previous-token head no copying is left, and the induction head finds nothing by keys without it", () => {
    for (const { circuit } of two) {
      const { all, withoutPrevious, withoutOther, keys, queries, values } = circuit!;
      expect(withoutPrevious.late).toBeGreaterThan(result.entropy);
      expect(withoutOther.late).toBeLessThan(withoutPrevious.late / 2);
      expect(keys.induction).toBeLessThan(0.6 * all.induction);
      for (const kept of [queries, values]) expect(kept.induction).toBeGreaterThan(0.9 * all.induction);
    }
  });

  test("the answer follows the numbers", () => {
    expect(answerOf(inductionFormation.writePage(result))).toContain("It depends most on the keys");
    const changed = read("induction-formation");
    for (const { circuit } of changed.runs) if (circuit) circuit.queries.induction = 0;
    expect(answerOf(inductionFormation.writePage(changed))).toContain("It depends most on the queries");
  });
});

describe("gqa-conversion", () => {
  const result = read("gqa-conversion") as GqaResult;
  const { models: all } = result;
  const of = (method: string, kvHeads: number) =>
    all.filter((model) => model.method === method && model.kvHeads === kvHeads);

  test("three seeds of each method and number of heads, and losses of headwise within 1e-5 of PyTorch's", () => {
    for (const [method, kvHeads] of [
      ["none", 4],
      ...METHODS.flatMap((name) => [[name, 2] as const, [name, 1] as const]),
    ])
      expect(of(method as string, kvHeads as number).map(({ seed }) => seed)).toEqual([1, 2, 3]);
    expect(all).toHaveLength(27);
    expect(result.difference).toBeLessThan(1e-5);
    expect(result.setup.upSteps / result.setup.steps).toBe(0.05);
    for (const { kvHeads, cacheBytes } of all) expect(cacheBytes).toBe(2 * 2 * 16 * 4 * kvHeads);
  });

  test("in every seed the common basis has the least error and loss, before and after; random heads learn no copying in 50 steps", () => {
    for (const kvHeads of [2, 1])
      for (const [i, svd] of of("svd", kvHeads).entries()) {
        for (const method of ["mean", "first", "random"]) {
          const other = of(method, kvHeads)[i]!;
          expect(svd.loss).toBeLessThan(other.loss);
          expect(svd.uptrained).toBeLessThan(other.uptrained);
          if (other.error) expect(svd.error!.key + svd.error!.value).toBeLessThan(other.error.key + other.error.value);
        }
        expect(of("random", kvHeads)[i]!.uptrained).toBeGreaterThan(result.entropy - 0.05);
      }
    for (const { loss } of of("none", 4)) expect(loss).toBeLessThan(0.15);
  });

  test("the answer follows the numbers", () => {
    expect(answerOf(gqaConversion.writePage(result))).toContain(
      "the best common basis of a group has the least loss, at once",
    );
    const changed = read("gqa-conversion");
    for (const model of changed.models) if (model.method === "svd") model.uptrained = 9;
    const answer = answerOf(gqaConversion.writePage(changed));
    expect(answer).toContain("the least loss at once is that of the best common basis");
    expect(answer).toMatch(/after the further steps that of the (mean|first)/);
  });

  test("a checkpoint of equal heads is converted to fewer without a change of the logits beyond 1e-5, but to random ones", async () => {
    const folder = mkdtempSync(join(tmpdir(), "headwise-gqa-"));
    try {
      const config = { ...TINY.llama, num_key_value_heads: 4 };
      const tensors = Object.fromEntries([...tinyTensors(config)].filter(([name]) => !name.endsWith("bias")));
      for (const [name, { data, shape }] of Object.entries(tensors))
        if (/[kv]_proj/.test(name)) tensors[name] = { data: repeatHead(data), shape };
      const at = (name: string) => pathToFileURL(`${join(folder, name)}/`);
      writeFolder(folder, config, tensors);
      const kernels = await loadKernels({ deterministic: true, models });
      const logitsOf = async (name: string) => {
        using model = await loadModel(kernels, at(name));
        using session = createSession(model);
        return forward(session, [5, 60, 2, 33, 7], { rows: "all" }).logits;
      };
      const base = await logitsOf(".");
      const largest = base.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      for (const method of METHODS) {
        const error = convertCheckpoint(at("."), at(method), method, 2);
        const json = JSON.parse(readFileSync(new URL("config.json", at(method)), "utf8"));
        expect(json.num_key_value_heads).toBe(2);
        const logits = await logitsOf(method);
        const difference = logits.reduce((most, value, i) => Math.max(most, Math.abs(value - base[i]!)), 0) / largest;
        if (method === "random") expect([error, difference > 0.01]).toEqual([undefined, true]);
        else expect([error!.key < 1e-6, error!.value < 1e-6, difference < 1e-5], method).toEqual([true, true, true]);
      }
      kernels.release();
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

/** Every head as the first one. */
const repeatHead = (data: Float32Array) => data.map((_, i) => data[i % (data.length / 4)]!);

function writeFolder(folder: string, config: object, tensors: Record<string, Tensor>): void {
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  writeFileSync(join(folder, "model.safetensors"), writeSafetensors(tensors));
}

test("logits that are all alike lose the logarithm of their number at each place but the first", () => {
  for (const loss of lossesOf(new Float32Array(3 * 8), nextOf([1, 2, 3]))) expect(loss).toBeCloseTo(Math.log(8), 12);
  expect(lossesOf(Float32Array.of(0, 0, 200, 0, 0, 0), nextOf([0, 2]))).toEqual([0]);
});

test("a heat map has a shade and a number for each value", () => {
  const svg = drawHeatMaps({
    ...{ title: "a < b", description: "two heads", most: 2, print: (value) => value.toFixed(1) },
    maps: [{ title: "map", values: [[0, 1.5]] }],
  });
  expect(svg).toContain("a &lt; b");
  // Nothing is pale yellow; three quarters are the second of the five stops of the ramp.
  expect(Array.from(svg.matchAll(/fill="rgb\(([\d,]+)\)"/g), ([, shade]) => shade)).toEqual([
    "252,255,190",
    "84,24,110",
  ]);
  expect(svg).toContain(">1.5</text>");
});
