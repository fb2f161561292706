// Rows of tokens. The rows of several sequences and calls form one list, which is processed in chunks.

/** The most rows of a chunk: enough to fill the tiles, and to read the weights seldom. */
export const CHUNK_ROWS = 256;

/** Cuts rows into chunks of up to `most` rows. */
export function* chunksOf(rows: number, most: number): Generator<readonly [begin: number, end: number], void, void> {
  for (let begin = 0; begin < rows; begin += most) yield [begin, Math.min(rows, begin + most)];
}

/**
 * Copies `width` floats of each row of `from`, whose rows lie `fromStride` floats apart, to rows of `to` that begin at `at`
 * and lie `toStride` apart.
 */
export function copyRows(
  to: Float32Array,
  at: number,
  toStride: number,
  from: Float32Array,
  fromStride: number,
  width: number,
): void {
  if (width === fromStride && width === toStride) to.set(from, at);
  else
    for (let row = 0, into = at; row < from.length; row += fromStride, into += toStride)
      to.set(from.subarray(row, row + width), into);
}

/** Rows begin..end of `of`, the first of which is row `at` of its chunk. */
export interface RowRun<Of> {
  readonly of: Of;
  readonly begin: number;
  readonly end: number;
  readonly at: number;
}

/** The runs of rows that make up rows begin..end of a list of all rows of `all`, `rowsOf` rows each. */
export function runsOf<Of>(
  all: readonly Of[],
  rowsOf: (of: Of) => number,
  begin: number,
  end: number,
): readonly RowRun<Of>[] {
  const runs: RowRun<Of>[] = [];
  let first = 0;
  for (const of of all) {
    const next = first + rowsOf(of);
    const [from, to] = [Math.max(begin, first), Math.min(end, next)];
    if (from < to) runs.push({ of, begin: from - first, end: to - first, at: from - begin });
    first = next;
  }
  return runs;
}

/** How many rows runs have together. */
export function rowsIn(runs: readonly RowRun<unknown>[]): number {
  return runs.reduce((rows, { begin, end }) => rows + end - begin, 0);
}

/** Tokens from..to of one batch row, the first of which is row `at` of its chunk. */
export interface TokenRun {
  readonly batchRow: number;
  readonly from: number;
  readonly to: number;
  readonly at: number;
}

/** Cuts a run of rows of [batch, len] into runs of one batch row each. */
export function tokenRunsOf({ begin, end, at }: RowRun<unknown>, len: number): readonly TokenRun[] {
  const runs: TokenRun[] = [];
  for (let row = begin; row < end; ) {
    const batchRow = Math.floor(row / len);
    const from = row - batchRow * len;
    const to = Math.min(len, from + end - row);
    runs.push({ batchRow, from, to, at: at + row - begin });
    row += to - from;
  }
  return runs;
}
