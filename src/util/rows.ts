// Rows of tokens: those of several sequences and calls lie one behind the other and are worked on in chunks.

/** Rows of a chunk, at most: enough for the tiles to be full and for the weights to be read seldom. */
export const CHUNK_ROWS = 256;

/** Cuts rows into chunks of up to `most`. */
export function* chunksOf(rows: number, most: number): Generator<readonly [begin: number, end: number], void, void> {
  for (let begin = 0; begin < rows; begin += most) yield [begin, Math.min(rows, begin + most)];
}

/** Rows begin..end of `of`, which lie at row `at` of their chunk. */
export interface RowRun<Of> {
  readonly of: Of;
  readonly begin: number;
  readonly end: number;
  readonly at: number;
}

/** Whose rows a chunk begin..end holds, where each of `all` has `rowsOf` rows, one behind the other. */
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

/** Tokens from..to of one batch row; the first lies at row `at` of its chunk. */
export interface TokenRun {
  readonly batchRow: number;
  readonly from: number;
  readonly to: number;
  readonly at: number;
}

/** Cuts a run of rows of [batch, len] at the batch rows. */
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
