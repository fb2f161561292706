// What an older version of the package kept of a URL: under keys that other URLs may have too, and without checksums.

import type { PieceStore } from "../platform/piece-stores.ts";

/** Removes what was kept of a URL, in pieces of so many bytes, if the file had at most `most`. */
export async function removeOlder(pieces: PieceStore, url: string, pieceBytes: number, most: number): Promise<void> {
  const key = `${digest(url)}-entry`;
  const entry = fieldsOf(await pieces.read(key));
  if (entry.url !== url) return;
  await pieces.remove(key);
  if (!Number.isSafeInteger(entry.size) || (entry.size as number) > most) return;
  const version = digest(`${entry.size} ${entry.mark}`);
  for (let index = 0; index * pieceBytes < (entry.size as number); index++)
    await pieces.remove(`${digest(url)}-${version}-${index}`);
}

function fieldsOf(bytes: Uint8Array | undefined): { url?: unknown; size?: unknown; mark?: unknown } {
  try {
    return Object(JSON.parse(new TextDecoder().decode(bytes)));
  } catch {
    return {};
  }
}

/** 64 bits of a text, as 16 hex digits: FNV-1a from two starts. */
function digest(text: string): string {
  const half = (start: number) => {
    let hash = start;
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    return (hash >>> 0).toString(16).padStart(8, "0");
  };
  return half(0x811c9dc5) + half(0x9e3779b9);
}
