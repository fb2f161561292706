import type { F32Ptr } from "./abi.ts";
import { type CarriedWasm, compile, forbidden, isModule, type ModuleSource, unpack } from "./compile.ts";
import { expectFlag, HeadwiseError } from "./errors.ts";
import type { Instance } from "./instantiate.ts";
import { pointer } from "./memory.ts";

/** A started module, and why it is this one. */
export interface Started<I extends Instance = Instance> {
  readonly instance: I;
  readonly reason: string;
  /** Whether it fuses multiply and add. */
  readonly fused: boolean;
}

/** What says which module to start. */
export interface Choice {
  readonly module?: ModuleSource;
  readonly deterministic?: boolean;
}

/** Starts the module of a caller's own, after checking that it is what they ask for. */
export async function startOwn<I extends Instance>(
  choice: Choice,
  instantiate: (module: WebAssembly.Module) => Promise<I>,
): Promise<Started<I>> {
  const deterministic = expectFlag("loadKernels", "deterministic", choice.deterministic);
  const started = await start(choice.module as ModuleSource, "the module given", instantiate);
  if (deterministic && started.instance.relaxed)
    throw new RangeError("loadKernels: deterministic expected the simd build as module, got the relaxed one");
  return started;
}

/** Starts the caller's own module or one of two builds: relaxed where the engine accepts it and really fuses, else simd. */
export async function startChosen<I extends Instance>(
  simd: CarriedWasm,
  relaxed: CarriedWasm,
  choice: Choice,
  instantiate: (module: WebAssembly.Module) => Promise<I>,
): Promise<Started<I>> {
  if (choice.module !== undefined) return startOwn(choice, instantiate);
  if (expectFlag("loadKernels", "deterministic", choice.deterministic))
    return start(unpack(simd), "deterministic was asked for", instantiate);
  const fast = unpack(relaxed);
  if (!isModule(fast) && !WebAssembly.validate(fast))
    return start(unpack(simd), "this engine has no relaxed SIMD", instantiate);
  const started = await start(fast, "this engine fuses multiply and add", instantiate);
  // An engine that accepts relaxed SIMD and does not fuse gains nothing from it and loses the bits that all engines share.
  return started.fused
    ? started
    : start(unpack(simd), "this engine accepts relaxed SIMD but does not fuse", instantiate);
}

/** A module of something else fails on its imports or exports before its kernels can be counted. */
async function start<I extends Instance>(
  source: ModuleSource,
  reason: string,
  instantiate: (module: WebAssembly.Module) => Promise<I>,
): Promise<Started<I>> {
  const module = await compile(source);
  try {
    const instance = await instantiate(module);
    return { instance, reason, fused: fuses(instance) };
  } catch (cause) {
    if (cause instanceof HeadwiseError) throw cause;
    // Of a module that was compiled already. By name, since a test runner or a frame may bring classes of its own.
    if ((cause as Error).name === "CompileError") throw forbidden(cause);
    const text = "loadKernels: module expected one of this package's, got one that does not start on its memory";
    throw new HeadwiseError("ABI_MISMATCH", text, { cause });
  }
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
