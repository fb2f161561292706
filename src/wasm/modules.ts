// Modules of kernels: compiled, chosen by what the engine can do, and instantiated.

import { STAMP } from "../../assembly/stamp.ts";
import { createInflate } from "../base/platform/host.ts";
import { DETACHED, expectFlag, type Global, readFields } from "../base/util/arguments.ts";
import { describe, HeadwiseError, hexOf, memoryRefused, showBytes, tagOf } from "../base/util/errors.ts";
import { type F32Ptr, type KernelTable, LinearShape, type PartKernels } from "./abi.ts";
import { LinearMemory, pointer } from "./memory.ts";
import { type SHARING, unfuse } from "./rewrite.ts";

/** `WebAssembly.Module` where its type is known, which programs without the DOM's types lack. */
type WasmModule = typeof globalThis extends { WebAssembly: { Module: { prototype: infer Module } } } ? Module : object;

/** A compiled WebAssembly module, or its bytes. */
export type WasmSource = WasmModule | ArrayBuffer | ArrayBufferView;

/** A compiled WebAssembly module, its bytes, a Response with its bytes, the URL of its bytes, or a promise of one of these. */
export type ModuleSource = WasmSource | WasmAddress | Promise<WasmSource | WasmAddress>;

/** A Response or a URL. */
type WasmAddress = Global<"Response"> | Global<"URL">;

/** What creates shared memory and modules for it. */
type Sharing = typeof SHARING;

/** A module, or an inlined relaxed one: base64 of its deflated bytes. */
type InlinedWasm = WasmModule | string;

/**
 * The bytes of an inlined module; any other source as it is. Only modules that run are decompressed, as each takes a
 * millisecond.
 */
