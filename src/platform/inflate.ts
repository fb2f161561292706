import { joinBytes } from "../util/bytes.ts";

/** Unpacks raw deflate. */
export type Inflate = (bytes: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer> | Promise<Uint8Array<ArrayBuffer>>;

/** Where there is a zlib, as in Node, Deno and Bun, streams take ten times as long to be loaded as this takes. */
interface Host {
  readonly process?: { getBuiltinModule?(name: string): { readonly inflateRawSync?: Inflate } | undefined };
}

/** Throws where the engine has no zlib, and no DecompressionStream or one that is older than "deflate-raw". */
export function createInflate(): Inflate {
  const zlib = (globalThis as Host).process?.getBuiltinModule?.("node:zlib");
  return zlib?.inflateRawSync ?? inflateWith(new DecompressionStream("deflate-raw"));
}

function inflateWith({ readable, writable }: DecompressionStream): Inflate {
  return async (bytes) => {
    const writer = writable.getWriter();
    // What fails here fails in reading too.
    for (const written of [writer.write(bytes), writer.close()]) written.catch(() => {});
    const reader = readable.getReader();
    const parts: Uint8Array[] = [];
    for (let next = await reader.read(); !next.done; next = await reader.read()) parts.push(next.value);
    return joinBytes(parts);
  };
}
