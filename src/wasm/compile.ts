import { createInflate, type Inflate } from "../platform/inflate.ts";
import { decodeBase64 } from "../util/bytes.ts";
import { describe, HeadwiseError, hexOf, memoryRefused, showBytes, tagOf } from "../util/errors.ts";
import type { Sharing } from "./shared-memory.ts";

/** `WebAssembly.Module` where its type is known, which programs without the DOM's types lack. */
type WasmModule = typeof globalThis extends { WebAssembly: { Module: { prototype: infer Module } } } ? Module : object;

/** A compiled WebAssembly module, or its bytes. */
export type WasmSource = WasmModule | ArrayBuffer | ArrayBufferView;

/** A compiled WebAssembly module, its bytes, a Response with its bytes, the URL of its bytes, or a promise of one of these. */
export type ModuleSource = WasmSource | Response | URL | Promise<WasmSource | Response | URL>;

/** A module, or text that stands for one, as bundles carry it: base64 of its bytes, deflated. */
export type CarriedWasm = WasmModule | string;

/** An inlined module, or a module as it is. Only what runs is unpacked: that takes a millisecond a module. */
export async function unpack(carried: WasmSource | string, name = "module"): Promise<WasmSource> {
  if (typeof carried !== "string") return carried;
  const inflate = expectInflate();
  try {
    return await inflate(decodeBase64(carried));
  } catch (cause) {
    const rule = "a module, its bytes or an inlined module of headwise/quantized";
    throw new HeadwiseError("NOT_WASM", `loadKernels: ${name} expected ${rule}, got ${describe(carried)}`, { cause });
  }
}

/** Throws where the engine lacks what unpacks the kernels, and SIMD first, since engines without it are the older ones. */
function expectInflate(): Inflate {
  try {
    return createInflate();
  } catch (cause) {
    expectSimd(cause);
    const text =
      "loadKernels: this engine lacks DecompressionStream of deflate-raw, which unpacks the kernels; give their modules to headwise/core";
    throw new HeadwiseError("NO_DECOMPRESSION", text, { cause });
  }
}

/** Those that have deflate-raw too: some had SIMD before, but cannot unpack the default entry. */
const WITH_SIMD = "Chrome and Edge 103, Firefox 113, Safari 16.4, Node 20.19, today's Deno and Bun and what is newer";

/** A module of one function that gives a v128. */
const SIMD_PROBE: Uint8Array<ArrayBuffer> = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0], // magic, version
  ...[1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0], // type () -> v128, one function of it
  ...[10, 8, 1, 6, 0, 65, 0, 253, 15, 11], // i32.const 0, i8x16.splat
);

/** i32x4.relaxed_dot_i8x16_i7x16_add_s, the one instruction of relaxed kernels that an engine with others of them may lack. */
const DOT_PROBE: Uint8Array<ArrayBuffer> = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0], // magic, version
  ...[1, 6, 1, 96, 1, 123, 1, 123, 3, 2, 1, 0], // type v128 -> v128, one function of it
  ...[10, 13, 1, 11, 0, 32, 0, 32, 0, 32, 0, 253, 147, 2, 11], // of its parameter three times
);

/** Throws where the engine lacks SIMD. */
function expectSimd(cause: unknown): void {
  if (WebAssembly.validate(SIMD_PROBE)) return;
  const text = `loadKernels: this engine lacks WebAssembly SIMD, which ${WITH_SIMD} have`;
  throw new HeadwiseError("NO_SIMD", text, { cause });
}

export function isModule(source: unknown): source is WebAssembly.Module {
  return tagOf(source) === "WebAssembly.Module";
}

/** Whether the engine takes a module, or the bytes of one. */
export function accepts(source: WasmSource): boolean {
  return isModule(source) || WebAssembly.validate(source);
}

/** Whether it is for want of an instruction that this engine refuses a source; else the source is damaged. */
export function lacksDots(source: WasmSource): boolean {
  return !WebAssembly.validate(DOT_PROBE) && !accepts(source);
}

/** A module as it is, or the bytes of one; throws what else `source` is. */
export function expectSource(name: string, source: unknown): WebAssembly.Module | Uint8Array<ArrayBuffer> {
  if (isModule(source)) return source;
  const bytes = bytesOf(name, source);
  expectWasm(name, bytes);
  return bytes;
}

function bytesOf(name: string, source: unknown): Uint8Array<ArrayBuffer> {
  if (ArrayBuffer.isView(source))
    return new Uint8Array(source.buffer as ArrayBuffer, source.byteOffset, source.byteLength);
  if (tagOf(source) === "ArrayBuffer") return new Uint8Array(source as ArrayBuffer);
  const rule =
    name === "module" ? "WebAssembly.Module, its bytes, a Response or a URL" : "WebAssembly.Module or its bytes";
  throw new TypeError(`loadKernels: ${name} expected ${rule}, got ${describe(source)}`);
}

/** Throws unless bytes begin as wasm does; `from` says where they come from. */
export function expectWasm(name: string, bytes: Uint8Array, from = ""): void {
  if (String.fromCharCode(...bytes.subarray(0, 4)) === "\0asm") return;
  const start = bytes.subarray(0, 12);
  const [hex, shown] = [hexOf(start), showBytes(start)];
  // Beside the bytes that are expected, the text that they are if they are some.
  const got = hex === "" || hex === shown ? shown : `${hex} (${shown})`;
  throw new HeadwiseError("NOT_WASM", `loadKernels: ${name} expected bytes that begin 00 61 73 6d, got ${got}${from}`);
}

/** Compiles bytes, for shared memory if asked to; throws what they or the engine are not. */
export async function compile(source: unknown, shared?: Sharing, name = "module"): Promise<WebAssembly.Module> {
  const given = expectSource(name, source);
  if (isModule(given)) return given;
  const bytes = shared ? shared.shareMemory(given) : given;
  try {
    return await WebAssembly.compile(bytes);
  } catch (cause) {
    // By name, since a test runner or a frame may bring classes of its own.
    if ((cause as Error).name === "RangeError") throw memoryRefused(`to compile ${name}`, cause);
    expectSimd(cause);
    if (!WebAssembly.validate(bytes)) {
      const text = `loadKernels: ${name} expected bytes that this engine accepts, got ${bytes.length} that it refuses: damaged, or a build for newer engines`;
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