async function unpack(inlined: WasmSource | string, name = "module"): Promise<WasmSource> {
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
function expectInflate(): ReturnType<typeof createInflate> {
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

/** A module of the sections that follow magic and version. */
const probe = (...sections: number[]) => Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, ...sections);

/** A module of one function that gives a v128. */
const SIMD_PROBE = /* @__PURE__ */ probe(
  ...[1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0], // type () -> v128, one function of it
  ...[10, 8, 1, 6, 0, 65, 0, 253, 15, 11], // i32.const 0, i8x16.splat
);

/**
 * Uses i32x4.relaxed_dot_i8x16_i7x16_add_s, the only instruction of the relaxed kernels that some engines with relaxed
 * SIMD lack.
 */
const DOT_PROBE = /* @__PURE__ */ probe(
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
function accepts(source: WasmSource): boolean {
  return isModule(source) || WebAssembly.validate(source);
}

/**
 * Whether the engine refuses a source because it lacks the instruction of DOT_PROBE; otherwise a refused source is
 * damaged.
 */
function lacksDots(source: WasmSource): boolean {
  return !WebAssembly.validate(DOT_PROBE) && !accepts(source);
}

/** A module as it is, or the bytes of one. Throws for anything else. */
function expectSource(name: string, source: unknown): WebAssembly.Module | Uint8Array<ArrayBuffer> {
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
async function compile(source: unknown, shared?: Sharing, name = "module"): Promise<WebAssembly.Module> {
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
function forbidden(cause: unknown): HeadwiseError {
  const text =
    "loadKernels: this host forbids compiling wasm from bytes; in a Worker import headwise under its workerd or edge-light " +
    "condition, or give headwise/core a module; in a page allow script-src 'wasm-unsafe-eval'";
  return new HeadwiseError("NO_CODEGEN", text, { cause });
}

/** The groups of kernels, one module each. */
type KernelGroup = keyof PartKernels;

/** The modules of an instance: always that of float32 kernels; those of weights and caches together or not at all. */
export type Modules = Readonly<{ floats: WebAssembly.Module } & Partial<Record<KernelGroup, WebAssembly.Module>>>;

/** Kernels and the memory they work on. */
export interface Instance {
  readonly kernels: KernelTable;
  readonly memory: LinearMemory;
  /** Whether this is the relaxed build. */
  readonly relaxed: boolean;
}

/** An instance with what workers need to instantiate the same kernels. */
export interface StartedInstance extends Instance {
  readonly modules: Modules;
  readonly wasmMemory: WebAssembly.Memory;
}

interface ModuleExports {
  readonly RELAXED: WebAssembly.Global;
  readonly HEAP_BASE: WebAssembly.Global;
  readonly STAMP?: WebAssembly.Global;
}

/**
 * Instantiates the float32 module on a memory of its own, or on shared memory. Throws OUT_OF_MEMORY, and ABI_MISMATCH
 * if the kernels are not those of this JavaScript. Asynchronous because some browsers refuse to instantiate more than 4
 * KB synchronously on the main thread.
 */
async function instantiate(floats: WebAssembly.Module, shared?: Sharing): Promise<StartedInstance> {
  const wasmMemory = shared ? shared.createMemory() : createMemory();
  const instance = await WebAssembly.instantiate(floats, { env: { memory: wasmMemory } });
  return { ...adopt(instance, wasmMemory), modules: { floats }, wasmMemory };
}

function createMemory(): WebAssembly.Memory {
  try {
    return new WebAssembly.Memory({ initial: 1 });
  } catch (cause) {
    throw memoryRefused("for the kernels", cause);
  }
}

/**
 * Instantiates the other modules on the memory of an instance. Their tables are below those of the float32 module,
 * hence below the heap.
 */
async function extend(
  instance: StartedInstance,
  others: Readonly<Partial<Record<KernelGroup, WebAssembly.Module>>>,
  nameOf: (part: KernelGroup) => string,
): Promise<StartedInstance> {
  const { relaxed, wasmMemory } = instance;
  const kernels = { ...instance.kernels };
  for (const [part, module] of Object.entries(others) as [KernelGroup, WebAssembly.Module][]) {
    const { exports } = await WebAssembly.instantiate(module, { env: { memory: wasmMemory } });
    Object.assign(kernels, kernelsIn(part, exports, nameOf(part)));
    if (isRelaxed(exports) !== relaxed) {
      const [want, got] = relaxed ? ["relaxed", "simd"] : ["simd", "relaxed"];
      throw new RangeError(`loadKernels: ${nameOf(part)} expected a module of the ${want} build, got one of ${got}`);
    }
  }
  return { ...instance, kernels, modules: { ...instance.modules, ...others } };
}

/** The kernels of an instance of the float32 module. Throws as `kernelsIn` does. */
export function adopt({ exports }: WebAssembly.Instance, memory: WebAssembly.Memory): Instance {
  return {
    kernels: kernelsIn("floats", exports, "module") as KernelTable,
    memory: new LinearMemory(memory, Number((exports as unknown as ModuleExports).HEAP_BASE.value)),
    relaxed: isRelaxed(exports),
  };
}

function isRelaxed(exports: WebAssembly.Exports): boolean {
  return Number((exports as unknown as ModuleExports).RELAXED.value) === 1;
}

/** A kernel of each part, which no other part has. */
const MARKS: { readonly [P in KernelGroup]: keyof PartKernels[P] & string } = {
  floats: "linear_f32",
  weights: "linear_q8",
  caches: "append_pages",
  latents: "append_latents",
  decoders: "embed_rows",
  statistics: "attention_statistics",
};

/** Whether an instance has the kernels of a part. */
export function hasPart({ kernels }: Instance, part: KernelGroup): boolean {
  return MARKS[part] in kernels;
}

/**
 * A part's kernels among the exports of a module, whose name in errors is `name`. Throws ABI_MISMATCH for the module of
 * another part, and for one that was not built with this JavaScript: its tables and structs may lie elsewhere.
 */
export function kernelsIn<P extends KernelGroup>(part: P, exports: WebAssembly.Exports, name: string): PartKernels[P] {
  const holds = (each: KernelGroup) => MARKS[each] in exports;
  const other = holds(part) ? undefined : (Object.keys(MARKS) as KernelGroup[]).find(holds);
  const { STAMP: stamp } = exports as unknown as Partial<ModuleExports>;
  if (other || stamp?.value !== STAMP) {
    const got = other ? `the module of ${other}` : "one of another version or origin";
    throw new HeadwiseError("ABI_MISMATCH", `loadKernels: ${name} expected the module of ${part}, got ${got}`);
  }
  const kernels = Object.entries(exports).filter(([, each]) => typeof each === "function");
  return Object.fromEntries(kernels) as unknown as PartKernels[P];
}

/** "simd" gives the same bits on every engine. "relaxed" is faster: it uses the fused multiply-add of the engine. */
export type Build = "simd" | "relaxed";

/** The float32 module of each build. */
export type Builds = Readonly<Record<Build, InlinedWasm>>;

/** The kernels of one build for formats other than float32: compiled, as bytes, or inlined as in `headwise/quantized`. */
export interface QuantizedModules {
  /** Weights in f16, bf16, q8, q8-row and q4: `headwise/weights-simd.wasm` or `headwise/weights-relaxed.wasm`. */
  readonly weights: WasmSource | string;
  /** Caches in f16, q8 and q4: `headwise/caches-simd.wasm` or `headwise/caches-relaxed.wasm`. */
  readonly caches: WasmSource | string;
}

/** The kernels for formats other than float32, for each build that may run. */
export type QuantizedKernels = Readonly<Partial<Record<Build, QuantizedModules>>>;

/** The kernels of one build for latent attention: compiled, as bytes, or inlined as in `headwise/latent`. */
export interface LatentModules {
  /** `headwise/latents-simd.wasm` or `headwise/latents-relaxed.wasm`. */
  readonly latents: WasmSource | string;
}

/** The kernels for latent attention, for each build that may run. */
export type LatentKernels = Readonly<Partial<Record<Build, LatentModules>>>;

/** The kernels of one build for whole decoders: compiled, as bytes, or inlined as in `headwise/models`. */
export interface DecoderModules {
  /** `headwise/decoders-simd.wasm` or `headwise/decoders-relaxed.wasm`. */
  readonly decoders: WasmSource | string;
}

/** The kernels for whole decoders, for each build that may run. */
export type ModelKernels = Readonly<Partial<Record<Build, DecoderModules>>>;

/** The kernels of one build for statistics of attention: compiled, as bytes, or inlined as in `headwise/inspect`. */
export interface StatisticsModules {
  /** `headwise/statistics-simd.wasm` or `headwise/statistics-relaxed.wasm`. */
  readonly statistics: WasmSource | string;
}

/** The kernels for statistics of attention, for each build that may run. */
export type StatisticsKernels = Readonly<Partial<Record<Build, StatisticsModules>>>;

/** Started modules, and why this build was chosen. */
export interface Started {
  readonly instance: StartedInstance;
  readonly reason: string;
  /** Whether it fuses multiply and add. */
  readonly fused: boolean;
}

/** Options of `loadKernels`. */
export interface LoadOptions {
  /**
   * A module to use instead of the inlined ones, such as `headwise/simd.wasm`: compiled, as bytes, or as a Response or URL
   * that delivers bytes (`file:` URLs on hosts with a file system). The build is that of the module.
   */
  readonly module?: ModuleSource;
  /** Use the build "simd", which gives the same bits on every engine. Default false: the faster build on this engine. */
  readonly deterministic?: boolean;
  /** Threads, 1 to 64, or "auto". Only `headwise/threads` has more than one. The bits do not depend on it. */
  readonly threads?: number | "auto";
  /** Kernels for formats other than float32: `quantized` of `headwise/quantized`, or your own modules. Default none. */
  readonly quantized?: QuantizedKernels;
  /** Kernels for latent attention: `latent` of `headwise/latent`, or your own modules. Default none. */
  readonly latent?: LatentKernels;
  /** Kernels for whole decoders: `models` of `headwise/models`, or your own modules. Default none. */
  readonly models?: ModelKernels;
  /** Kernels for statistics of attention: `statistics` of `headwise/inspect`, or your own modules. Default none. */
  readonly statistics?: StatisticsKernels;
}

/** Starts the caller's own modules, after checking that they match the options. */
export async function startOwn(choice: LoadOptions, shared?: Sharing): Promise<Started> {
  const deterministic = expectFlag("loadKernels", "deterministic", choice.deterministic);
  const given = readExtras(choice);
  const started = await start(choice.module as WasmSource, "the module given", shared);
  if (deterministic && started.instance.relaxed)
    throw new RangeError("loadKernels: deterministic expected the simd build as module, got the relaxed one");
  return complete(started, given, shared);
}

/**
 * Starts the caller's own modules, or those of one of two builds: relaxed if the engine accepts it and fuses, else
 * simd.
 */
export async function startChosen(builds: Builds, choice: LoadOptions, shared?: Sharing): Promise<Started> {
  if (choice.module !== undefined) return startOwn(choice, shared);
  const deterministic = expectFlag("loadKernels", "deterministic", choice.deterministic);
  const given = readExtras(choice);
  const simd = async (reason: string) =>
    complete(await start(await sourceOf("simd", builds.simd), reason, shared), given, shared);
  if (deterministic) return simd("deterministic was asked for");
  const fast = await unpack(builds.relaxed);
  const reason = "this engine fuses multiply and add";
  // First on unshared memory: shared memory reserves gigabytes of addresses, in vain if this build is rejected. Bytes are
  // validated only where compiling failed, because it validates them, too.
  const started = await start(fast, reason).catch((error: unknown) => {
    if (accepts(fast)) throw error;
  });
  if (!started) return simd("this engine has no relaxed SIMD");
  const extras = await Promise.all(given.map(unpackRelaxed));
  const refused = extras.map(refusedPart).find(Boolean);
  if (refused) return simd(`this engine has relaxed SIMD in part: it refuses ${refused}`);
  // Without fusing, relaxed SIMD gains nothing, and loses the bits that all engines share.
  if (!started.fused) return simd("this engine accepts relaxed SIMD but does not fuse");
  return complete(shared ? await start(fast, reason, shared) : started, extras, shared);
}

/** The module of a build, or its bytes, checked to be wasm. Inlined modules are relaxed ones, of which those of simd are made. */
async function sourceOf(build: Build, source: unknown, name = "module"): Promise<WasmSource> {
  const bytes = expectSource(name, await unpack(source as WasmSource, name));
  return build === "simd" && typeof source === "string" ? unfuse(bytes as Uint8Array) : bytes;
}

/** The options of `loadKernels` that add modules, and the parts of each. */
const EXTRAS = {
  quantized: ["weights", "caches"],
  latent: ["latents"],
  models: ["decoders"],
  statistics: ["statistics"],
} as const;

type Sources = Readonly<Partial<Record<KernelGroup, WasmSource | string>>>;

/** Modules of one of these options, by their build, which were read once. */
interface Extra {
  readonly option: keyof typeof EXTRAS;
  readonly builds: Readonly<Partial<Record<Build, Sources>>>;
}

function readExtras(choice: LoadOptions): Extra[] {
  return (Object.keys(EXTRAS) as Extra["option"][]).flatMap((option) => {
    const { [option]: modules } = choice;
    if (modules === undefined) return [];
    const given = readFields("loadKernels", option, modules, ["simd", "relaxed"]);
    const builds = Object.entries(given).map(([build, parts]) => [
      build,
      readFields("loadKernels", `${option}.${build}`, parts as Sources, EXTRAS[option] as readonly (keyof Sources)[]),
    ]);
    return { option, builds: Object.fromEntries(builds) };
  });
}

/** The modules of a build, or their bytes, checked to be wasm. */
async function unpackParts({ option, builds }: Extra, build: Build): Promise<Sources> {
  const ready = async (part: KernelGroup) => {
    const name = `${option}.${build}.${part}`;
    return [part, await sourceOf(build, builds[build]?.[part], name)];
  };
  return Object.fromEntries(await Promise.all(EXTRAS[option].map(ready)));
}

async function unpackRelaxed(extra: Extra): Promise<Extra> {
  const { option, builds } = extra;
  return builds.relaxed ? { option, builds: { ...builds, relaxed: await unpackParts(extra, "relaxed") } } : extra;
}

/**
 * The relaxed module that the engine refuses, if a simd one can replace it: of relaxed SIMD, WebKit has the fused
 * multiply-add, but only one of the byte products.
 */
function refusedPart({ option, builds: { simd, relaxed } }: Extra): string | undefined {
  const part = simd && relaxed && EXTRAS[option].find((each) => lacksDots(relaxed[each] as WasmSource));
  return part && `${option}.relaxed.${part}`;
}

/** Adds the modules of the build that was chosen. */
async function complete(started: Started, extras: readonly Extra[], shared: Sharing | undefined): Promise<Started> {
  const build = started.instance.relaxed ? "relaxed" : "simd";
  let { instance } = started;
  for (const extra of extras) {
    const name = `${extra.option}.${build}`;
    if (extra.builds[build] === undefined) {
      const text = `loadKernels: ${name} expected the modules of the build that runs here, got undefined`;
      throw new HeadwiseError(`NO_${extra.option.toUpperCase() as Uppercase<Extra["option"]>}`, text);
    }
    const nameOf = (part: KernelGroup) => `${name}.${part}`;
    const sources = Object.entries(await unpackParts(extra, build)) as [KernelGroup, WasmSource][];
    const compiled = sources.map(async ([part, source]) => [part, await compile(source, shared, nameOf(part))]);
    const modules = Object.fromEntries(await Promise.all(compiled));
    const before = instance;
    instance = await fitting(name, () => extend(before, modules, nameOf));
  }
  return { ...started, instance };
}

async function start(source: WasmSource, reason: string, shared?: Sharing): Promise<Started> {
  const module = await compile(source, shared);
  const instance = await fitting("module", () => instantiate(module, shared));
  return { instance, reason, fused: fuses(instance) };
}

/**
 * Runs `work`, which instantiates modules. A module of another origin fails on its imports or exports, before its
 * kernels can be checked.
 */
async function fitting(name: string, work: () => Promise<StartedInstance>): Promise<StartedInstance> {
  try {
    return await work();
  } catch (cause) {
    // By name, since a test runner or a frame may bring classes of its own.
    const { name: kind, message } = cause as Error;
    if (cause instanceof HeadwiseError || message.startsWith("loadKernels: ")) throw cause;
    if (kind === "RangeError") throw memoryRefused(`to start ${name}`, cause);
    // WebKit forbids wasm only here, after compiling it.
    if (kind === "CompileError") throw forbidden(cause);
    const text = `loadKernels: ${name} expected a module of this package, got one that does not accept its memory`;
    throw new HeadwiseError("ABI_MISMATCH", text, { cause });
  }
}

/** (1 + 2^-12)² - (1 + 2^-11) is 2^-24 when the product is not rounded, else 0. */
function fuses({ kernels, memory }: Instance): boolean {
  const at = memory.allocate("loadKernels", 4 * 32 + LinearShape.bytes);
  const [x, w, bias, out] = [at, at + 32, at + 64, at + 96].map(pointer.f32) as [F32Ptr, F32Ptr, F32Ptr, F32Ptr];
  memory.f32(x, 16).fill(1 + 2 ** -12);
  memory.f32(bias, 8).fill(-(1 + 2 ** -11));
  const shape = pointer.linearShape(at + 4 * 32);
  const linear = { panels: 1, k: 1, outStride: 8, xStride: 1, bf16: 0, block: 0, mode: 0, zero: 0, type: 0 };
  LinearShape.store(memory.view(), shape, linear);
  kernels.linear_f32(out, x, w, bias, shape, 0, 1);
  const fused = memory.f32(out, 1)[0] !== 0;
  memory.free(at);
  return fused;
}
