import { decodeBase64 } from "../util/bytes.ts";
import { builtinModule } from "./builtin.ts";

/** Decompresses base64 of raw deflate. */
export type Inflate = (text: string) => Uint8Array<ArrayBuffer> | Promise<Uint8Array<ArrayBuffer>>;

interface Zlib {
  inflateRawSync(bytes: Uint8Array): Uint8Array<ArrayBuffer>;
}

interface Buffers {
  readonly Buffer: { from(text: string, encoding: "base64"): Uint8Array };
}

/**
 * By zlib of Node, Deno and Bun, where loading streams takes ten times as long as decompressing, or else by a
 * DecompressionStream. Throws if the engine has neither, or its stream does not know "deflate-raw".
 */
export function createInflate(): Inflate {
  const zlib = builtinModule<Zlib>("node:zlib");
  if (!zlib?.inflateRawSync) return inflateWith(new DecompressionStream("deflate-raw"));
  const buffers = builtinModule<Buffers>("node:buffer") as Buffers;
  return (text) => zlib.inflateRawSync(buffers.Buffer.from(text, "base64"));
}

function inflateWith(stream: DecompressionStream): Inflate {
  return async (text) => {
    const inflated = new Blob([decodeBase64(text)]).stream().pipeThrough(stream);
    return new Uint8Array(await new Response(inflated).arrayBuffer());
  };
}
