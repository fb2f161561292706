import { createInflate, type Inflate } from "../platform/inflate.ts";
import { DETACHED } from "../util/arguments.ts";
import { describe, HeadwiseError, hexOf, memoryRefused, showBytes, tagOf } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import type { Sharing } from "./shared-memory.ts";

/** `WebAssembly.Module` where its type is known, which programs without the DOM's types lack. */
type WasmModule = typeof globalThis extends { WebAssembly: { Module: { prototype: infer Module } } } ? Module : object;

/** A compiled WebAssembly module, or its bytes. */
export type WasmSource = WasmModule | ArrayBuffer | ArrayBufferView;

/** A compiled WebAssembly module, its bytes, a Response with its bytes, the URL of its bytes, or a promise of one of these. */
export type ModuleSource = WasmSource | WasmAddress | Promise<WasmSource | WasmAddress>;

/** A Response or a URL. */
type WasmAddress = Global<"Response"> | Global<"URL">;

/** A module, or an inlined relaxed one: base64 of its deflated bytes. */
export type InlinedWasm = WasmModule | string;

/**
 * The bytes of an inlined module; any other source as it is. Only modules that run are decompressed, as each takes a
 * millisecond.
 */
export async function unpack(inlined: WasmSource | string, name = "module"): Promise<WasmSource> {
  if (typeof inlined !== "string") return inlined;
  const inflate = expectInflate();
  try {
    return await inflate(inlined);
  } catch (cause) {
    const rule = "a module, its bytes or an inlined module of headwise/quantized";
    throw new HeadwiseError("NOT_WASM", `loadKernels: ${name} expected ${rule}, got ${describe(inlined)}`, { cause });
  }
}

/**
 * Throws NO_DECOMPRESSION if the engine cannot decompress modules, or NO_SIMD if it lacks SIMD too: such engines are
 * older still.
 */
function expectInflate(): Inflate {
  try {
    return createInflate();
  } catch (cause) {
    expectSimd(cause);
    const text = "loadKernels: this engine lacks DecompressionStream of deflate-raw; give headwise/core the modules";
    throw new HeadwiseError("NO_DECOMPRESSION", text, { cause });
  }
}

/** Engines with SIMD and deflate-raw. Some had SIMD earlier, but cannot decompress the default entry. */
const WITH_SIMD = "Chrome 103, Firefox 113, Safari 16.4, Node 20.19, Deno and Bun";

/** A module of one function that gives a v128. */
const SIMD_PROBE: Uint8Array<ArrayBuffer> = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0], // magic, version
  ...[1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0], // type () -> v128, one function of it
  ...[10, 8, 1, 6, 0, 65, 0, 253, 15, 11], // i32.const 0, i8x16.splat
);

/**
 * Uses i32x4.relaxed_dot_i8x16_i7x16_add_s, the only instruction of the relaxed kernels that some engines with relaxed
 * SIMD lack.
 */
const DOT_PROBE: Uint8Array<ArrayBuffer> = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0], // magic, version
  ...[1, 6, 1, 96, 1, 123, 1, 123, 3, 2, 1, 0], // type v128 -> v128, one function of it
  ...[10, 13, 1, 11, 0, 32, 0, 32, 0, 32, 0, 253, 147, 2, 11], // of its parameter three times
);

/** Throws NO_SIMD if the engine lacks SIMD. */
function expectSimd(cause: unknown): void {
  if (WebAssembly.validate(SIMD_PROBE)) return;
  const text = `loadKernels: this engine lacks WebAssembly SIMD, which ${WITH_SIMD} have`;
  throw new HeadwiseError("NO_SIMD", text, { cause });
}

export function isModule(source: unknown): source is WebAssembly.Module {
  return tagOf(source) === "WebAssembly.Module";
}

/** Whether the engine accepts a module, or its bytes. */
export function accepts(source: WasmSource): boolean {
  return isModule(source) || WebAssembly.validate(source);
}

/**
 * Whether the engine refuses a source because it lacks the instruction of DOT_PROBE; otherwise a refused source is
 * damaged.
 */
export function lacksDots(source: WasmSource): boolean {
  return !WebAssembly.validate(DOT_PROBE) && !accepts(source);
}

/** A module as it is, or the bytes of one. Throws for anything else. */
export function expectSource(name: string, source: unknown): WebAssembly.Module | Uint8Array<ArrayBuffer> {
  if (isModule(source)) return source;
  const bytes = bytesOf(name, source);
  expectWasm(name, bytes);
  return bytes;
}

function bytesOf(name: string, source: unknown): Uint8Array<ArrayBuffer> {
  const rule =
    name === "module" ? "WebAssembly.Module, its bytes, a Response or a URL" : "WebAssembly.Module or its bytes";
  let got = describe(source);
  try {
    if (ArrayBuffer.isView(source))
      return new Uint8Array(source.buffer as ArrayBuffer, source.byteOffset, source.byteLength);
    if (tagOf(source) === "ArrayBuffer") return new Uint8Array(source as ArrayBuffer);
  } catch {
    got = DETACHED;
  }
  throw new TypeError(`loadKernels: ${name} expected ${rule}, got ${got}`);
}

/** Throws NOT_WASM unless the bytes begin as wasm does; `from` is appended to the message. */
export function expectWasm(name: string, bytes: Uint8Array, from = ""): void {
  if (String.fromCharCode(...bytes.subarray(0, 4)) === "\0asm") return;
  const start = bytes.subarray(0, 12);
  const [hex, shown] = [hexOf(start), showBytes(start)];
  // Hex like the expected bytes, and the text if the bytes are printable.
  const got = hex === "" || hex === shown ? shown : `${hex} (${shown})`;
  throw new HeadwiseError("NOT_WASM", `loadKernels: ${name} expected bytes that begin 00 61 73 6d, got ${got}${from}`);
}

/**
 * Compiles bytes, for shared memory with `shared`. Throws HeadwiseError with what is wrong with the bytes or the
 * engine.
 */
export async function compile(source: unknown, shared?: Sharing, name = "module"): Promise<WebAssembly.Module> {
  const given = expectSource(name, source);
  if (isModule(given)) return given;
  const bytes = shared ? shared.shareMemory(given) : given;
  try {
    return await WebAssembly.compile(bytes);
  } catch (cause) {
    // By name, because an error of another realm (frame, test runner) is no instance of this realm's classes.
    if ((cause as Error).name === "RangeError") throw memoryRefused(`to compile ${name}`, cause);
    expectSimd(cause);
    if (!WebAssembly.validate(bytes)) {
      const text = `loadKernels: ${name} expected bytes that this engine accepts, got ${bytes.length} that it refuses: damaged, or for newer engines`;
      throw new HeadwiseError("NOT_WASM", text, { cause });
    }
    throw forbidden(cause);
  }
}

/** The error of hosts that forbid wasm: most engines refuse to compile it, WebKit only to instantiate it. */
export function forbidden(cause: unknown): HeadwiseError {
  const text =
    "loadKernels: this host forbids compiling wasm from bytes; in a Worker import headwise under its workerd or edge-light " +
    "condition, or give headwise/core a module; in a page allow script-src 'wasm-unsafe-eval'";
  return new HeadwiseError("NO_CODEGEN", text, { cause });
}
