// Recurrent layers alone, with the shapes of real models and random weights: prompts beside multiply-adds in registers, and a token
// behind 1024 and behind 32,768 others beside reading the layer's weights and state.

import { finish, type Steps } from "../../src/base/util/steps.ts";
import { FORMATS, type WeightFormat } from "../../src/layers/linear/formats.ts";

import type { Mixer } from "../../src/layers/mixer/mixer.ts";
import { tokensBehind } from "../../src/layers/pass/call.ts";
import type { RecurrentState } from "../../src/layers/recurrent/state.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { Layout, pointer } from "../../src/wasm/memory.ts";
import { planToken, repeatCalls, type TokenCalls } from "../../src/wasm/token-calls.ts";
import { loadBuild } from "../lib/builds.ts";
import type { Region } from "../lib/case.ts";
import { arithmeticPeak, readingPeak, totalBytes } from "../lib/limits.ts";
import { compare, type Load, measure } from "../lib/measure.ts";
import { type Column, fasterBuild, part } from "../lib/part.ts";
import { randomFloats } from "../lib/random.ts";
import { HYBRID_CONFIGS, randomModel } from "../lib/random-model.ts";

interface RecurrentRow {
  readonly model: string;
  readonly weights: string;
  readonly work: string;
  readonly us: number;
  /** What it is compared with, and its rate over that of this. */
  readonly with: string;
  readonly percent: number;
}

const columns: readonly Column<RecurrentRow>[] = [
  ["layers of", 16, (row) => row.model],
  ["weights", 7, (row) => row.weights],
  ["work", 24, (row) => row.work],
  ["µs", 9, (row) => row.us.toFixed(0)],
  ["% of", 22, (row) => row.with],
  ["", 4, (row) => row.percent.toFixed(0)],
];

const PROMPTS = [128, 512] as const;
const PASTS = [1024, 32_768] as const;
const MOST_ROWS = 512;

/** The recurrent layers of a model, without its vocabulary: each with weights and a state of its own, in a place that all share. */
async function openLayers(context: Parameters<typeof fasterBuild>[0], config: object, weights: WeightFormat) {
  const build = await loadBuild(fasterBuild(context));
  const model = await loadModel(build.host, randomModel({ ...config, vocab_size: 64 }), { weights });
  const { memory } = build.host;
  const { dModel } = model;
  const layout = new Layout();
  const [x, out] = [0, 1].map(() => layout.floats(MOST_ROWS * dModel)) as [number, number];
  const layers = model.weights.blocks.flatMap(({ attention: layer }) => {
    if (layer.kind !== "recurrent") return [];
    const mixer = layer.mixer as Mixer<typeof layer, RecurrentState>;
    const state = mixer.states?.create("bench", layer, PASTS[1] + 128, {}) as RecurrentState;
    const run = mixer.plan(layer, layout, MOST_ROWS, 0, { kvLen: 0, maps: false }, undefined);
    return [{ state, run, linears: mixer.linears(layer) }];
  });
  const base = memory.allocate("bench", layout.bytes);
  memory.f32(base + x, MOST_ROWS * dModel).set(randomFloats(MOST_ROWS * dModel, 1));
  const rows = (at: number) => ({ at: pointer.f32(base + at), stride: dModel });
  /** Nothing is committed, so that every call does the same. */
  function* steps(past: number, count: number, most = layers.length): Steps {
    const tokens = tokensBehind("bench", { numHeads: 1 }, past, count);
    for (const { state, run } of layers.slice(0, most))
      yield* run(base, Number.POSITIVE_INFINITY, [{ of: { tokens, state }, begin: 0, end: count, at: 0 }], {
        ...{ x: rows(x), out: rows(out) },
      });
  }
  /** What a token reads: panels and states. */
  const regionsAt = (past: number): Region[] =>
    layers.flatMap(({ state, linears }) => {
      const held = (state.partsAt(past) as Uint8Array[]).map(({ byteOffset: at, length }) => ({ at, length }));
      const panels = linears.map(({ w, panels, k, format }) => {
        return { at: w, length: panels * FORMATS[format].panelBytes(k) };
      });
      return [...panels, ...held];
    });
  const hold = (past: number) => {
    // Where the sequence is matters, and not what it was.
    for (const { state } of layers) for (const part of state.admit(past, true)) part.fill(0);
  };
  return { build, steps, regionsAt, hold };
}

export const recurrent = part("recurrent", columns, async function* rows(context): AsyncGenerator<RecurrentRow> {
  if (context.quick) return;
  const { effort } = context;
  for (const [model, config] of Object.entries(HYBRID_CONFIGS)) {
    if (!context.wants(model)) continue;
    const plain = await openLayers(context, config, "f32");
    for (const count of PROMPTS) {
      const work = [...plain.steps(0, count, 1)].reduce((sum, flops) => sum + flops, 0);
      const load = { work, run: () => finish(plain.steps(0, count, 1)) };
      const { rate, ratio } = await measure(load, arithmeticPeak(plain.build), effort);
      const names = { model, weights: "f32", work: `prompt of ${count}, a layer`, with: "multiply-adds" };
      yield { ...names, us: (1e6 * work) / rate, percent: 100 * ratio };
    }
    plain.build.host.release();
    const { build, steps, regionsAt, hold } = await openLayers(context, config, "q8");
    const loads: Load[] = [];
    let regions: Region[] = [];
    for (const past of PASTS) {
      hold(past);
      regions = regionsAt(past);
      const calls = planToken(build.host, past, (position) => steps(position, 1)) as TokenCalls;
      loads.push({ work: totalBytes(regions), run: () => finish(repeatCalls(build.host, calls, past)) });
    }
    const [early, late] = loads as [Load, Load];
    const peak = await readingPeak(build, regions, effort);
    const { rate, ratio } = await measure(early, peak, effort);
    const names = { model, weights: "q8" };
    const us = (1e6 * early.work) / rate;
    yield { ...names, work: `a token behind ${PASTS[0]}`, us, with: "reading", percent: 100 * ratio };
    const [, second] = await compare([early, late], effort);
    const lateUs = (1e6 * late.work) / second!.rate;
    const beside = { with: `speed behind ${PASTS[0]}`, percent: 100 * second!.ratio };
    yield { ...names, work: `a token behind ${PASTS[1]}`, us: lateUs, ...beside };
    build.host.release();
  }
});
