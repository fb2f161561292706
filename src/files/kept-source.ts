// A file of a server, by the pieces that are kept.

import { describe, HeadwiseError } from "../util/errors.ts";
import { type ByteSource, createArray } from "./byte-source.ts";
import type { HttpSource } from "./http-source.ts";
import { type Entry, type KeptFile, PIECE, type Shelf } from "./shelf.ts";

/** Pieces that are requested at once. */
const TOGETHER = 4;

/** Whether pieces of this version of the file are kept. */
export function isSame(kept: Entry | undefined, { size, mark }: Pick<HttpSource, "size" | "mark">): boolean {
  return kept !== undefined && "size" in kept && kept.size === size && kept.mark === mark;
}

/** A file by pieces: those that are kept, and others from the server, which are kept then. `live` is the connected server. */
export function keptSource(
  shelf: Shelf,
  entry: KeptFile,
  connect: () => Promise<HttpSource>,
  live?: HttpSource,
): ByteSource {
  const { size, url } = entry;
  shelf.admit(entry);
  let server = live && Promise.resolve(live);
  const ask = (): Promise<HttpSource> => {
    server ??= connect().then(async (found) => {
      if (isSame(entry, found)) return found;
      await shelf.clear(entry);
      throw new HeadwiseError(
        "BAD_FILE",
        `urlSource: url ${describe(url)} expected to stay as it was (${size} bytes, ${entry.mark}), got ${found.size} bytes, ${found.mark}`,
      );
    });
    // Another read tries again.
    server.catch(() => {
      server = undefined;
    });
    return server;
  };
  const load = async (index: number): Promise<Uint8Array> => {
    const length = Math.min(PIECE, size - index * PIECE);
    const kept = await shelf.piece(entry, index);
    if (kept?.length === length) return kept;
    const bytes = await (await ask()).read(index * PIECE, length);
    await shelf.keep(entry, index, bytes);
    return bytes;
  };
  const loading = new Map<number, Promise<Uint8Array>>();
  /** The last one that came, since reads that follow each other often share one. */
  let last: { readonly index: number; readonly bytes: Uint8Array } | undefined;
  const pieceAt = (index: number): Uint8Array | Promise<Uint8Array> => {
    if (last?.index === index) return last.bytes;
    const begun = loading.get(index);
    if (begun) return begun;
    const found = load(index)
      .then((bytes) => {
        last = { index, bytes };
        return bytes;
      })
      .finally(() => loading.delete(index));
    loading.set(index, found);
    return found;
  };
  return {
    size,
    async read(offset, length) {
      const [first, end] = [Math.floor(offset / PIECE), Math.ceil((offset + length) / PIECE)];
      if (end - first <= 1) {
        const piece = length === 0 ? new Uint8Array() : await pieceAt(first);
        return piece.subarray(offset - first * PIECE, offset - first * PIECE + length);
      }
      const bytes = createArray("urlSource", length);
      const copy = async (index: number) => {
        const [piece, at] = [await pieceAt(index), index * PIECE - offset];
        const from = Math.max(0, -at);
        bytes.set(piece.subarray(from, Math.min(piece.length, length - at)), at + from);
      };
      for (let begin = first; begin < end; begin += TOGETHER)
        await Promise.all(Array.from({ length: Math.min(TOGETHER, end - begin) }, (_, i) => copy(begin + i)));
      return bytes;
    },
  };
}
