import { type ByteSource, createArray, readRange } from "./byte-source.ts";
import { PIECE } from "./store.ts";
import type { TensorFile } from "./tensor-file.ts";

/**
 * What reads the tensors of all files. The bytes that a read gives are overwritten by the next one, those of `readRows` by the one
 * behind the next, if that is `readRows` too.
 */
export type TensorReader = Pick<TensorFile<unknown>, "readAll" | "readRows">;

/**
 * Memory that is read into again and again. A fresh array for each read costs more than the read: its pages are mapped first,
 * and it is held until the engine collects it. There are two, so that rows can be read while those before them are used.
 */
export class ReadBuffer {
  #bytes: Uint8Array = new Uint8Array();
  #other: Uint8Array = new Uint8Array();
  #taken = 0;
  #settled = false;

  /** From now on, arrays that were taken are overwritten. */
  reuse(): void {
    this.#taken = 0;
  }

  /** From now on, arrays are overwritten that were taken before the last call. */
  turn(): void {
    [this.#bytes, this.#other] = [this.#other, this.#bytes];
    this.#taken = 0;
  }

  /** From now on, each array has memory of its own. */
  settle(): void {
    this.#settled = true;
    this.#bytes = new Uint8Array();
    this.#other = this.#bytes;
  }

  /** An array of `length` bytes, at a multiple of 8 of its buffer. Throws OUT_OF_MEMORY if the engine cannot allocate it. */
  take(where: string, length: number): Uint8Array {
    if (this.#settled) return createArray(where, length);
    if (this.#taken + length > this.#bytes.length) {
      this.#bytes = createArray(where, length);
      this.#taken = 0;
    }
    const bytes = this.#bytes.subarray(this.#taken, this.#taken + length);
    this.#taken = Math.ceil((this.#taken + length) / 8) * 8;
    return bytes;
  }
}

/** Reads tensors into `buffer`. */
export function reading({ readAll, readRows }: TensorReader, buffer: ReadBuffer): TensorReader {
  return {
    readAll(...names) {
      buffer.reuse();
      return readAll(...names);
    },
    readRows(...rows) {
      buffer.turn();
      return readRows(...rows);
    },
  };
}

// A file by pieces, several of which are read at once: those behind the one that is needed come while it is used.

/** Pieces that are read at once: the one that is needed, and those behind it. */
const TOGETHER = 4;

/** Pieces that all files of a load hold together, also those that are on their way: 64 MiB. */
const MOST_HELD = 16;

interface Piece {
  readonly bytes: Promise<Uint8Array>;
  /** How many of its bytes were not given out yet. */
  left: number;
  /** Lets go of it. */
  drop(): void;
}

/** The pieces that several files hold. Where one needs room, those go first that were given out, and then those used longest ago. */
export class HeldPieces {
  /** Whether pieces come ahead: not while headers are read, behind which a model may turn out not to be wanted. */
  ahead: boolean;
  #settled = false;
  readonly #pieces = new Set<Piece>();
  readonly #spent = new Set<Piece>();

  constructor(ahead = false) {
    this.ahead = ahead;
  }

  /** Counts a use of a piece. */
  use(piece: Piece): void {
    this.forget(piece);
    (piece.left > 0 ? this.#pieces : this.#spent).add(piece);
    for (const oldest of [...this.#spent, ...this.#pieces]) {
      if (this.#spent.size + this.#pieces.size <= (this.#settled ? TOGETHER : MOST_HELD)) break;
      oldest.drop();
    }
  }

  /** Whether single rows are read from now on, here and there. */
  get settled(): boolean {
    return this.#settled;
  }

  /** From now on, nothing comes ahead, and no more is held than what is read at once. */
  settle(): void {
    this.ahead = false;
    this.#settled = true;
    for (const piece of [...this.#spent, ...this.#pieces]) piece.drop();
  }

  forget(piece: Piece): void {
    this.#pieces.delete(piece);
    this.#spent.delete(piece);
  }
}

/** A source whose bytes will all be read, most of them once and in order. */
interface AheadSource extends ByteSource {
  /** From now on, pieces that were given out come ahead too. */
  rewind(): void;
}

/**
 * Reads a source by pieces, which are held until others need their place.
 * `onPiece` is called with each piece that was read, before anything of it is given out, also when it is read again.
 */
export function readAhead(
  where: string,
  source: ByteSource,
  held: HeldPieces,
  onPiece?: (index: number, bytes: Uint8Array) => Promise<void>,
): AheadSource {
  const { size } = source;
  const pieces = new Map<number, Piece>();
  /** Pieces that were given out as a whole: they do not come ahead again. */
  const spent = new Set<number>();
  const read = async (index: number): Promise<Uint8Array> => {
    const bytes = await readRange(where, source, index * PIECE, Math.min(PIECE, size - index * PIECE));
    await onPiece?.(index, bytes);
    return bytes;
  };
  const start = (index: number): Piece => {
    const begun = pieces.get(index);
    if (begun) return begun;
    const piece: Piece = {
      bytes: read(index),
      left: Math.min(PIECE, size - index * PIECE),
      drop() {
        if (pieces.get(index) === piece) pieces.delete(index);
        held.forget(piece);
      },
    };
    // Another read tries again.
    piece.bytes.catch(() => piece.drop());
    pieces.set(index, piece);
    held.use(piece);
    return piece;
  };
  /** The bytes [from, to) of a piece, while those behind it come. */
  const give = async (index: number, from: number, to: number): Promise<Uint8Array> => {
    const piece = start(index);
    const end = held.ahead ? Math.min(index + TOGETHER, Math.ceil(size / PIECE)) : 0;
    for (let next = index + 1; next < end; next++) if (!spent.has(next)) start(next);
    const bytes = await piece.bytes;
    piece.left -= to - from;
    if (piece.left <= 0) spent.add(index);
    if (pieces.get(index) === piece) held.use(piece);
    return bytes.subarray(from, to);
  };
  return {
    size,
    rewind: () => spent.clear(),
    async read(offset, length) {
      const [first, end] = [Math.floor(offset / PIECE), Math.ceil((offset + length) / PIECE)];
      if (length === 0) return new Uint8Array();
      // Where pieces are compared with a digest, a part of one will not do.
      if (held.settled && !onPiece) return readRange(where, source, offset, length);
      if (end - first === 1) return give(first, offset - first * PIECE, offset - first * PIECE + length);
      const bytes = createArray(where, length);
      for (let index = first; index < end; index++) {
        const from = Math.max(offset, index * PIECE);
        const to = Math.min(offset + length, (index + 1) * PIECE);
        bytes.set(await give(index, from - index * PIECE, to - index * PIECE), from - offset);
      }
      return bytes;
    },
  };
}
