// Whether a peer computes the same decoder.

/** The largest part of the largest logit by which float32 variants may differ: some keep caches in float16. */
const MOST_ERROR = 1e-3;

/**
 * The largest difference between logits, relative to the largest of `expected`. Both are centred: what softmax is given may
 * differ by a number.
 */
export function errorOf(logits: Float32Array, expected: Float32Array): number {
  if (logits.length !== expected.length) throw new Error(`${expected.length} logits expected, got ${logits.length}`);
  const mean = (values: Float32Array) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [ownMean, expectedMean] = [mean(logits), mean(expected)];
  let [most, largest] = [0, 0];
  for (let i = 0; i < expected.length; i++) {
    const wanted = expected[i]! - expectedMean;
    largest = Math.max(largest, Math.abs(wanted));
    // NaN counts as an infinite difference.
    const difference = Math.abs(logits[i]! - ownMean - wanted);
    most = Math.max(most, Number.isNaN(difference) ? Number.POSITIVE_INFINITY : difference);
  }
  return most / largest;
}

/** Throws unless a float32 variant has the logits and greedy tokens of headwise. */
export function expectExact(error: number, greedy: readonly number[], expected: readonly number[]): void {
  if (error > MOST_ERROR) throw new Error(`wrong logits: the error is ${error.toExponential(1)}`);
  if (greedy.join() !== expected.join()) throw new Error(`other greedy tokens: ${greedy.join(" ")}`);
}
