// Tables outside of linear memory, as files store them: held as a whole, or left in the file, of which passes read their rows.

import { codedOf, type StoredTensor, toFloats } from "../../base/tensor/dtypes.ts";
import { rowsOf } from "../../base/tensor/matrix.ts";
import { throwUnder } from "../../base/util/errors.ts";
import { chunksOf } from "../../base/util/rows.ts";
import type { TensorReader } from "../../files/read-ahead.ts";
import type { ReadRow, StoredTable } from "../blocks/model.ts";

/** A piece of such a table that stays, in blocks whose scales are numbers; a view only of memory that stays, too. */
export function residentPiece(read: StoredTensor, stays: boolean): StoredTensor {
  const piece = codedOf(read);
  return stays || piece !== read ? piece : { ...piece, bytes: piece.bytes.slice() };
}

/** A table of `rows` rows in pieces of `step` rows each, all of them in memory. */
export function residentTable(where: string, pieces: readonly StoredTensor[], step: number): StoredTable {
  const row: ReadRow = (index) => {
    const at = index % step;
    const piece = pieces[Math.floor(index / step)] as StoredTensor;
    // Bytes that were given are not the model's own.
    if (piece.bytes.length === 0)
      throw new TypeError(`${where}: source expected bytes that stay while the model does, got transferred ones`);
    return toFloats(rowsOf(piece, at, at + 1), where);
  };
  return {
    held: () => row,
    fetch: async () => row,
    async *pieces() {
      for (const { bytes } of pieces) yield bytes;
    },
  };
}

/** Bytes of the rows that a table on demand holds for later passes: in 8 bits, those of 1,700 tokens of Gemma 4 E2B. */
const MOST_HELD = 2 ** 24;

/** Rows that lie so near to each other are read together. */
const GAP = 2 ** 15;

/** Reads that run at once. */
const TOGETHER = 8;

/** Rows of a table, and those that are read at a time where all are; bytes of a row in the file. */
interface TableSize {
  readonly rows: number;
  readonly step: number;
  readonly rowBytes: number;
}

/**
 * A table in a file that stays open. The rows of a chunk are in memory until it has read them, and those that were used last for the
 * passes behind it: `mostHeld` bytes of them, or a single row.
 */
export function tableOnDemand(
  file: TensorReader,
  name: string,
  { rows, rowBytes, step }: TableSize,
  mostHeld: number = MOST_HELD,
): StoredTable {
  const held = new Map<number, StoredTensor>();
  /** Makes a row the one that was used last. */
  const hold = (index: number, row: StoredTensor) => {
    held.delete(index);
    held.set(index, row);
    for (const oldest of held.keys()) {
      if (held.size === 1 || held.size * row.bytes.length <= mostHeld) break;
      held.delete(oldest);
    }
  };
  /** Those of the rows that are held, and the indices of the others in ascending order. */
  const find = (wanted: readonly number[]) => {
    const found = new Map<number, StoredTensor>();
    const missing: number[] = [];
    for (const index of new Set(wanted)) {
      const row = held.get(index);
      if (row === undefined) missing.push(index);
      else {
        found.set(index, row);
        hold(index, row);
      }
    }
    return { found, missing: missing.sort((a, b) => a - b) };
  };
  const readerOf =
    (found: ReadonlyMap<number, StoredTensor>): ReadRow =>
    (index) =>
      toFloats(found.get(index) as StoredTensor);
  return {
    held(wanted) {
      const { found, missing } = find(wanted);
      return missing.length > 0 ? undefined : readerOf(found);
    },
    async fetch(where, wanted) {
      const { found, missing } = find(wanted);
      const runs = runsOf(missing, 1 + GAP / rowBytes);
      const read = async () => {
        for (let run = runs.shift(); run; run = runs.shift()) {
          const [first] = run as [number];
          const piece = codedOf(await file.readRows(name, first, (run.at(-1) as number) + 1, where));
          for (const index of run) {
            const view = rowsOf(piece, index - first, index - first + 1);
            // A view of its own would keep the rows between.
            const row = { ...view, bytes: view.bytes.slice() };
            found.set(index, row);
            hold(index, row);
          }
        }
      };
      try {
        await Promise.all(Array.from({ length: TOGETHER }, read));
      } catch (error) {
        runs.length = 0;
        throwUnder(where, error);
      }
      return readerOf(found);
    },
    async *pieces(where) {
      for (const [begin, end] of chunksOf(rows, step))
        yield codedOf(await file.readRows(name, begin, end, where)).bytes;
    },
  };
}

/** Cuts ascending indices where more than `gap` lie between two of them. */
function runsOf(indices: readonly number[], gap: number): number[][] {
  const runs: number[][] = [];
  for (const index of indices) {
    const run = runs.at(-1);
    if (run && index - (run.at(-1) as number) <= gap) run.push(index);
    else runs.push([index]);
  }
  return runs;
}
