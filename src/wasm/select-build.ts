import { expectFlag, readFields } from "../util/arguments.ts";
import { HeadwiseError, memoryRefused } from "../util/errors.ts";
import { type F32Ptr, LINEAR_SHAPE_BYTES, storeLinearShape } from "./abi.ts";
import {
  accepts,
  compile,
  expectSource,
  forbidden,
  type InlinedWasm,
  lacksDots,
  type ModuleSource,
  unpack,
  type WasmSource,
} from "./compile.ts";
import { extend, type Instance, instantiate, type KernelGroup, type StartedInstance } from "./instantiate.ts";
import { unfuse } from "./lower-fma.ts";
import { pointer } from "./memory.ts";
import type { Sharing } from "./shared-memory.ts";

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

/** The options that determine which modules to start. */
export interface Choice {
  readonly module?: ModuleSource;
  readonly deterministic?: boolean;
  readonly quantized?: QuantizedKernels;
  readonly latent?: LatentKernels;
  readonly models?: ModelKernels;
  readonly statistics?: StatisticsKernels;
}

/** Starts the caller's own modules, after checking that they match the options. */
export async function startOwn(choice: Choice, shared?: Sharing): Promise<Started> {
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
export async function startChosen(builds: Builds, choice: Choice, shared?: Sharing): Promise<Started> {
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
export const EXTRAS = {
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

function readExtras(choice: Choice): Extra[] {
  return (Object.keys(EXTRAS) as Extra["option"][]).flatMap((option) => {
    const { [option]: modules } = choice;
    if (modules === undefined) return [];
    const given = readFields("loadKernels", option, modules, ["simd", "relaxed"]);
    const builds = Object.entries(given).map(([build, parts]) => [
      build,
      readFields("loadKernels", `${option}.${build}`, parts as Sources, EXTRAS[option]),
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
  const at = memory.allocate("loadKernels", 4 * 32 + LINEAR_SHAPE_BYTES);
  const [x, w, bias, out] = [at, at + 32, at + 64, at + 96].map(pointer.f32) as [F32Ptr, F32Ptr, F32Ptr, F32Ptr];
  memory.f32(x, 16).fill(1 + 2 ** -12);
  memory.f32(bias, 8).fill(-(1 + 2 ** -11));
  const shape = pointer.linearShape(at + 4 * 32);
  const linear = { panels: 1, k: 1, outStride: 8, xStride: 1, bf16: 0, block: 0, mode: 0, zero: 0 };
  storeLinearShape(memory.view(), shape, linear);
  kernels.linear_f32(out, x, w, bias, shape, 0, 1);
  const fused = memory.f32(out, 1)[0] !== 0;
  memory.free(at);
  return fused;
}
