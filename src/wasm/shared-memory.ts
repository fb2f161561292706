// A module that imports its memory as one thread's own, made into the module that imports it shared: the same code, another
// import. An engine runs atomic and plain loads of either, and the kernels have plain ones alone.

import { joinBytes, leb } from "../util/bytes.ts";
import { memoryRefused } from "../util/errors.ts";

const IMPORTS = 2;
const MEMORY = 2;
/** Bits of a memory's flags: it has a maximum, it is shared. */
const SHARED = 3;
/** Pages that the import allows: all that 32 bits of address reach. */
const MOST_PAGES = 65_536;
/** Magic and version. */
const HEADER = 8;

/** Reads an unsigned LEB128 at `at`: the number, and where it ends. */
function readUnsigned(bytes: Uint8Array, at: number): readonly [value: number, end: number] {
  let value = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[at++] ?? 0;
    value += (byte & 127) * 2 ** shift;
    if (byte < 128) return [value, at];
  }
}

/**
 * The module of `bytes` on shared memory of up to 4 GiB, byte for byte what the compiler makes for threads; bytes whose only
 * import is not a memory of one thread's own come back as they are.
 */
export function shareMemory(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  for (let at = HEADER; at < bytes.length; ) {
    const [length, from] = readUnsigned(bytes, at + 1);
    if (bytes[at] === IMPORTS) return withImport(bytes, at, from, from + length);
    at = from + length;
  }
  return bytes;
}

/** The bytes with the memory of the import section [from, to) shared; its id lies at `id`. */
function withImport(bytes: Uint8Array<ArrayBuffer>, id: number, from: number, to: number): Uint8Array<ArrayBuffer> {
  const [count, names] = readUnsigned(bytes, from);
  let kind = names;
  for (let i = 0; i < 2; i++) {
    const [length, start] = readUnsigned(bytes, kind);
    kind = start + length;
  }
  if (count !== 1 || bytes[kind] !== MEMORY || bytes[kind + 1] !== 0) return bytes;
  const [, end] = readUnsigned(bytes, kind + 2);
  if (end !== to) return bytes;
  const section = joinBytes([bytes.subarray(from, kind + 1), [SHARED], bytes.subarray(kind + 2, end), leb(MOST_PAGES)]);
  return joinBytes([bytes.subarray(0, id + 1), leb(section.length), section, bytes.subarray(to)]);
}

/** How memory comes to be shared, for entries with threads. */
export interface Sharing {
  shareMemory(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer>;
  createMemory(): WebAssembly.Memory;
}

/** Pages that a memory may grow to: as many, or fewer where an engine cannot set so many addresses aside. */
const PAGES = [MOST_PAGES, 16_384, 4096];

function createMemory(): WebAssembly.Memory {
  let refused: unknown;
  for (const maximum of PAGES) {
    try {
      return new WebAssembly.Memory({ initial: 1, maximum, shared: true });
    } catch (error) {
      refused = error;
    }
  }
  throw memoryRefused("that threads could share", refused);
}

/** What hosts with threads have. */
export const SHARING: Sharing = { shareMemory, createMemory };
