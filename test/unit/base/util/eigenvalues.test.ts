import { expect, test } from "vitest";
import { eigenvaluesOf } from "../../../../src/base/util/linear-algebra.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";

/** Pairs [real, imaginary], in order. */
const found = (matrix: ArrayLike<number>, size: number) => {
  const { real, imaginary } = eigenvaluesOf(matrix, size);
  return Array.from(real, (a, i) => [a, imaginary[i]!]).sort(([a, b], [c, d]) => a! - c! || b! - d!);
};

function expectNear(got: readonly number[][], want: readonly (readonly number[])[], within: number) {
  expect(got.length).toBe(want.length);
  for (const [i, [a, b]] of want.entries()) {
    expect(Math.abs(got[i]![0]! - a!)).toBeLessThan(within);
    expect(Math.abs(got[i]![1]! - b!)).toBeLessThan(within);
  }
}

test("are those of NumPy 2.4 within 1e-11", () => {
  const matrix = [
    ...[5, 7, -7, -6, -1, 1, 5, -3, -9, -5, -1, -2, 8, -1, 3, 2, -8, 4],
    ...[-9, -9, 2, -5, -3, 2, -7, -8, 4, 9, 3, 6, -2, -9, 3, 1, 5, 2],
  ];
  const want = [
    [-8.041641650183, -4.491355837655],
    [-8.041641650183, 4.491355837655],
    [-7.729961816821, 0],
    [5.952903841497, 0],
    [11.430170637845, -8.674053890633],
    [11.430170637845, 8.674053890633],
  ];
  expectNear(found(matrix, 6), want, 1e-11);
});

test.each<[string, readonly number[], readonly (readonly number[])[]]>([
  ["1 x 1", [-3], [[-3, 0]]],
  [
    "zeros",
    [0, 0, 0, 0],
    [
      [0, 0],
      [0, 0],
    ],
  ],
  [
    "a rotation",
    [0, -2, 2, 0],
    [
      [0, -2],
      [0, 2],
    ],
  ],
  [
    "two that nearly cancel",
    [1, 0, 0, 1e-9],
    [
      [1e-9, 0],
      [1, 0],
    ],
  ],
  [
    "a block of zeros above",
    [0, 1, 0, 0, 0, 1, 0, 0, 0],
    [
      [0, 0],
      [0, 0],
      [0, 0],
    ],
  ],
  [
    "a cycle, which steps without other shifts leave as it is",
    [0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0],
    [
      [-1, 0],
      [0, -1],
      [0, 1],
      [1, 0],
    ],
  ],
])("of %s", (_, matrix, want) => {
  const near = found(matrix, want.length).map((pair) => pair.map((x) => (Math.abs(x) < 1e-13 ? 0 : x)));
  expectNear(
    near.sort(([a, b], [c, d]) => a! - c! || b! - d!),
    want,
    1e-14,
  );
});

test.each([3, 16, 64])(
  "of a random matrix of %i rows: their sum is its trace, that of their squares the trace of A·A",
  (n) => {
    const random = createRandom(n);
    const matrix = Float64Array.from({ length: n * n }, () => random.normal());
    const { real, imaginary } = eigenvaluesOf(matrix, n);
    let [trace, square] = [0, 0];
    for (let i = 0; i < n; i++) {
      trace += matrix[i * n + i]!;
      for (let j = 0; j < n; j++) square += matrix[i * n + j]! * matrix[j * n + i]!;
    }
    const sum = (values: Float64Array) => values.reduce((total, value) => total + value, 0);
    expect(Math.abs(sum(real) - trace)).toBeLessThan(1e-13 * n * n);
    expect(sum(imaginary)).toBe(0);
    expect(Math.abs(sum(real.map((a, i) => a * a - imaginary[i]! ** 2)) - square)).toBeLessThan(1e-13 * n * n);
  },
);

test("of a matrix that was made of them, within 1e-12", () => {
  // Columns of a basis near the identity, times 1..n on the diagonal, by its inverse: a series.
  const n = 12;
  const random = createRandom(4);
  const off = Float64Array.from({ length: n * n }, () => 0.02 * random.normal());
  const times = (a: Float64Array, b: Float64Array) =>
    Float64Array.from({ length: n * n }, (_, at) => {
      let sum = 0;
      for (let k = 0; k < n; k++) sum += a[Math.floor(at / n) * n + k]! * b[k * n + (at % n)]!;
      return sum;
    });
  const identity = Float64Array.from({ length: n * n }, (_, at) => Number(at % (n + 1) === 0));
  const basis = identity.map((x, i) => x + off[i]!);
  let inverse = identity;
  for (let k = 0; k < 40; k++) inverse = times(off, inverse).map((x, i) => identity[i]! - x);
  const diagonal = identity.map((x, i) => x * (1 + (i % n)));
  const want = Array.from({ length: n }, (_, i) => [i + 1, 0]);
  expectNear(found(times(times(basis, diagonal), inverse), n), want, 1e-12);
});

test("a matrix with NaN has no eigenvalues, and ends", () => {
  expect(eigenvaluesOf([1, 2, 3, 4, Number.NaN, 6, 7, 8, 9], 3).real.every(Number.isNaN)).toBe(true);
});

test("the matrix stays as it is", () => {
  const matrix = Float64Array.of(1, 2, 3, 4, 5, 6, 7, 8, 10);
  eigenvaluesOf(matrix, 3);
  expect([...matrix]).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 10]);
});
