import { joinBytes } from "../util/bytes.ts";

/** Decompresses raw deflate. */
export type Inflate = (bytes: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer> | Promise<Uint8Array<ArrayBuffer>>;

/** In Node, Deno and Bun, loading streams takes ten times as long as decompressing with zlib. */
interface Host {
  readonly process?: { getBuiltinModule?(name: string): { readonly inflateRawSync?: Inflate } | undefined };
}

/** Throws if the engine has no zlib, and no DecompressionStream that knows "deflate-raw". */
export function createInflate(): Inflate {
  const zlib = (globalThis as Host).process?.getBuiltinModule?.("node:zlib");
  return zlib?.inflateRawSync ?? inflateWith(new DecompressionStream("deflate-raw"));
}

function inflateWith({ readable, writable }: DecompressionStream): Inflate {
  return async (bytes) => {
    const writer = writable.getWriter();
    // The reader reports the same errors.
    for (const written of [writer.write(bytes), writer.close()]) written.catch(() => {});
    const reader = readable.getReader();
    const parts: Uint8Array[] = [];
    for (let next = await reader.read(); !next.done; next = await reader.read()) parts.push(next.value);
    return joinBytes(parts);
  };
}
