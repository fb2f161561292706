// Singular values and eigenvalues of small matrices, in float64.

/**
 * The singular value decomposition A = left · diag(values) · right of A [rows, columns], without what is 0: the singular
 * values that are at most 2^-46 of the largest.
 */
interface Svd {
  /** The number of singular values that are not 0. */
  readonly rank: number;
  /** The singular values, [rank], the largest first. */
  readonly values: Float64Array;
  /** [rows, rank]; column i is orthonormal to the others within about 2^-46·values[0] / values[i]. */
  readonly left: Float64Array;
  /** [rank, columns] with orthonormal rows. */
  readonly right: Float64Array;
}

/** Rows whose cosine is below this count as orthogonal. */
const ORTHOGONAL = 2 ** -46;

/** What is below this fraction of the matrix is the rounding of rotations. */
const NEGLIGIBLE = 2 ** -46;

/** Sweeps that are never reached: rows become orthogonal quadratically, within about ten. */
const MOST_SWEEPS = 60;

/**
 * Decomposes a matrix of finite numbers by one-sided Jacobi rotations: a QR decomposition with column pivoting, and rotations
 * of pairs of rows of R until all are orthogonal (Drmac and Veselic 2008). It uses + - * / and square roots alone, whose
 * results IEEE 754 determines, so that every engine gets the same bits. The time grows as min(rows, columns)^2·max.
 * @param matrix A, row by row; it is not changed.
 */
export function decompose(matrix: Float64Array, rows: number, columns: number): Svd {
  if (rows >= columns) return decomposeTall(transpose(matrix, rows, columns), matrix, rows, columns);
  const { rank, values, left, right } = decomposeTall(matrix, transpose(matrix, rows, columns), columns, rows);
  return { rank, values, left: transpose(right, rank, rows), right: transpose(left, columns, rank) };
}

function transpose(matrix: Float64Array, rows: number, columns: number): Float64Array {
  const turned = new Float64Array(matrix.length);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) turned[c * rows + r] = matrix[r * columns + c] as number;
  return turned;
}

/** `decompose` for rows >= columns, given the transpose as well. */
function decomposeTall(turned: Float64Array, matrix: Float64Array, rows: number, columns: number): Svd {
  // The right vectors of A·P = Q·R are those of R, whose rows become orthogonal within few sweeps, because they get shorter.
  const { triangle, order } = triangleOf(turned.slice(), rows, columns);
  const squares = orthogonalize(triangle, columns);
  const longest = Array.from(squares.keys())
    .filter((row) => squares[row] !== 0)
    .sort((a, b) => (squares[b] as number) - (squares[a] as number));
  const rank = longest.length;
  const values = Float64Array.from(longest, (row) => Math.sqrt(squares[row] as number));
  const right = new Float64Array(rank * columns);
  for (const [i, row] of longest.entries())
    for (const [c, column] of order.entries())
      right[i * columns + column] = (triangle[row * columns + c] as number) / (values[i] as number);
  const left = new Float64Array(rows * rank);
  for (let row = 0; row < rows; row++)
    for (let i = 0; i < rank; i++)
      left[row * rank + i] = dot(matrix, row * columns, right, i * columns, columns) / (values[i] as number);
  return { rank, values, left, right };
}

/**
 * The triangular factor R [columns, columns] of a matrix with its columns in `order`, by Householder reflections that take
 * the longest remaining column first. `work` is the matrix, column by column; it is overwritten.
 */
function triangleOf(
  work: Float64Array,
  rows: number,
  columns: number,
): { triangle: Float64Array; order: readonly number[] } {
  const order = Array.from({ length: columns }, (_, c) => c);
  const squares = Float64Array.from(order, (c) => dot(work, c * rows, work, c * rows, rows));
  for (let c = 0; c < columns; c++) {
    const pivot = bringLongest(work, squares, c, rows);
    [order[c], order[pivot]] = [order[pivot] as number, order[c] as number];
    const at = c * rows + c;
    const length = rows - c;
    const norm = Math.sqrt(dot(work, at, work, at, length));
    if (norm === 0) continue;
    const first = work[at] as number;
    const diagonal = first > 0 ? -norm : norm;
    // The vector v of the reflection I - 2·v·vᵀ / |v|², in place; |v|² = 2·norm·(norm + |first|).
    work[at] = first - diagonal;
    const half = norm * (norm + Math.abs(first));
    for (let other = c + 1; other < columns; other++) {
      const to = other * rows + c;
      subtract(work, to, work, at, dot(work, at, work, to, length) / half, length);
      // Only the order depends on it, so its rounding does not matter.
      squares[other] = (squares[other] as number) - (work[to] as number) * (work[to] as number);
    }
    work[at] = diagonal;
    work.fill(0, at + 1, at + length);
  }
  const triangle = new Float64Array(columns * columns);
  for (let r = 0; r < columns; r++)
    for (let c = r; c < columns; c++) triangle[r * columns + c] = work[c * rows + r] as number;
  return { triangle, order };
}

