// Makes a module import shared memory instead of unshared memory. Its code stays the same: engines run plain loads and
// stores, the only ones that kernels have, on either.

import { joinBytes, leb } from "../util/bytes.ts";
import { memoryRefused } from "../util/errors.ts";

const IMPORTS = 2;
const MEMORY = 2;
/** Flags of a memory: it has a maximum, and is shared. */
const SHARED = 3;
/** The maximum in the import, in pages of 64 KiB: all that 32-bit addresses reach. */
const MOST_PAGES = 65_536;
/** Bytes of magic number and version. */
const HEADER = 8;

/** Reads an unsigned LEB128 number at `at`. Returns it and the offset of its end. */
function readUnsigned(bytes: Uint8Array, at: number): readonly [value: number, end: number] {
  let value = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[at++] ?? 0;
    value += (byte & 127) * 2 ** shift;
    if (byte < 128) return [value, at];
  }
}

/**
 * The module of `bytes` on shared memory of up to 4 GiB, byte for byte what the compiler emits for threads. Bytes whose
 * only import is not an unshared memory are returned unchanged.
 */
export function shareMemory(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  for (let at = HEADER; at < bytes.length; ) {
    const [length, from] = readUnsigned(bytes, at + 1);
    if (bytes[at] === IMPORTS) return withImport(bytes, at, from, from + length);
    at = from + length;
  }
  return bytes;
}

/** The bytes with the memory in the import section [from, to) shared; the section's id is at `id`. */
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

/** Creates shared memory and modules for it; given to loaders by entries with threads. */
export interface Sharing {
  shareMemory(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer>;
  createMemory(): WebAssembly.Memory;
}

/**
 * Maxima of the memory itself, in the order in which they are tried: some engines cannot reserve 4 GiB of addresses.
 */
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

/** Sharing for hosts with threads. */
export const SHARING: Sharing = { shareMemory, createMemory };
