// A recurrent layer in float64, as its configuration says it, and random layers.

import type { RecurrentConfig, ScanConfig } from "../../src/layers/recurrent/config.ts";
import { scanSizes } from "../../src/layers/recurrent/config.ts";
import {
  type RecurrentMatrix,
  type RecurrentVector,
  recurrentSizes,
  recurrentVectors,
} from "../../src/layers/recurrent/weights.ts";
import type { Random } from "../../src/tools/diagnostics/random.ts";
import { floats } from "./harness.ts";

/** Matrices [outputs, inputs], their biases, and vectors. */
export interface PlainRecurrent {
  readonly matrices: Readonly<Partial<Record<RecurrentMatrix, ArrayLike<number>>>>;
  readonly biases: Readonly<Partial<Record<RecurrentMatrix, ArrayLike<number>>>>;
  readonly vectors: Readonly<Partial<Record<RecurrentVector, ArrayLike<number>>>>;
}

/** A configuration that draws its sizes and rules. */
export function randomRecurrent(random: Random): RecurrentConfig {
  const pick = <T>(...from: readonly T[]) => from[random.int(0, from.length - 1)] as T;
  const some = (probability: number) => random.next() < probability;
  const dModel = random.int(3, 24);
  if (some(0.15)) return { dModel, taps: random.int(1, 7) };
  const numKeyHeads = random.int(1, 3);
  const numHeads = numKeyHeads * random.int(1, 3);
  const valueDim = random.int(1, 11);
  const delta = some(0.6);
  const decay = pick("constant", "head", "head", "channel");
  const scan: ScanConfig = {
    ...{ numHeads, numKeyHeads, valueDim, delta, decay, keyDim: random.int(1, 10), turns: some(0.3) },
    order: pick("qkv", "vkq"),
    steps: some(0.3) ? [0.2, 0.9] : [0, Number.POSITIVE_INFINITY],
    write: pick("sigmoid", "double-sigmoid", "whole", decay === "head" && !delta ? "step" : "whole"),
    // A value that replaces another does so for keys of at most length 1.
    unitEps: delta || some(0.3) ? 1e-6 : undefined,
    ...{ scale: pick(1, 0.3), skip: some(0.4), gate: pick("silu", "sigmoid", undefined) },
    norm: some(0.7) ? { eps: 1e-5, groups: pick(1, numHeads), shared: some(0.5), gateFirst: some(0.5) } : undefined,
    ...{ gateRank: pick(0, 0, 3), stepRank: pick(0, 0, 4), gateScale: pick(1, 0.7), stepScale: pick(1, 1.3) },
  };
  return { dModel, taps: random.int(0, 5), scan };
}

/** Weights that fit a configuration. */
export function randomRecurrentWeights(random: Random, config: RecurrentConfig) {
  const matrices: Partial<Record<RecurrentMatrix, Float32Array>> = {};
  const biases: Partial<Record<RecurrentMatrix, Float32Array>> = {};
  const vectors: Partial<Record<RecurrentVector, Float32Array>> = {};
  const isBiased = random.next() < 0.4;
  for (const [name, { n, k }] of Object.entries(recurrentSizes(config)) as [
    RecurrentMatrix,
    { n: number; k: number },
  ][]) {
    matrices[name] = floats(random, n * k).map((each) => each / Math.sqrt(k));
    if (isBiased) biases[name] = floats(random, n);
  }
  for (const [name, shape] of Object.entries(recurrentVectors(config)) as [RecurrentVector, readonly number[]][]) {
    const data = floats(
      random,
      shape.reduce((product, size) => product * size, 1),
    );
    // Rates are positive, and decays below 1.
    vectors[name] = name === "rate" ? data.map((each) => 0.9 / (1 + Math.abs(each))) : data;
  }
  return { matrices, biases, vectors };
}

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
const silu = (x: number): number => x * sigmoid(x);

