// Random recurrent layers against float64, one row after another; and the laws of a layer alone: chunks, other sequences beside it,
// and what memory held before change no bit. HEADWISE_RECURRENT says how many layers.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { StoredTensor } from "../../src/base/tensor/dtypes.ts";
import { finish } from "../../src/base/util/steps.ts";
import { tokensBehind } from "../../src/layers/pass/call.ts";
import {
  checkRecurrent,
  convChannels,
  type RecurrentConfig,
  recurrentSizes,
  recurrentVectors,
  type ScanConfig,
  scanSizes,
} from "../../src/layers/recurrent/config.ts";
import {
  createRecurrentLayer,
  RECURRENT,
  type RecurrentLayer,
  stateSizes,
} from "../../src/layers/recurrent/recurrent.ts";
import { type RecurrentState, recurrentStateBytes } from "../../src/layers/recurrent/state.ts";

import { planModel } from "../../src/models/load/plan-model.ts";
import type { Kernels } from "../../src/wasm/kernels.ts";
import { Layout, pointer } from "../../src/wasm/memory.ts";
import { createRandom, floats, type Random } from "../support/harness.ts";
import { kernelsOf, shippedBuilds } from "../support/layers.ts";
import { calls } from "../support/sampled.ts";
import { HYBRIDS } from "../support/tiny-models.ts";

const LAYERS = Number(process.env.HEADWISE_RECURRENT ?? calls(2000, 200));

type Numbers = Readonly<Record<string, Float32Array>>;

interface Trial {
  readonly config: RecurrentConfig;
  readonly matrices: Numbers;
  readonly biases: Numbers;
  readonly vectors: Numbers;
}

const pick = <T>(random: Random, all: readonly T[]): T => all[random.int(0, all.length - 1)] as T;

function randomScan(random: Random): ScanConfig {
  const numKeyHeads = random.int(1, 3);
  const numHeads = numKeyHeads * random.int(1, 3);
  const valueDim = random.int(1, 20);
  const decay = pick(random, ["constant", "head", "channel"] as const);
  const delta = random.int(0, 1) === 0;
  const groups = pick(random, [1, numHeads, numHeads * valueDim]);
  return {
    ...{ numHeads, numKeyHeads, turns: random.int(0, 1) === 0, keyDim: random.int(1, 9), valueDim, delta, decay },
    order: pick(random, ["qkv", "vkq"] as const),
    steps: pick(random, [
      [0, Number.POSITIVE_INFINITY],
      [0.25, 0.75],
      [0.5, 0.5],
    ] as const),
    write: pick(random, [
      "sigmoid",
      "whole",
      ...(delta ? [] : ["double-sigmoid" as const]),
      ...(decay === "head" && !delta ? ["step" as const] : []),
    ] as const),
    // Keys that are longer than 1 would have the delta rule's states grow.
    unitEps: delta || random.int(0, 1) === 0 ? 0.01 : undefined,
    ...{ scale: 0.5, skip: random.int(0, 1) === 0, gate: pick(random, ["silu", "sigmoid", undefined] as const) },
    norm: pick(random, [
      undefined,
      { eps: 0.1, groups, shared: random.int(0, 1) === 0, gateFirst: random.int(0, 1) === 0 },
    ]),
    ...{ gateRank: pick(random, [0, 3]), stepRank: pick(random, [0, 5]) },
    ...{ gateScale: pick(random, [1, 0.7]), stepScale: pick(random, [1, 1.3]) },
  };
}

function randomTrial(random: Random): Trial {
  const scan = random.int(0, 3) === 0 ? undefined : randomScan(random);
  const config = checkRecurrent("test", {
    ...{ dModel: random.int(1, 14), taps: random.int(scan ? 0 : 1, 5) },
    ...(scan && { scan }),
  });
  const matrices: Record<string, Float32Array> = {};
  const biases: Record<string, Float32Array> = {};
  for (const [name, { n, k }] of Object.entries(recurrentSizes(config))) {
    matrices[name] = floats(random, n * k).map((v) => v / Math.sqrt(k));
    if (random.int(0, 1) === 0) biases[name] = floats(random, n);
  }
  const vectors = Object.fromEntries(
    Object.entries(recurrentVectors(config)).map(([name, shape]) => {
      const data = floats(
        random,
        shape.reduce((product, size) => product * size, 1),
      );
      // Rates are not negative; as constant decays they are below 1.
      return [name, name === "rate" ? data.map((v) => Math.abs(v) / (1 + Math.abs(v))) : data];
    }),
  );
  return { config, matrices, biases, vectors };
}

