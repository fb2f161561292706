// The kernels of mixtures of experts.

import type { Reference } from "../wasm/abi.ts";
import { largestOf } from "./rows.ts";

/** out[i, :n] = x[slots[i] / topK, :n], for i in begin..end. */
export const gather_rows_f32: Reference["gather_rows_f32"] = (out, x, slots, topK, n, begin, end) => {
  for (let i = begin; i < end; i++) {
    const token = Math.floor(slots[i]! / topK);
    out.set(x.subarray(token * n, (token + 1) * n), i * n);
  }
};

/** out[slots[i] / topK, :n] += weights[slots[i]] · y[i, :n], for i in begin..end, in ascending order. */
export const scatter_rows_f32: Reference["scatter_rows_f32"] = (out, y, weights, slots, topK, n, begin, end) => {
  for (let i = begin; i < end; i++) {
    const slot = slots[i]!;
    const to = Math.floor(slot / topK) * n;
    for (let j = 0; j < n; j++) out[to + j] = out[to + j]! + weights[slot]! * y[i * n + j]!;
  }
};

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

function softmax(x: readonly number[]): number[] {
  const largest = Math.max(...x);
  const powers = x.map((v) => Math.exp(v - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((v) => v / sum);
}

/** The experts of tokens begin..end and their weights, in descending order of choice; logits become scores. */
export const route_f32: Reference["route_f32"] = (ids, weights, logits, _scratch, correction, shape, begin, end) => {
  const { experts, topK, stride, groups, keepGroups, pairs, renormalise, scale } = shape;
  const size = experts / groups;
  for (let t = begin; t < end; t++) {
    const row = [...logits.subarray(t * stride, t * stride + experts)];
    const scores = shape.sigmoid ? row.map(sigmoid) : softmax(row);
    logits.set(scores, t * stride);
    const choices = scores.map((score, e) => score + (correction ? correction[e]! : 0));
    const numbers = Array.from({ length: groups }, (_, g) =>
      [...choices.slice(g * size, (g + 1) * size).filter((choice) => !Number.isNaN(choice))].sort((a, b) => b - a),
    );
    const best = numbers.map(([first = -Infinity, second = -Infinity]) => (pairs ? first + second : first));
    const kept = new Set(largestOf(best, keepGroups));
    const candidates = [...choices.keys()].filter((e) => kept.has(Math.floor(e / size)));
    const chosen = largestOf(
      candidates.map((e) => choices[e]!),
      topK,
    ).map((place) => candidates[place]!);
    const sum = renormalise ? chosen.reduce((total, e) => total + scores[e]!, 1e-20) : 1;
    for (const [j, e] of chosen.entries()) {
      ids[t * topK + j] = e;
      weights[t * topK + j] = (scores[e]! / sum) * scale;
    }
  }
};
