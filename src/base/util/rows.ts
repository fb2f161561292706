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

/** Rows begin..end of what they belong to. */
export type RowSpan = readonly [begin: number, end: number];

/** The rows of several sequences and calls as one list. */
export interface RowList<Of> {
  readonly total: number;
  /** The runs that make up rows begin..end of the list. */
  runs(begin: number, end: number): readonly RowRun<Of>[];
}

/** The list of the rows that `spansOf` gives for each of `all`. */
export function listRows<Of>(all: readonly Of[], spansOf: (of: Of) => readonly RowSpan[]): RowList<Of> {
  const spans: RowRun<Of>[] = [];
  let total = 0;
  for (const of of all)
    for (const [begin, end] of spansOf(of)) {
      spans.push({ of, begin, end, at: total });
      total += end - begin;
    }
  return {
    total,
    runs(from, to) {
      const runs: RowRun<Of>[] = [];
      for (const { of, begin, end, at } of spans) {
        const [first, last] = [Math.max(from, at), Math.min(to, at + end - begin)];
        if (first < last) runs.push({ of, begin: begin + first - at, end: begin + last - at, at: first - from });
      }
      return runs;
    },
  };
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
