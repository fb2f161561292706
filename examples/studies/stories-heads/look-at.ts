// Where heads look.

import { detectionPattern, forwardWith, type HeadKind, headScores, meanRows, type Tensor } from "headwise/inspect";
import type { Session } from "headwise/models";
import { round } from "../study.ts";
import { LOOKS, type Story } from "./looks.ts";
import type { Grid, Head, LookResult } from "./result.ts";

const KINDS: Readonly<Record<string, HeadKind>> = {
  "previous word": "previous",
  "two back": { offset: 2 },
  "three back": { offset: 3 },
  itself: { offset: 0 },
  "same word before": "duplicate",
  induction: "induction",
  "begin token": "first",
};

export interface Seen {
  readonly kinds: Record<string, Grid>;
  readonly looks: readonly Pick<LookResult, "weights" | "before" | "uniform">[];
  /** The mean output [headDim] of a head over all words. */
  meanOf(head: Head): Float32Array;
}

/** One pass over the stories: weights of heads on the places of each look, their scores by patterns, their mean outputs. */
export function lookAt(session: Session, stories: readonly Story[]): Seen {
  const layers = Array.from({ length: session.model.layers }, (_, layer) => layer);
  const outputs: Tensor[][] = layers.map(() => []);
  const kinds = Object.keys(KINDS).map(() => new Mean());
  const weights = LOOKS.map(() => new Mean());
  const before = LOOKS.map(() => new Mean());
  const uniform = LOOKS.map(() => new Mean());
  for (const { words, ids, probes } of stories) {
    session.truncate(0);
    const capture = layers.map((layer) => ({ at: "z", layer }) as const);
    const { patterns, captured } = forwardWith(session, ids, { patterns: layers, capture });
    for (const layer of layers) outputs[layer]!.push(captured[layer]!);
    for (const [i, kind] of Object.values(KINDS).entries()) {
      const detection = detectionPattern(kind, ids);
      kinds[i]!.add(patterns.map((pattern) => headScores(pattern, detection)));
    }
    for (const [i, look] of LOOKS.entries())
      for (const { at } of probes.filter(({ name }) => look.probes.includes(name))) {
        const [from, to] = [look.from(words, at), look.to(words, at)];
        weights[i]!.add(patterns.map((pattern) => weightsOn(pattern, from, to)));
        for (const place of to) before[i]!.add(patterns.map((pattern) => weightsOn(pattern, place, [place - 1])));
        uniform[i]!.add([[to.length / (from + 1)]]);
      }
  }
  const means = outputs.map((rows) => meanRows(joinRows(rows)));
  return {
    kinds: Object.fromEntries(Object.keys(KINDS).map((name, i) => [name, kinds[i]!.grid()])),
    looks: LOOKS.map((_, i) => ({
      ...{ weights: weights[i]!.grid(), before: before[i]!.grid() },
      uniform: uniform[i]!.grid()[0]![0]!,
    })),
    meanOf({ layer, head }) {
      const headDim = means[layer]!.length / kinds[0]!.grid()[layer]!.length;
      return means[layer]!.subarray(head * headDim, (head + 1) * headDim);
    },
  };
}

/** What each head of a pattern [heads, n, n] gives from one place to some. */
function weightsOn({ data, shape }: Tensor, from: number, to: readonly number[]): number[] {
  const [heads, n] = shape as [number, number, number];
  return Array.from({ length: heads }, (_, head) => to.reduce((sum, at) => sum + data[(head * n + from) * n + at]!, 0));
}

/** Tensors [rows, width] one below the other. */
function joinRows(parts: readonly Tensor[]): Tensor {
  const rows = parts.reduce((sum, { shape }) => sum + shape[0]!, 0);
  const width = parts[0]!.shape[1]!;
  const data = new Float32Array(rows * width);
  let at = 0;
  for (const part of parts) {
    data.set(part.data, at);
    at += part.data.length;
  }
  return { data, shape: [rows, width] };
}

/** The mean of grids of one shape. */
class Mean {
  #sums: number[][] = [];
  #count = 0;

  add(grid: Grid): void {
    this.#sums = grid.map((row, i) => row.map((value, j) => value + (this.#sums[i]?.[j] ?? 0)));
    this.#count++;
  }

  grid(): Grid {
    return this.#sums.map((row) => row.map((sum) => round(sum / this.#count)));
  }
}
