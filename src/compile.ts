import { describe, HeadwiseError } from "./errors.ts";

/** A compiled module, or the bytes of one. */
export type WasmSource = WebAssembly.Module | BufferSource;

/** A module, its bytes, the answer that brings them, or where they are: a URL of a server or of a file. */
export type ModuleSource = WasmSource | Response | URL | Promise<WasmSource | Response | URL>;

/** A module, or base64 of one, as bundles carry it. */
export type CarriedWasm = WebAssembly.Module | string;

/** Bytes of base64 that is known to be right. Only what runs is decoded: that takes a millisecond a build. */
export function unpack(carried: CarriedWasm): WasmSource {
  if (typeof carried !== "string") return carried;
  const text = atob(carried);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** By the table of features on webassembly.org. */
const WITH_SIMD = "Chrome and Edge 91, Firefox 89, Safari 16.4, Node 16.4, Deno 1.9 and what is newer";

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

function bytesOf(source: unknown): Uint8Array<ArrayBuffer> {
  if (ArrayBuffer.isView(source))
    return new Uint8Array(source.buffer as ArrayBuffer, source.byteOffset, source.byteLength);
  if (tagOf(source) === "[object ArrayBuffer]") return new Uint8Array(source as ArrayBuffer);
  const rule = "WebAssembly.Module, its bytes, a Response or a URL";
  throw new TypeError(`loadKernels: module expected ${rule}, got ${describe(source)}`);
}

/** Bytes as hexadecimal numbers, and as text where they are some. */
function bytesText(bytes: Uint8Array): string {
  const numbers = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const text = String.fromCharCode(...bytes);
  return /^[ -~\s]+$/.test(text) ? `${numbers} (${JSON.stringify(text)})` : numbers || "no bytes";
}

/** Throws unless bytes begin as wasm does; `from` says where they come from. */
export function expectWasm(bytes: Uint8Array, from = ""): void {
  if (String.fromCharCode(...bytes.subarray(0, 4)) === "\0asm") return;
  const rule = "module expected bytes that begin 00 61 73 6d";
  throw new HeadwiseError("NOT_WASM", `loadKernels: ${rule}, got ${bytesText(bytes.subarray(0, 12))}${from}`);
}

/** Compiles bytes; throws what they or the engine are not. */
export async function compile(source: unknown): Promise<WebAssembly.Module> {
  if (isModule(source)) return source;
  const bytes = bytesOf(source);
  expectWasm(bytes);
  try {
    return await WebAssembly.compile(bytes);
  } catch (cause) {
    if (!WebAssembly.validate(SIMD_PROBE))
      throw new HeadwiseError("NO_SIMD", `loadKernels: this engine lacks WebAssembly SIMD, which ${WITH_SIMD} have`, {
        cause,
      });
    if (!WebAssembly.validate(bytes)) {
      const text = `loadKernels: module expected bytes that this engine accepts, got ${bytes.length} that it refuses: damaged, or a build for newer engines`;
      throw new HeadwiseError("NOT_WASM", text, { cause });
    }
    throw forbidden(cause);
  }
}

/** What a host is told that refuses wasm itself: most engines when it is compiled, WebKit only when it is started. */
export function forbidden(cause: unknown): HeadwiseError {
  const text =
    "loadKernels: this host forbids compiling wasm from bytes; in a Worker import headwise under its workerd or edge-light " +
    "condition, or give headwise/core a module; in a page allow script-src 'wasm-unsafe-eval'";
  return new HeadwiseError("NO_CODEGEN", text, { cause });
}