/** Rotates the rows of a square matrix until all are orthogonal. Returns their squared lengths; 0 for negligible rows. */
function orthogonalize(work: Float64Array, size: number): Float64Array {
  const squares = new Float64Array(size);
  for (let sweep = 0; sweep < MOST_SWEEPS; sweep++) {
    // Anew in each sweep, because updating them adds up roundings.
    for (let r = 0; r < size; r++) squares[r] = dot(work, r * size, work, r * size, size);
    const least = leastOf(squares);
    let rotated = false;
    for (let p = 0; p < size; p++) {
      bringLongest(work, squares, p, size);
      if (!((squares[p] as number) > least)) break;
      for (let q = p + 1; q < size; q++) if (rotate(work, squares, p, q, size, least)) rotated = true;
    }
    if (!rotated) break;
  }
  const least = leastOf(squares);
  return squares.map((square) => (square > least ? square : 0));
}

/** The squared length up to which a row is negligible beside the longest. */
function leastOf(squares: Float64Array): number {
  return squares.reduce((most, square) => Math.max(most, square), 0) * NEGLIGIBLE * NEGLIGIBLE;
}

/** Exchanges row p with the longest of those from it on. Returns where that was. */
function bringLongest(work: Float64Array, squares: Float64Array, p: number, width: number): number {
  let longest = p;
  for (let q = p + 1; q < squares.length; q++) if ((squares[q] as number) > (squares[longest] as number)) longest = q;
  if (longest === p) return p;
  const row = work.slice(p * width, (p + 1) * width);
  work.copyWithin(p * width, longest * width, (longest + 1) * width);
  work.set(row, longest * width);
  const square = squares[p] as number;
  squares[p] = squares[longest] as number;
  squares[longest] = square;
  return longest;
}

/** Makes rows p and q orthogonal, of which p stays the longer one. Returns whether they were not. */
function rotate(
  work: Float64Array,
  squares: Float64Array,
  p: number,
  q: number,
  width: number,
  least: number,
): boolean {
  const a = squares[p] as number;
  const b = squares[q] as number;
  if (!(b > least)) return false;
  const pAt = p * width;
  const qAt = q * width;
  const product = dot(work, pAt, work, qAt, width);
  if (Math.abs(product) <= ORTHOGONAL * Math.sqrt(a) * Math.sqrt(b)) return false;
  const zeta = (b - a) / (2 * product);
  const tangent = (zeta > 0 ? 1 : -1) / (Math.abs(zeta) + Math.sqrt(1 + zeta * zeta));
  const cosine = 1 / Math.sqrt(1 + tangent * tangent);
  const sine = cosine * tangent;
  for (let i = 0; i < width; i++) {
    const x = work[pAt + i] as number;
    const y = work[qAt + i] as number;
    work[pAt + i] = cosine * x - sine * y;
    work[qAt + i] = sine * x + cosine * y;
  }
  squares[p] = a - tangent * product;
  squares[q] = b + tangent * product;
  return true;
}

/** Σ x[i]·y[i] over `length` elements, in four sums. */
function dot(x: Float64Array, xAt: number, y: Float64Array, yAt: number, length: number): number {
  let s0 = 0;
  let s1 = 0;
  let s2 = 0;
  let s3 = 0;
  const whole = length - (length % 4);
  let i = 0;
  for (; i < whole; i += 4) {
    s0 += (x[xAt + i] as number) * (y[yAt + i] as number);
    s1 += (x[xAt + i + 1] as number) * (y[yAt + i + 1] as number);
    s2 += (x[xAt + i + 2] as number) * (y[yAt + i + 2] as number);
    s3 += (x[xAt + i + 3] as number) * (y[yAt + i + 3] as number);
  }
  for (; i < length; i++) s0 += (x[xAt + i] as number) * (y[yAt + i] as number);
  return s0 + s1 + (s2 + s3);
}

/** x -= factor·y over `length` elements. */
function subtract(x: Float64Array, xAt: number, y: Float64Array, yAt: number, factor: number, length: number): void {
  for (let i = 0; i < length; i++) x[xAt + i] = (x[xAt + i] as number) - factor * (y[yAt + i] as number);
}

/** Eigenvalues real[i] + imaginary[i]·√-1. */
interface Eigenvalues {
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
  const [real, imaginary] = [new Float64Array(size).fill(NaN), new Float64Array(size).fill(NaN)];
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
