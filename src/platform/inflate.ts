import { joinBytes } from "../util/bytes.ts";
import { builtinModule } from "./builtin.ts";

/** Decompresses raw deflate. */
export type Inflate = (bytes: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer> | Promise<Uint8Array<ArrayBuffer>>;

/**
 * zlib of Node, Deno and Bun, where loading streams takes ten times as long as decompressing, or else a
 * DecompressionStream. Throws if the engine has neither, or its stream does not know "deflate-raw".
 */
export function createInflate(): Inflate {
  const zlib = builtinModule<{ readonly inflateRawSync?: Inflate }>("node:zlib");
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