const stored = (data: Float32Array, n: number): StoredTensor => ({
  ...{ name: "w", dtype: "F32", shape: [n, data.length / n] },
  bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
});

function makeLayer(kernels: Kernels, { config, matrices, biases, vectors }: Trial): RecurrentLayer {
  const sizes = recurrentSizes(config);
  const packed = Object.entries(matrices).map(([name, data]) => [name, stored(data, sizes[name as "in"]?.n as number)]);
  const options = { formatOf: () => "f32" as const, fast: false };
  return createRecurrentLayer(
    "test",
    kernels,
    config,
    { matrices: Object.fromEntries(packed), biases, vectors },
    options,
  );
}

/** The layer's outputs, row by row; `round` is the precision of each operation. */
function oracle({ config, matrices, biases, vectors }: Trial, x: Float32Array, round: (v: number) => number): number[] {
  const { dModel, taps, scan } = config;
  const sizes = recurrentSizes(config);
  const sigmoid = (v: number) => round(1 / (1 + Math.exp(-v)));
  const silu = (v: number) => round(v * sigmoid(v));
  const product = (name: string, row: readonly number[]): number[] => {
    const { n, k } = sizes[name as "in"] as { n: number; k: number };
    return Array.from({ length: n }, (_, i) => {
      let all: number = biases[name]?.[i] ?? 0;
      for (let j = 0; j < k; j++) all = round(all + round((matrices[name] as Float32Array)[i * k + j]! * row[j]!));
      return all;
    });
  };
  const through = (name: "gate" | "step", row: readonly number[]) =>
    product(name, sizes[`${name}Down`] ? product(`${name}Down`, row) : row);
  const inputs: number[][] = [];
  const states = scan && Array.from({ length: scan.numHeads * scan.keyDim * scan.valueDim }, () => 0);
  const out: number[] = [];
  for (let t = 0; t * dModel < x.length; t++) {
    const row = [...x.subarray(t * dModel, (t + 1) * dModel)];
    const projected = product("in", row);
    const factor = (place: number, i: number) => projected[place * dModel + i] as number;
    inputs.push(scan ? projected : row.map((_, i) => round(factor(0, i) * factor(2, i))));
    const convolved = (inputs[t] as number[]).map((own, c) => {
      if (taps === 0) return silu(own);
      let all = vectors.convBias![c]!;
      for (let j = 0; j < taps; j++)
        all = round(all + round(vectors.conv![c * taps + j]! * (inputs[t + j - taps + 1]?.[c] ?? 0)));
      return scan ? silu(all) : round(all * factor(1, c));
    });
    out.push(...product("out", scan ? scanned(scan, states as number[], convolved, row) : convolved));
  }
  return out;

  function scanned(own: ScanConfig, state: number[], mixed: readonly number[], row: readonly number[]): number[] {
    const { numHeads, numKeyHeads, keyDim, valueDim, delta, turns, decay, write, norm } = own;
    const { q, k, v, values } = scanSizes(own);
    const unit = (part: readonly number[]) => {
      if (own.unitEps === undefined) return part;
      const length = round(
        Math.sqrt(round(part.reduce((all, each) => round(all + round(each * each)), 0) + own.unitEps)),
      );
      return part.map((each) => round(each / length));
    };
    const [low, high] = own.steps;
    const raw = decay === "constant" ? [] : through("step", row).map((each) => round(each * own.stepScale));
    const steps = raw.map((each, i) => {
      const given = round(each + vectors.stepBias![i]!);
      return Math.min(high, Math.max(low, round(Math.max(given, 0) + Math.log1p(Math.exp(-Math.abs(given))))));
    });
    const writes = sizes.write ? product("write", row).map(sigmoid) : steps;
    const heads: number[] = [];
    for (let head = 0; head < numHeads; head++) {
      const keyHead = turns ? head % numKeyHeads : Math.floor(head / (numHeads / numKeyHeads));
      const part = (at: number) => unit(mixed.slice(at + keyHead * keyDim, at + (keyHead + 1) * keyDim));
      const [query, key] = [part(q), part(k)];
      const rate = vectors.rate![head]!;
      const kept = (i: number) => {
        if (decay === "constant") return rate;
        return round(Math.exp(-round(rate * steps[decay === "channel" ? head * keyDim + i : head]!)));
      };
      const beta = write === "whole" ? 1 : (write === "double-sigmoid" ? 2 : 1) * writes[head]!;
      for (let c = 0; c < valueDim; c++) {
        const at = (i: number) => (head * keyDim + i) * valueDim + c;
        const value = mixed[v + head * valueDim + c] as number;
        let held = 0;
        for (let i = 0; i < keyDim; i++) {
          state[at(i)] = round(state[at(i)]! * kept(i));
          held = round(held + round(key[i]! * state[at(i)]!));
        }
        const written = round(beta * (delta ? round(value - held) : value));
        let all = 0;
        for (let i = 0; i < keyDim; i++) {
          state[at(i)] = round(state[at(i)]! + round(key[i]! * written));
          all = round(all + round(query[i]! * state[at(i)]!));
        }
        heads.push(round(round(own.scale * all) + (own.skip ? round(vectors.skip![head]! * value) : 0)));
      }
    }
    const gates = own.gate && through("gate", row).map((each) => round(each * own.gateScale));
    const applyGate = (rows: number[]) =>
      gates ? rows.map((each, i) => round(each * (own.gate === "silu" ? silu : sigmoid)(gates[i]!))) : rows;
    const applyNorm = (rows: number[]) => {
      if (!norm) return rows;
      const n = values / norm.groups;
      return rows.map((each, i) => {
        const group = rows.slice(n * Math.floor(i / n), n * Math.floor(i / n) + n);
        const square = group.reduce((all, v) => round(all + round(v * v)), 0);
        return round(
          round(each / round(Math.sqrt(round(square / n + norm.eps)))) * vectors.norm![norm.shared ? i % n : i]!,
        );
      });
    };
    return norm?.gateFirst === false ? applyGate(applyNorm(heads)) : applyNorm(applyGate(heads));
  }
}

