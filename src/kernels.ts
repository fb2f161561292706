import type { F32Ptr, KernelTable } from "./abi.ts";
import { describe, expectFields, expectFlag, HeadwiseError } from "./errors.ts";
import { type Instance, instantiate } from "./instantiate.ts";
import { DISPOSE, expectMade, type Releasable } from "./lifetime.ts";
import { type LinearMemory, pointer } from "./memory.ts";

/** "simd" gives the same bits on every engine; "relaxed" fuses multiply and add where the engine does, and is faster. */
export type Build = "simd" | "relaxed";

/** A compiled module, or the bytes of one. */
export type WasmSource = WebAssembly.Module | BufferSource;

/**
 * The kernels and the memory they work on. Two never share anything.
 * @example
 * import { loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * console.log(kernels.build, kernels.reason);
 * kernels.release();
 */
export interface Kernels extends Releasable {
  readonly build: Build;
  /** Why this build runs here, in words. */
  readonly reason: string;
  /** Whether a·b + c rounds once. One of the two published digests belongs to each answer. */
  readonly fused: boolean;
  /** Bytes of linear memory in blocks that are in use now: weights, caches and scratch. */
  readonly usedBytes: number;
  /** Bytes of linear memory as it stands; it never shrinks while the kernels live. */
  readonly memoryBytes: number;
  readonly released: boolean;
  /** @internal */
  readonly table: KernelTable;
  /** @internal */
  readonly memory: LinearMemory;
}

/** What `loadKernels` takes. */
export interface LoadOptions {
  /** A module of your own, such as `headwise/simd.wasm` where a host imports that as a module. Its build is used as it is. */
  readonly module?: WasmSource;
  /** Use the `simd` build: the same bits on every engine. Default false: whichever build is faster here. */
  readonly deterministic?: boolean;
}

/** Throws unless `kernels` came from loadKernels and was not released. */
export function expectKernels(where: string, kernels: Kernels, name = "kernels"): void {
  expectMade(where, name, kernels, "table", "loadKernels");
}

/** Compiles and starts one module, whichever build it is. */
export async function createKernels(source: WasmSource, reason: string): Promise<Kernels> {
  return wrap(await start(await compile(source)), reason);
}

/** Starts the module of a caller's own, after checking that it is what they ask for. */
export async function ownKernels(options: LoadOptions): Promise<Kernels> {
  expectFields("loadKernels", "options", options, ["module", "deterministic"]);
  const deterministic = expectFlag("loadKernels", "deterministic", options.deterministic);
  const kernels = await createKernels(options.module as WasmSource, "the module given");
  if (deterministic && kernels.build !== "simd")
    throw new RangeError("loadKernels: deterministic expected the simd build as module, got the relaxed one");
  return kernels;
}

/** Picks between the two builds: relaxed where the engine accepts it and really fuses, else simd. */
export async function chooseKernels(
  simd: WasmSource,
  relaxed: WasmSource,
  options: LoadOptions = {},
): Promise<Kernels> {
  expectFields("loadKernels", "options", options, ["module", "deterministic"]);
  if (options.module !== undefined) return ownKernels(options);
  if (expectFlag("loadKernels", "deterministic", options.deterministic))
    return createKernels(simd, "deterministic was asked for");
  if (!isModule(relaxed) && !WebAssembly.validate(relaxed))
    return createKernels(simd, "this engine has no relaxed SIMD");
  const kernels = await createKernels(relaxed, "this engine fuses multiply and add");
  // An engine that accepts relaxed SIMD and does not fuse gains nothing from it and loses the bits that all engines share.
  return kernels.fused ? kernels : createKernels(simd, "this engine accepts relaxed SIMD but does not fuse");
}

/** A module of something else fails on its imports or exports before its kernels can be counted. */
async function start(module: WebAssembly.Module): Promise<Instance> {
  try {
    return await instantiate(module);
  } catch (cause) {
    if (cause instanceof HeadwiseError) throw cause;
    const text = "loadKernels: module expected one of this package's, got one that does not start on its memory";
    throw new HeadwiseError("ABI_MISMATCH", text, { cause });
  }
}

