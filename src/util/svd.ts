/**
 * The singular value decomposition A = left · diag(values) · right of A [rows, columns], without what is 0: the singular
 * values that are at most 2^-46 of the largest.
 */
export interface Svd {
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