const MOST_ROWS = 24;

/** Runs rows of several sequences, which follow each other, in one chunk, in scratch that held NaN. Does not commit. */
function runChunk(
  layer: RecurrentLayer,
  sequences: readonly { x: Float32Array; past: number; state: RecurrentState }[],
): Float32Array[] {
  const { kernels, recurrent } = layer;
  const { dModel } = recurrent;
  const { memory } = kernels;
  const layout = new Layout();
  const stride = 8 * Math.ceil(dModel / 8);
  const [xAt, outAt] = [layout.floats(MOST_ROWS * stride), layout.floats(MOST_ROWS * stride)];
  const run = RECURRENT.plan(layer, layout, MOST_ROWS, 0, { kvLen: 0, maps: false }, undefined);
  const base = memory.scratch("test", layout.bytes);
  memory.f32(base, layout.bytes / 4).fill(Number.NaN);
  let at = 0;
  const runs = sequences.map(({ x, past, state }) => {
    const count = x.length / dModel;
    for (let r = 0; r < count; r++)
      memory.f32(base + xAt + 4 * (at + r) * stride, dModel).set(x.subarray(r * dModel, (r + 1) * dModel));
    at += count;
    return {
      of: { tokens: tokensBehind("test", { numHeads: 1 }, past, count), state },
      begin: 0,
      end: count,
      at: at - count,
    };
  });
  const rows = (place: number) => ({ at: pointer.f32(base + place), stride });
  finish(run(base, Number.POSITIVE_INFINITY, runs, { x: rows(xAt), out: rows(outAt) }));
  return runs.map((each) =>
    Float32Array.from(
      { length: each.end * dModel },
      (_, i) =>
        memory.f32(base + outAt + 4 * (each.at + Math.floor(i / dModel)) * stride, dModel)[i % dModel] as number,
    ),
  );
}

