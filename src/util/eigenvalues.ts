/** Eigenvalues real[i] + imaginary[i]·√-1. */
export interface Eigenvalues {
  readonly real: Float64Array;
  readonly imaginary: Float64Array;
}

/** Steps for one eigenvalue that are never reached with finite numbers: two or three are usual. */
const MOST_STEPS = 60;

/** Every so many steps without success, other shifts are tried. */
const PATIENCE = 10;

/**
 * The eigenvalues of a real matrix [size, size] of finite numbers, in no particular order; complex ones come in pairs a ± b·√-1.
 * Reflections make the matrix a Hessenberg matrix, and QR steps with two shifts at once split off one or two eigenvalues at a time
 * (Francis 1961; Golub and Van Loan, Matrix Computations, 7.5). It uses + - * / and square roots alone, so that every engine gets
 * the same bits. The time grows as size³. Eigenvalues that are not found, because the matrix has NaN, are NaN.
 * @param matrix Row by row; it is not changed.
 */
export function eigenvaluesOf(matrix: ArrayLike<number>, size: number): Eigenvalues {
  const a = Float64Array.from(matrix);
  for (let c = 0; c < size - 2; c++) {
    const column = Array.from({ length: size - c - 1 }, (_, i) => a[(c + 1 + i) * size + c] as number);
    reflect(a, size, column, c + 1, [c, size], [0, size]);
  }
  const [real, imaginary] = [new Float64Array(size).fill(Number.NaN), new Float64Array(size).fill(Number.NaN)];
  for (let last = size - 1, steps = 0; last >= 0 && steps < MOST_STEPS; steps++) {
    const first = blockBegin(a, size, last);
    if (first < last - 1) {
      step(a, size, first, last, steps % PATIENCE === PATIENCE - 1);
      continue;
    }
    if (first === last) [real[last], imaginary[last]] = [a[last * size + last] as number, 0];
    else {
      const { half, root, product } = pairOf(a, size, last);
      const spread = Math.sqrt(Math.abs(root));
      // Of two real ones the smaller is product / larger, which does not cancel.
      const larger = half + (half < 0 ? -spread : spread);
      const both = root < 0 ? [half, half] : [larger, larger === 0 ? 0 : product / larger];
      real.set(both, first);
      imaginary.set(root < 0 ? [spread, -spread] : [0, 0], first);
    }
    last = first - 1;
    steps = -1;
  }
  return { real, imaginary };
}

/**
 * a = H·a·H in place, where the reflection H = I - 2·v·vᵀ / |v|² turns `x`, at rows and columns `at` and on, into a multiple of the
 * first unit vector. Only the given columns of the left product and rows of the right one are not known to be 0, or needed.
 */
function reflect(
  a: Float64Array,
  size: number,
  x: readonly number[],
  at: number,
  columns: readonly [begin: number, end: number],
  rows: readonly [begin: number, end: number],
): void {
  const norm = Math.sqrt(x.reduce((sum, value) => sum + value * value, 0));
  if (norm === 0) return;
  const [first = 0] = x;
  const v = Float64Array.from(x);
  v[0] = first + (first < 0 ? -norm : norm);
  // |v|² / 2.
  const half = norm * (norm + Math.abs(first));
  const apply = (begin: number, step: number) => {
    let sum = 0;
    for (let i = 0; i < v.length; i++) sum += (v[i] as number) * (a[begin + i * step] as number);
    for (let i = 0; i < v.length; i++) a[begin + i * step]! -= (sum / half) * (v[i] as number);
  };
  for (let c = columns[0]; c < columns[1]; c++) apply(at * size + c, size);
  for (let r = rows[0]; r < rows[1]; r++) apply(r * size + at, 1);
}

/** The first row of the last block that no negligible entry below the diagonal divides. Sets that entry to 0. */
function blockBegin(a: Float64Array, size: number, last: number): number {
  for (let row = last; row > 0; row--) {
    const beside = Math.abs(a[(row - 1) * (size + 1)] as number) + Math.abs(a[row * (size + 1)] as number);
    const below = row * size + row - 1;
    if (Math.abs(a[below] as number) > 2 ** -52 * beside || Number.isNaN(beside)) continue;
    a[below] = 0;
    return row;
  }
  return 0;
}

/** The eigenvalues half ± √root, and their product, of the two rows and columns that end with `last`. */
function pairOf(a: Float64Array, size: number, last: number): { half: number; root: number; product: number } {
  const [p, q] = [a[(last - 1) * size + last - 1] as number, a[(last - 1) * size + last] as number];
  const [r, s] = [a[last * size + last - 1] as number, a[last * size + last] as number];
  const apart = (p - s) / 2;
  return { half: (p + s) / 2, root: apart * apart + q * r, product: p * s - q * r };
}

/** One QR step with two shifts on rows and columns first..last, three or more. */
function step(a: Float64Array, size: number, first: number, last: number, other: boolean): void {
  const entry = (row: number, column: number) => a[row * size + column] as number;
  const { half, product } = pairOf(a, size, last);
  const below = Math.abs(entry(last, last - 1)) + Math.abs(entry(last - 1, last - 2));
  // Sum and product of the shifts.
  const [sum, times] = other ? [1.5 * below, below * below] : [2 * half, product];
  const [h, next] = [entry(first, first), entry(first + 1, first)];
  // The first column of (A - shift)·(A - other shift), which has no more entries.
  let x = [
    h * h + entry(first, first + 1) * next - sum * h + times,
    next * (h + entry(first + 1, first + 1) - sum),
    next * entry(first + 2, first + 1),
  ];
  for (let at = first; at < last; at++) {
    reflect(a, size, x, at, [Math.max(first, at - 1), last + 1], [first, Math.min(at + 3, last) + 1]);
    // What the reflection left below the diagonal goes one row further.
    x = Array.from({ length: Math.min(3, last - at) }, (_, i) => entry(at + 1 + i, at));
  }
}