function wrap(started: Instance, reason: string): Kernels {
  const build: Build = started.relaxed ? "relaxed" : "simd";
  const fused = fuses(started);
  let instance: Instance | undefined = started;
  const alive = () => {
    if (!instance) throw new HeadwiseError("RELEASED", "kernels: used after release");
    return instance;
  };
  const release = () => {
    instance = undefined;
  };
  return {
    build,
    reason,
    fused,
    get usedBytes() {
      return alive().memory.used;
    },
    get memoryBytes() {
      return alive().memory.byteLength;
    },
    get released() {
      return instance === undefined;
    },
    get table() {
      return alive().kernels;
    },
    get memory() {
      return alive().memory;
    },
    release,
    [DISPOSE]: release,
  };
}

/** (1 + 2^-12)² - (1 + 2^-11) is 2^-24 when the product is not rounded, else 0. */
function fuses({ kernels, memory }: Instance): boolean {
  const at = memory.allocate("loadKernels", 4 * 32);
  const [x, w, bias, out] = [at, at + 32, at + 64, at + 96].map(pointer.f32) as [F32Ptr, F32Ptr, F32Ptr, F32Ptr];
  memory.f32(x, 16).fill(1 + 2 ** -12);
  memory.f32(bias, 8).fill(-(1 + 2 ** -11));
  kernels.linear_f32(out, x, w, bias, 1, 1, 8, 1, 0, 1);
  const fused = memory.f32(out, 1)[0] !== 0;
  memory.free(at);
  return fused;
}

/** A module of one function that gives a v128. */
const SIMD_PROBE: Uint8Array<ArrayBuffer> = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0], // magic, version
  ...[1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0], // type () -> v128, one function of it
  ...[10, 8, 1, 6, 0, 65, 0, 253, 15, 11], // i32.const 0, i8x16.splat
);

/** By tag, since a test runner or a frame may bring classes of its own. */
const tagOf = (value: unknown) => Object.prototype.toString.call(value);

function isModule(source: unknown): source is WebAssembly.Module {
  return tagOf(source) === "[object WebAssembly.Module]";
}

function bytesOf(source: unknown): Uint8Array<ArrayBuffer> {
  if (ArrayBuffer.isView(source))
    return new Uint8Array(source.buffer as ArrayBuffer, source.byteOffset, source.byteLength);
  if (tagOf(source) === "[object ArrayBuffer]") return new Uint8Array(source as ArrayBuffer);
  throw new TypeError(`loadKernels: module expected WebAssembly.Module or its bytes, got ${describe(source)}`);
}

async function compile(source: unknown): Promise<WebAssembly.Module> {
  if (isModule(source)) return source;
  const bytes = bytesOf(source);
  const magic = bytes.subarray(0, 4);
  if (String.fromCharCode(...magic) !== "\0asm") {
    const found = Array.from(magic, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    throw new HeadwiseError("NOT_WASM", `loadKernels: module expected bytes that begin 00 61 73 6d, got ${found}`);
  }
  try {
    return await WebAssembly.compile(bytes);
  } catch (cause) {
    if (!WebAssembly.validate(SIMD_PROBE))
      throw new HeadwiseError("NO_SIMD", "loadKernels: this engine lacks WebAssembly SIMD, which the module needs", {
        cause,
      });
    if (!WebAssembly.validate(bytes)) {
      const text = `loadKernels: module expected bytes that this engine accepts, got ${bytes.length} that it refuses: damaged, or a build for newer engines`;
      throw new HeadwiseError("NOT_WASM", text, { cause });
    }
    const text =
      "loadKernels: this host forbids compiling wasm from bytes; import headwise under its workerd entry, or give a module";
    throw new HeadwiseError("NO_CODEGEN", text, { cause });
  }
}