describe.each(shippedBuilds)("recurrent layers in the %s build", (build) => {
  let kernels: Kernels;
  beforeAll(async () => {
    kernels = await kernelsOf(build);
  });
  afterAll(() => kernels.release());

  test(`${LAYERS} random layers are as near to float64 as plain float32, and chunks, neighbours and old memory change no bit`, () => {
    const random = createRandom(build === "simd" ? 35 : 36);
    // Scratch stays.
    kernels.memory.scratch("test", 2 ** 20);
    const used = kernels.usedBytes;
    let [worst, greatest] = [0, 0];
    for (let each = 0; each < LAYERS; each++) {
      const trial = randomTrial(random);
      const { dModel } = trial.config;
      const layer = makeLayer(kernels, trial);
      const open = () => {
        const state = RECURRENT.states?.create("test", layer, 128, {}) as RecurrentState;
        expect(state.bytes).toBe(recurrentStateBytes(stateSizes(trial.config), 128));
        return state;
      };
      const [whole, parts, other] = [open(), open(), open()];
      const rows = random.int(1, 8);
      const x = floats(random, rows * dModel);
      const [out] = runChunk(layer, [{ x, past: 0, state: whole }]) as [Float32Array];
      const exact = oracle(trial, x, (v) => v);
      const plain = oracle(trial, x, Math.fround);
      const scale = Math.max(...exact.map(Math.abs));
      const error = (of: ArrayLike<number>) => exact.reduce((most, v, i) => Math.max(most, Math.abs(v - of[i]!)), 0);
      const bound = 4 * error(plain) + 16 * 2 ** -24 * (1 + scale);
      const ratio = error(out) / bound;
      worst = Math.max(worst, ratio);
      greatest = Math.max(greatest, error(out) / Math.max(1, scale));
      expect(ratio, `${each}: ${JSON.stringify(trial.config)}`).toBeLessThanOrEqual(1);
      // The same rows in two calls, beside a sequence of NaN and infinities.
      const cut = random.int(1, rows);
      const poison = new Float32Array(dModel * random.int(1, 3)).fill(
        pick(random, [Number.NaN, Number.POSITIVE_INFINITY]),
      );
      let got: number[] = [];
      for (const [from, to] of [
        [0, cut],
        [cut, rows],
      ] as const) {
        if (from === to) continue;
        const own = { x: x.subarray(from * dModel, to * dModel), past: from, state: parts };
        const bad = { x: poison, past: 0, state: other };
        const both = runChunk(layer, from === 0 ? [bad, own] : [own, bad]);
        got = got.concat(...(both[from === 0 ? 1 : 0] as Float32Array));
        parts.commit(to - from);
      }
      expect(got).toEqual([...out]);
      // What is held has the same bits, too, but in channels that no output reads.
      whole.commit(rows);
      const held = (state: RecurrentState) => {
        const [inputs, scan] = (state.partsAt(rows) as Uint8Array[]).map(
          (bytes) => new Float32Array(bytes.slice().buffer),
        );
        const channels = convChannels(trial.config);
        const real = trial.config.scan ? scanSizes(trial.config.scan).channels : dModel;
        return [...(inputs as Float32Array).filter((_, i) => i % channels < real), ...(scan as Float32Array)];
      };
      expect(held(parts)).toEqual(held(whole));
      for (const state of [whole, parts, other]) state.release();
      layer.release();
    }
    if (process.env.HEADWISE_RECURRENT)
      console.log(
        `${build}: ${LAYERS} layers, worst ${worst.toFixed(3)} of the bound, ${greatest.toExponential(2)} of the largest output`,
      );
    expect(kernels.usedBytes).toBe(used);
  });
});

const SCAN: ScanConfig = {
  ...{ numHeads: 4, numKeyHeads: 2, turns: false, keyDim: 3, valueDim: 5, order: "qkv", delta: true, decay: "head" },
  ...{ steps: [0, 1], write: "sigmoid", unitEps: 1e-6, scale: 1, skip: false, gate: "silu" },
  ...{ norm: { eps: 1e-5, groups: 4, shared: true, gateFirst: false }, gateRank: 0, stepRank: 0, gateScale: 1 },
  stepScale: 1,
};