/** y [rows, dModel] of x [rows, dModel] from the beginning of a sequence. */
export function recurrentReference(
  config: RecurrentConfig,
  weights: PlainRecurrent,
  x: ArrayLike<number>,
): Float64Array {
  const { dModel, taps, scan } = config;
  const { matrices, vectors } = weights;
  const sizes = recurrentSizes(config);
  const rows = x.length / dModel;
  const rowOf = (data: ArrayLike<number>, row: number, width: number) =>
    Array.from({ length: width }, (_, i) => data[row * width + i]!);
  const project = (name: RecurrentMatrix, from: readonly number[]): number[] => {
    const { n, k } = sizes[name] as { n: number; k: number };
    const w = matrices[name] as ArrayLike<number>;
    return Array.from({ length: n }, (_, o) =>
      from.reduce((sum, value, i) => sum + w[o * k + i]! * value, weights.biases[name]?.[o] ?? 0),
    );
  };
  const through = (down: RecurrentMatrix, name: RecurrentMatrix, from: readonly number[]) =>
    project(name, sizes[down] ? project(down, from) : from);
  const vector = (name: RecurrentVector, i: number): number => vectors[name]?.[i] ?? 0;
  const projected = Array.from({ length: rows }, (_, t) => project("in", rowOf(x, t, dModel)));
  const inputs = projected.map((row) => (scan ? row : row.slice(0, dModel).map((b, i) => b * row[2 * dModel + i]!)));
  const convolved = inputs.map((row, t) =>
    row.map((value, c) => {
      if (taps === 0) return value;
      let sum = vector("convBias", c);
      for (let j = 0; j < taps; j++) sum += vector("conv", c * taps + j) * (inputs[t + j - taps + 1]?.[c] ?? 0);
      return sum;
    }),
  );
  if (!scan)
    return Float64Array.from(
      convolved.flatMap((row, t) =>
        project(
          "out",
          row.map((y, i) => y * projected[t]![dModel + i]!),
        ),
      ),
    );

  const {
    numHeads,
    numKeyHeads,
    keyDim,
    valueDim,
    steps: [low, high],
  } = scan;
  const { q: qAt, k: kAt, v: vAt, values } = scanSizes(scan);
  const states = Array.from({ length: numHeads }, () => new Float64Array(keyDim * valueDim));
  const y: number[] = [];
  for (let t = 0; t < rows; t++) {
    const own = rowOf(x, t, dModel);
    const mixed = (convolved[t] as number[]).map(silu);
    const unit = (at: number) => {
      const part = mixed.slice(at, at + keyDim);
      if (scan.unitEps === undefined) return part;
      const length = Math.sqrt(part.reduce((sum, each) => sum + each * each, scan.unitEps));
      return part.map((each) => each / length);
    };
    const step = sizes.step
      ? through("stepDown", "step", own).map((each, i) => {
          const z = scan.stepScale * each + vector("stepBias", i);
          return Math.min(high, Math.max(low, Math.max(z, 0) + Math.log1p(Math.exp(-Math.abs(z)))));
        })
      : [];
    const write = sizes.write ? project("write", own).map(sigmoid) : [];
    const heads: number[] = [];
    for (let h = 0; h < numHeads; h++) {
      const from = scan.turns ? h % numKeyHeads : Math.floor(h / (numHeads / numKeyHeads));
      const [q, k] = [unit(qAt + from * keyDim), unit(kAt + from * keyDim)];
      const v = mixed.slice(vAt + h * valueDim, vAt + (h + 1) * valueDim);
      const state = states[h] as Float64Array;
      const decayOf = (i: number) => {
        if (scan.decay === "constant") return vector("rate", h);
        return Math.exp(-vector("rate", h) * (step[scan.decay === "channel" ? h * keyDim + i : h] as number));
      };
      for (let i = 0; i < keyDim; i++) for (let j = 0; j < valueDim; j++) state[i * valueDim + j]! *= decayOf(i);
      const factor = { step: step[h], sigmoid: write[h], "double-sigmoid": 2 * (write[h] ?? 0), whole: 1 }[
        scan.write
      ] as number;
      for (let j = 0; j < valueDim; j++) {
        const held = k.reduce((sum, each, i) => sum + each * state[i * valueDim + j]!, 0);
        const written = factor * (v[j]! - (scan.delta ? held : 0));
        for (let i = 0; i < keyDim; i++) state[i * valueDim + j]! += k[i]! * written;
        const read = q.reduce((sum, each, i) => sum + each * state[i * valueDim + j]!, 0);
        heads.push(scan.scale * read + (scan.skip ? vector("skip", h) * v[j]! : 0));
      }
    }
    const gate =
      sizes.gate &&
      through("gateDown", "gate", own).map((each) => (scan.gate === "silu" ? silu : sigmoid)(scan.gateScale * each));
    const gated = (row: number[]) => (gate ? row.map((each, i) => each * gate[i]!) : row);
    const { norm } = scan;
    const normed = (row: number[]) => {
      if (!norm) return row;
      const n = values / norm.groups;
      return row.map((each, i) => {
        const group = row.slice(i - (i % n), i - (i % n) + n);
        const mean = group.reduce((sum, one) => sum + one * one, 0) / n;
        return (each / Math.sqrt(mean + norm.eps)) * vector("norm", norm.shared ? i % n : i);
      });
    };
    y.push(...project("out", norm && !norm.gateFirst ? gated(normed(heads)) : normed(gated(heads))));
  }
  return Float64Array.from(y);
}
