import { expect, test } from "vitest";
import { decompose } from "../../../../src/base/util/linear-algebra.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";

const random = createRandom(3);
const uniform = (length: number) => Float64Array.from({ length }, () => 2 * random.next() - 1);

/** a [rows, inner] · b [inner, columns]. */
function multiply(a: Float64Array, b: Float64Array, rows: number, inner: number, columns: number): Float64Array {
  return Float64Array.from({ length: rows * columns }, (_, at) => {
    const [r, c] = [Math.floor(at / columns), at % columns];
    let sum = 0;
    for (let i = 0; i < inner; i++) sum += a[r * inner + i]! * b[i * columns + c]!;
    return sum;
  });
}

/** The largest distance of two arrays' elements. */
const distance = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((most, x, i) => Math.max(most, Math.abs(x - b[i]!)), 0);

/** The largest distance of the products of `count` vectors from 1 and 0; element e of vector i is at(i, e). */
function skew(count: number, length: number, at: (i: number, e: number) => number): number {
  let most = 0;
  for (let i = 0; i < count; i++)
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      for (let e = 0; e < length; e++) sum += at(i, e) * at(j, e);
      most = Math.max(most, Math.abs(sum - (i === j ? 1 : 0)));
    }
  return most;
}

function check(
  { rank, values, left, right }: ReturnType<typeof decompose>,
  matrix: Float64Array,
  rows: number,
  columns: number,
): void {
  expect([values.length, left.length, right.length]).toEqual([rank, rows * rank, rank * columns]);
  expect(values.every((value, i) => value > 0 && (i === 0 || value <= values[i - 1]!))).toBe(true);
  const scaled = left.map((x, at) => x * values[at % rank]!);
  const largest = values[0] ?? 0;
  expect(distance(multiply(scaled, right, rows, rank, columns), matrix)).toBeLessThanOrEqual(2 ** -44 * largest);
  // Of the two, the vectors of the longer side are as exact as the singular value allows.
  const worst = 2 ** -43 * (rank === 0 ? 1 : largest / values[rank - 1]!);
  expect(skew(rank, columns, (i, c) => right[i * columns + c]!)).toBeLessThan(worst);
  expect(skew(rank, rows, (i, r) => left[r * rank + i]!)).toBeLessThan(worst);
  const short =
    rows >= columns
      ? skew(rank, columns, (i, c) => right[i * columns + c]!)
      : skew(rank, rows, (i, r) => left[r * rank + i]!);
  expect(short).toBeLessThan(2 ** -43);
}

test.each([
  [1, 1],
  [1, 7],
  [7, 1],
  [3, 5],
  [5, 3],
  [16, 16],
  [40, 17],
  [17, 40],
])(
  "a random matrix [%i, %i] is the product of its parts within 2^-44 of it, with orthonormal vectors",
  (rows, columns) => {
    const matrix = uniform(rows * columns);
    const before = matrix.slice();
    const result = decompose(matrix, rows, columns);
    expect(result.rank).toBe(Math.min(rows, columns));
    check(result, matrix, rows, columns);
    expect(matrix).toEqual(before);
    // The sum of the squares is that of the matrix.
    const squares = (numbers: Float64Array) => numbers.reduce((sum, x) => sum + x * x, 0);
    expect(squares(result.values) / squares(matrix)).toBeCloseTo(1, 12);
  },
);

test("singular values of known matrices", () => {
  const valuesOf = (rows: number, columns: number, ...matrix: number[]) =>
    Array.from(decompose(Float64Array.from(matrix), rows, columns).values);
  expect(valuesOf(2, 2, 3, 0, 0, -4)).toEqual([4, 3]);
  expect(valuesOf(1, 2, 3, 4)).toEqual([5]);
  expect(valuesOf(2, 1, 3, 4)).toEqual([5]);
  // [[4, 0], [3, -5]] has A·Aᵀ = [[16, 12], [12, 34]], with the eigenvalues 40 and 10.
  const [first, second] = valuesOf(2, 2, 4, 0, 3, -5);
  expect([first! * first!, second! * second!].map((x) => x.toFixed(10))).toEqual(["40.0000000000", "10.0000000000"]);
  // Equal singular values.
  expect(valuesOf(3, 3, 0, 0, 2, 0, 2, 0, 2, 0, 0)).toEqual([2, 2, 2]);
});

test("a matrix that was made with given singular values has them within 2^-44 of the largest", () => {
  // Orthonormal vectors of another matrix's decomposition.
  const { left } = decompose(uniform(30 * 12), 30, 12);
  const { right } = decompose(uniform(12 * 20), 12, 20);
  const wanted = Float64Array.from({ length: 12 }, (_, i) => 4 ** -i);
  const matrix = multiply(
    left.map((x, at) => x * wanted[at % 12]!),
    right,
    30,
    12,
    20,
  );
  const result = decompose(matrix, 30, 20);
  expect(result.rank).toBe(12);
  expect(distance(result.values, wanted)).toBeLessThan(2 ** -44);
  check(result, matrix, 30, 20);
});

test.each([
  [20, 12, 5],
  [12, 20, 5],
  [9, 9, 1],
])("a matrix [%i, %i] of rank %i has as many singular values", (rows, columns, rank) => {
  const matrix = multiply(uniform(rows * rank), uniform(rank * columns), rows, rank, columns);
  const result = decompose(matrix, rows, columns);
  expect(result.rank).toBe(rank);
  check(result, matrix, rows, columns);
});

test("zeros have no singular value, and equal rows have one", () => {
  expect(decompose(new Float64Array(12), 3, 4)).toEqual({
    ...{ rank: 0, values: new Float64Array(0), left: new Float64Array(0), right: new Float64Array(0) },
  });
  const equal = decompose(Float64Array.of(1, 2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2), 4, 3);
  expect([equal.rank, equal.values[0]]).toEqual([1, 6]);
});

test("truncation is the best approximation: what is lost is the rest of the singular values", () => {
  const [rows, columns] = [14, 10];
  const matrix = uniform(rows * columns);
  const { rank, values, left, right } = decompose(matrix, rows, columns);
  for (const kept of [1, 4, 9]) {
    const scaled = left.map((x, at) => (at % rank < kept ? x * values[at % rank]! : 0));
    const lost = multiply(scaled, right, rows, rank, columns).reduce((sum, x, at) => sum + (x - matrix[at]!) ** 2, 0);
    const rest = values.slice(kept).reduce((sum, value) => sum + value ** 2, 0);
    expect(lost / rest).toBeCloseTo(1, 10);
  }
});

test("numbers as large and as small as float32 has them", () => {
  const { values } = decompose(Float64Array.of(1e38, 0, 0, 1e30), 2, 2);
  expect(Array.from(values)).toEqual([1e38, 1e30]);
  const tiny = Float64Array.of(3e-45, 0, 4e-45, 0);
  expect(decompose(tiny, 2, 2).values[0]).toBeCloseTo(5e-45, 55);
});
