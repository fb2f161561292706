/**
 * Codes of HeadwiseError.
 * - `NO_SIMD`: the engine has no WebAssembly SIMD.
 * - `NO_CODEGEN`: the host forbids compiling WebAssembly from bytes.
 * - `NO_DECOMPRESSION`: the engine cannot decompress the inlined modules.
 * - `NO_QUANTIZED`: the kernels were loaded without the modules of this format.
 * - `NO_LATENT`: the kernels, or those of the build that runs, were loaded without those of latent attention.
 * - `NO_MODELS`: the kernels, or those of the build that runs, were loaded without those of whole decoders.
 * - `NO_STATISTICS`: the kernels, or those of the build that runs, were loaded without those of statistics of attention.
 * - `NO_GGUF`: a GGUF file was given without what reads it.
 * - `NO_LIBRARY`: an optional package that the function needs is not installed.
 * - `NOT_WASM`: the bytes are not a WebAssembly module.
 * - `ABI_MISMATCH`: the module, or the script of a worker, is of another version of headwise, or another of its modules.
 * - `OUT_OF_MEMORY`: linear memory or an array cannot grow.
 * - `CACHE_FULL`: the tokens exceed `maxSeqLen`.
 * - `IN_USE`: an unfinished call on the same cache excludes this one.
 * - `RELEASED`: the object, or one that it depends on, was released.
 * - `KERNEL_FAILED`: a kernel failed in a worker, a sign of damaged memory.
 * - `WORKER_LOST`: a worker ended or stopped answering.
 * - `NO_CLOCK`: the clock stands still while code runs, so that nothing can be timed, as on Cloudflare Workers.
 * - `NOT_RESIDENT`: a synchronous call needs rows of a table that stays in its file, which only an asynchronous one reads.
 * - `NO_STORAGE`: a store cannot keep pieces of files: the host has no place for them, or it is full.
 * - `BAD_FILE`: a file or an answer of a server cannot be read, or breaks its format.
 */
export type HeadwiseErrorCode =
  | "NO_SIMD"
  | "NO_CODEGEN"
  | "NO_DECOMPRESSION"
  | "NO_QUANTIZED"
  | "NO_LATENT"
  | "NO_MODELS"
  | "NO_STATISTICS"
  | "NO_GGUF"
  | "NO_LIBRARY"
  | "NOT_WASM"
  | "ABI_MISMATCH"
  | "OUT_OF_MEMORY"
  | "CACHE_FULL"
  | "IN_USE"
  | "RELEASED"
  | "KERNEL_FAILED"
  | "WORKER_LOST"
  | "NOT_RESIDENT"
  | "NO_STORAGE"
  | "NO_CLOCK"
  | "BAD_FILE";

/**
 * A failure of the environment or of a resource: the engine, memory, a cache, a worker or a file. `code` tells which. Wrong
 * arguments throw TypeError or RangeError instead.
 * @example
 * import { HeadwiseError } from "headwise";
 * const error = new HeadwiseError("CACHE_FULL", "attend: past 4090 + qLen 8 exceeds maxSeqLen 4096");
 * console.log(error.code); // CACHE_FULL
 */
export class HeadwiseError extends Error {
  /** "HeadwiseError", also where a minifier renames the class. */
  static override readonly name = "HeadwiseError";
  /** The kind of failure. */
  readonly code: HeadwiseErrorCode;
  /** An error with a code; `options.cause` is the error behind it. */
  constructor(code: HeadwiseErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = "HeadwiseError";
    this.code = code;
  }
}

/** What loadKernels throws if the engine cannot allocate memory; `what` is its purpose. */
export function memoryRefused(what: string, cause: unknown): HeadwiseError {
  return new HeadwiseError("OUT_OF_MEMORY", `loadKernels: this engine refused memory ${what}`, { cause });
}

/**
 * The tag of a value, such as "Uint8Array". It also recognises objects of other realms (frames, test runners), which
 * `instanceof` does not.
 */
export function tagOf(value: unknown): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

/** A string as text, cut where it is long: names of tensors seldom are, and of other bytes a few tell enough. */
function quote(value: string): string {
  const most = /^[ -~]*$/.test(value.slice(0, 80)) ? 80 : 40;
  return JSON.stringify(value.length > most ? `${value.slice(0, most)}…` : value);
}

/** A value as text for an error message: its content if that is short, else its type. */
export function describe(value: unknown): string {
  if (typeof value === "string") return quote(value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") return "function";
  if (value === null || typeof value !== "object") return Object.is(value, -0) ? "-0" : String(value);
  const tag = tagOf(value);
  return tag === "Promise" ? "Promise: await it" : tag;
}

/**
 * Runs `work`. Its errors of the environment and of resources then name `where`, the function that was called, instead of
 * an inner one.
 */
export function underName<T>(where: string, work: () => T): T {
  try {
    return work();
  } catch (cause) {
    if (!(cause instanceof HeadwiseError) || cause.message.startsWith(`${where}:`)) throw cause;
    throw new HeadwiseError(cause.code, cause.message.replace(/^\w+/, where), { cause });
  }
}

/** Throws an error, as `underName` does. */
export function throwUnder(where: string, error: unknown): never {
  return underName(where, () => {
    throw error;
  });
}

/** Bytes in hex. */
export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** Bytes as text for a message: quoted if they are printable ASCII, else in hex. */
export function showBytes(bytes: Uint8Array): string {
  if (bytes.length === 0) return "no bytes";
  const text = String.fromCharCode(...bytes);
  if (/^[\n\r -~]+$/.test(text)) return JSON.stringify(text);
  return hexOf(bytes);
}

/** Text without control characters, which a terminal would interpret: names come from files. */
export function plainText(text: string): string {
  return text.replace(/[\p{Cc}\p{Bidi_Control}]/gu, "\uFFFD");
}