test.each([
  [{ dModel: 0 }, "config.dModel expected an integer >= 1, got 0"],
  [{ taps: -1 }, "config.taps expected an integer from 0 to 16, got -1"],
  [{ taps: 17 }, "config.taps expected an integer from 0 to 16, got 17"],
  [{ taps: 0, scan: undefined }, "config.taps expected 1 or more without config.scan, got 0"],
  [{ scan: { numHeads: 5 } }, "config.scan.numKeyHeads expected a divisor of numHeads, 5, got 2"],
  [{ scan: { numHeads: 2 ** 31 } }, "config.scan.numHeads expected"],
  [{ scan: { keyDim: 0 } }, "config.scan.keyDim expected"],
  [{ scan: { valueDim: 1.5 } }, "config.scan.valueDim expected"],
  [{ scan: { order: "kqv" } }, "config.scan.order expected"],
  [{ scan: { decay: "row" } }, "config.scan.decay expected"],
  [{ scan: { write: "twice" } }, "config.scan.write expected"],
  [
    { scan: { write: "step", decay: "channel" } },
    'config.scan.write expected none of "step" unless decays are of heads',
  ],
  [{ scan: { gate: "gelu" } }, "config.scan.gate expected"],
  [{ scan: { delta: 1 } }, "config.scan.delta expected"],
  [{ scan: { steps: [1, 0] } }, "config.scan.steps expected 0 <= low <= high"],
  [{ scan: { steps: [-1, 1] } }, "config.scan.steps expected 0 <= low <= high"],
  [{ scan: { steps: [0, Number.NaN] } }, "config.scan.steps expected 0 <= low <= high"],
  [{ scan: { unitEps: -1 } }, "config.scan.unitEps expected"],
  [{ scan: { scale: Number.NaN } }, "config.scan.scale expected"],
  [{ scan: { gateRank: -1 } }, "config.scan.gateRank expected"],
  [{ scan: { norm: { ...SCAN.norm, eps: -1 } } }, "config.scan.norm.eps expected"],
] as const)("a configuration with %o is refused by name", (change, text) => {
  const given = {
    dModel: 8,
    taps: 4,
    ...change,
    scan: "scan" in change ? change.scan && { ...SCAN, ...change.scan } : SCAN,
  };
  expect(() => checkRecurrent("load", given as RecurrentConfig)).toThrow(`load: ${text}`);
});

test.each([
  ["mamba2", { time_step_limit: [0.9, 0.3] }, "time_step_limit expected two numbers, of which the first is at least 0"],
  ["mamba2", { time_step_limit: [-1, 1] }, "time_step_limit expected two numbers, of which the first is at least 0"],
  ["nemotron_h", { time_step_limit: [1] }, "time_step_limit expected two numbers, of which the first is at least 0"],
  ["mamba2", { n_groups: 4 }, "n_groups expected a divisor of num_heads, 6, got 4"],
  ["mamba2", { state_size: 0 }, "state_size expected an integer >= 1, got 0"],
  ["mamba2", { state_size: 2 ** 40 }, "state_size expected an integer from 1 to 2147483647, got 1099511627776"],
  ["mamba2", { conv_kernel: 17 }, "conv_kernel expected an integer from 1 to 16, got 17"],
  ["lfm2", { conv_L_cache: 1e9 }, "conv_L_cache expected an integer from 1 to 16, got 1000000000"],
  ["lfm2", { layer_types: ["conv", "ssm", "conv"] }, 'layer_types expected "conv" or "full_attention" for each layer'],
  [
    "qwen3_5_text",
    { linear_num_key_heads: 4 },
    "linear_num_key_heads expected a divisor of linear_num_value_heads, 6, got 4",
  ],
  ["qwen3_5_text", { linear_key_head_dim: -3 }, "linear_key_head_dim expected an integer >= 1, got -3"],
  ["granitemoehybrid", { mamba_d_state: "16" }, 'mamba_d_state expected an integer >= 1, got "16"'],
  ["falcon_h1", { mamba_n_heads: 7 }, "mamba_n_groups expected a divisor of mamba_n_heads, 7, got 2"],
  ["nemotron_h", { hybrid_override_pattern: "M-X*-" }, "hybrid_override_pattern of layer 2 expected one of"],
] as const)("%s with %o in config.json is refused by name", (name, change, text) => {
  expect(() => planModel({ ...HYBRIDS[name], ...change }, {})).toThrow(`planModel: ${text}`);
});
