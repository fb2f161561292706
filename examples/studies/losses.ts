/**
 * The loss in nats at each place but the first: -log of the share that the place before gives to the token.
 * @param logits [ids.length, vocabSize]
 */
export function lossesOf(logits: Float32Array, ids: readonly number[]): number[] {
  const vocabSize = logits.length / ids.length;
  return ids.slice(1).map((id, i) => {
    const row = logits.subarray(i * vocabSize, (i + 1) * vocabSize);
    const most = row.reduce((a, b) => Math.max(a, b));
    return most + Math.log(row.reduce((sum, logit) => sum + Math.exp(logit - most), 0)) - row[id]!;
  });
}
