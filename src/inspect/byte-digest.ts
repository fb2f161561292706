import { hostSha256 } from "../platform/sha256.ts";
import { joinBytes, toHex } from "../util/bytes.ts";
import { chunksOf } from "../util/rows.ts";

/** Bytes of a piece, each of which is hashed by itself: hosts hash no stream. */
const PIECE = 2 ** 20;

/** Cuts `length` bytes, of which `read` gives begin..end, into what `digestOf` takes. */
export function* piecesOf(
  length: number,
  read: (begin: number, end: number) => Uint8Array,
): Generator<Uint8Array, void> {
  for (const [begin, end] of chunksOf(length, PIECE)) yield read(begin, end);
}

/**
 * A digest of bytes, in whatever pieces of up to 1 MiB they come: SHA-256 of the SHA-256s of each MiB, in hexadecimal. A piece is
 * copied before the next one is asked for, so that it may be a view of memory that grows meanwhile.
 */
export async function digestOf(pieces: Iterable<Uint8Array>): Promise<string> {
  const buffer = new Uint8Array(2 * PIECE);
  const digests: Uint8Array[] = [];
  let filled = 0;
  for (const piece of pieces) {
    buffer.set(piece, filled);
    filled += piece.length;
    if (filled < PIECE) continue;
    digests.push(await hostSha256(buffer.subarray(0, PIECE)));
    buffer.copyWithin(0, PIECE, filled);
    filled -= PIECE;
  }
  digests.push(await hostSha256(buffer.subarray(0, filled)));
  return toHex(await hostSha256(joinBytes(digests)));
}
