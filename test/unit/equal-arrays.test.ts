import { expect, test } from "vitest";

const floats = (...words: number[]) => new Float32Array(Uint32Array.from(words).buffer);

test("toEqual tells arrays of other bytes, lengths and types apart, and takes a NaN for any other", () => {
  const numbers = Float32Array.of(1, -0, 3);
  expect(numbers).toEqual(numbers.slice());
  expect({ inner: [numbers] }).toEqual({ inner: [Float32Array.of(0, 1, -0, 3).subarray(1)] });
  for (const other of [
    Float32Array.of(1, -0, 4),
    Float32Array.of(1, 0, 3),
    Float32Array.of(1, -0),
    new Uint32Array(numbers.buffer),
  ])
    expect(numbers).not.toEqual(other);
  expect(floats(0x7fc00000, 0)).toEqual(floats(0x7fc12345, 0));
  expect(floats(0x7fc00000, 0)).not.toEqual(floats(0x7fc12345, 1));
});
