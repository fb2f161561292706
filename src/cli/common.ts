// What several commands need, and whoever uses the library does not.

/** Text without control characters, which a terminal would interpret: names come from files. */
export function plainText(text: string): string {
  return text.replace(/[\p{Cc}\p{Bidi_Control}]/gu, "\uFFFD");
}

/** The median, or the upper one of two middle values. */
export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] as number;
}

/** Numbers in [-1, 1) as float32, the same on every engine: `seededFloats(seed)(length)` gives the next ones. */
export function seededFloats(seed: number): (length: number) => Float32Array {
  let state = seed * 7919 + 17;
  return (length) => {
    const values = new Float32Array(length);
    for (let i = 0; i < length; i++) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      values[i] = 2 * (state / 2 ** 32) - 1;
    }
    return values;
  };
}
