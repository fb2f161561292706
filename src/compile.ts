import { describe, HeadwiseError } from "./errors.ts";
import { shareMemory } from "./sharememory.ts";

/** A compiled module, or the bytes of one. */
export type WasmSource = WebAssembly.Module | BufferSource;

/** The bytes of a module as bundles carry them: spans, one behind the other, of what base64 of deflated bytes unpacks to. */
export interface CarriedBytes {
  readonly text: string;
  readonly spans: readonly (readonly [from: number, to: number])[];
}

/** What a `.wasm` import gives. */
export type CarriedWasm = WebAssembly.Module | CarriedBytes;

function isCarried(source: WasmSource | CarriedBytes): source is CarriedBytes {
  return typeof source === "object" && source !== null && "text" in source;
}

/** What is carried, as a module or its bytes. Unpacking takes a millisecond. */
export async function unpack(source: WasmSource | CarriedBytes, name = "module"): Promise<WasmSource> {
  if (!isCarried(source)) return source;
  if (typeof DecompressionStream === "undefined") {
    const text =
      "loadKernels: this engine lacks DecompressionStream, which unpacks the kernels; give their modules to headwise/core";
    throw new HeadwiseError("NO_DECOMPRESSION", text);
  }
  try {
    const all = join(await inflate(decode(source.text)));
    return join(source.spans.map(([from, to]) => all.subarray(from, to)));
  } catch (cause) {
    const rule = "a module, its bytes or what headwise/quantized carries";
    throw new HeadwiseError("NOT_WASM", `loadKernels: ${name} expected ${rule}, got ${describe(source)}`, { cause });
  }
}

/** By hand rather than through a Response: in Node, asking for that loads an HTTP client, for longer than all of this takes. */
async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array[]> {
  const { readable, writable } = new DecompressionStream("deflate-raw");
  const writer = writable.getWriter();
  // What fails here fails in reading too.
  for (const written of [writer.write(bytes), writer.close()]) written.catch(() => {});
  const reader = readable.getReader();
  const chunks: Uint8Array[] = [];
  for (let next = await reader.read(); !next.done; next = await reader.read()) chunks.push(next.value);
  return chunks;
}

function join(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

interface FromBase64 {
  fromBase64?(text: string): Uint8Array<ArrayBuffer>;
}

/** Bytes of base64. */
function decode(text: string): Uint8Array<ArrayBuffer> {
  const { fromBase64 } = Uint8Array as FromBase64;
  if (fromBase64) return fromBase64.call(Uint8Array, text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

/** A module of one function that gives a v128. */
const SIMD_PROBE: Uint8Array<ArrayBuffer> = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0], // magic, version
  ...[1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0], // type () -> v128, one function of it
  ...[10, 8, 1, 6, 0, 65, 0, 253, 15, 11], // i32.const 0, i8x16.splat
);

/** By tag, since a test runner or a frame may bring classes of its own. */
const tagOf = (value: unknown) => Object.prototype.toString.call(value);

export function isModule(source: unknown): source is WebAssembly.Module {
  return tagOf(source) === "[object WebAssembly.Module]";
}

function bytesOf(name: string, source: unknown): Uint8Array<ArrayBuffer> {
  if (ArrayBuffer.isView(source))
    return new Uint8Array(source.buffer as ArrayBuffer, source.byteOffset, source.byteLength);
  if (tagOf(source) === "[object ArrayBuffer]") return new Uint8Array(source as ArrayBuffer);
  throw new TypeError(`loadKernels: ${name} expected WebAssembly.Module or its bytes, got ${describe(source)}`);
}

/** Compiles bytes, for shared memory if asked to; throws what they or the engine are not. */
export async function compile(source: unknown, shared = false, name = "module"): Promise<WebAssembly.Module> {
  if (isModule(source)) return source;
  const given = bytesOf(name, source);
  const magic = given.subarray(0, 4);
  if (String.fromCharCode(...magic) !== "\0asm") {
    const found = Array.from(magic, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    throw new HeadwiseError("NOT_WASM", `loadKernels: ${name} expected bytes that begin 00 61 73 6d, got ${found}`);
  }
  const bytes = shared ? shareMemory(given) : given;
  try {
    return await WebAssembly.compile(bytes);
  } catch (cause) {
    if (!WebAssembly.validate(SIMD_PROBE))
      throw new HeadwiseError("NO_SIMD", "loadKernels: this engine lacks WebAssembly SIMD, which the module needs", {
        cause,
      });
    if (!WebAssembly.validate(bytes)) {
      const text = `loadKernels: ${name} expected bytes that this engine accepts, got ${bytes.length} that it refuses: damaged, or a build for newer engines`;
      throw new HeadwiseError("NOT_WASM", text, { cause });
    }
    const text =
      "loadKernels: this host forbids compiling wasm from bytes; import headwise under its workerd entry, or give a module";
    throw new HeadwiseError("NO_CODEGEN", text, { cause });
  }
}
