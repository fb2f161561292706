// Two heads built by hand for one sentence: one of meaning, one of syntax.

import { type Kernels, scaledDotProductAttention, type Tensor } from "headwise";
import { zeros } from "./layers.ts";

export const TOKENS: readonly string[] = ["The", "cat", "sat", "on", "the", "mat", "because", "it", "was", "soft"];

/** A head whose scores are set by hand: which key a token looks at, and with what score. */
export interface HandHead {
  readonly name: string;
  readonly looks: Readonly<Record<string, readonly [key: string, score: number]>>;
}

export const HAND_HEADS: readonly HandHead[] = [
  { name: "Head 1 (semantic)", looks: { it: ["mat", 8], soft: ["mat", 6] } },
  { name: "Head 2 (syntactic)", looks: { sat: ["cat", 8], cat: ["sat", 6] } },
];

/** Their weights [heads, tokens, tokens]. A token's score with itself is 5, unless the head looks elsewhere; all others are 0. */
export function handWeights(kernels: Kernels): Tensor {
  const count = TOKENS.length;
  const bias = zeros(HAND_HEADS.length, count, count);
  for (const [head, { looks }] of HAND_HEADS.entries())
    for (const [query, token] of TOKENS.entries()) {
      const [key, score] = looks[token] ?? [token, 5];
      (bias.data as Float32Array)[(head * count + query) * count + TOKENS.indexOf(key)] = score;
    }
  const nothing = zeros(HAND_HEADS.length, count, 1);
  const { scores } = scaledDotProductAttention(kernels, nothing, nothing, nothing, { bias, scores: "weights" });
  return scores as Tensor;
}
