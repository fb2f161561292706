import type { Reference } from "../wasm/abi.ts";
import { largestOf } from "./top_k.ts";

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
