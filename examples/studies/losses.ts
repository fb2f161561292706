/**
 * The loss in nats where a token is asked for: -log of the share that its row of logits gives to it.
 * @param logits [targets.length, vocabSize]
 * @param targets The token that each row is asked for, below 0 for none.
 */
export function lossesOf(logits: Float32Array, targets: readonly number[]): number[] {
  const vocabSize = logits.length / targets.length;
  return targets.flatMap((target, i) => {
    if (target < 0) return [];
    const row = logits.subarray(i * vocabSize, (i + 1) * vocabSize);
    const most = row.reduce((a, b) => Math.max(a, b));
    return most + Math.log(row.reduce((sum, logit) => sum + Math.exp(logit - most), 0)) - row[target]!;
  });
}

/** What each token of a text is asked for: the next one, and the last token nothing. */
export const nextOf = (ids: readonly number[]): number[] => [...ids.slice(1), -1];
