import { HeadwiseError, memoryRefused } from "../util/errors.ts";
import { KERNEL_ARITY, type KernelTable, type PartKernels } from "./abi.ts";
import { LinearMemory } from "./memory.ts";
import type { Sharing } from "./shared-memory.ts";

/** The groups of kernels, one module each. */
export type Part = keyof PartKernels;

/** The modules of an instance: float32 kernels always, the other two together or not at all. */
export interface Modules {
  readonly floats: WebAssembly.Module;
  readonly weights?: WebAssembly.Module;
  readonly caches?: WebAssembly.Module;
}

/** Kernels and the memory they work on. */
export interface Instance {
  readonly kernels: KernelTable;
  readonly memory: LinearMemory;
  /** Whether this is the relaxed build. */
  readonly relaxed: boolean;
  /** Whether kernels for weights and caches of other formats than float32 are loaded. */
  readonly quantized: boolean;
}

/** An instance with what workers need to instantiate the same kernels. */
export interface StartedInstance extends Instance {
  readonly modules: Modules;
  readonly wasmMemory: WebAssembly.Memory;
}

interface ModuleExports {
  readonly RELAXED: WebAssembly.Global;
  readonly HEAP_BASE: WebAssembly.Global;
}

/**
 * Instantiates the float32 module on a memory of its own, or on shared memory. Throws OUT_OF_MEMORY, and ABI_MISMATCH
 * if the kernels are not those of this JavaScript. Asynchronous because some browsers refuse to instantiate more than 4
 * KB synchronously on the main thread.
 */
export async function instantiate(floats: WebAssembly.Module, shared?: Sharing): Promise<StartedInstance> {
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
export async function extend(
  instance: StartedInstance,
  others: Required<Omit<Modules, "floats">>,
  nameOf: (part: Part) => string,
): Promise<StartedInstance> {
  const { relaxed, wasmMemory } = instance;
  const kernels = { ...instance.kernels };
  for (const part of ["weights", "caches"] as const) {
    const { exports } = await WebAssembly.instantiate(others[part], { env: { memory: wasmMemory } });
    Object.assign(kernels, kernelsIn(part, exports, nameOf(part)));
    if (isRelaxed(exports) !== relaxed) {
      const [want, got] = relaxed ? ["relaxed", "simd"] : ["simd", "relaxed"];
      throw new RangeError(`loadKernels: ${nameOf(part)} expected a module of the ${want} build, got one of ${got}`);
    }
  }
  return { ...instance, kernels, quantized: true, modules: { ...instance.modules, ...others } };
}

/** The kernels of an instance of the float32 module, checked against KERNEL_ARITY. */
export function adopt({ exports }: WebAssembly.Instance, memory: WebAssembly.Memory): Instance {
  return {
    kernels: kernelsIn("floats", exports, "the module") as KernelTable,
    memory: new LinearMemory(memory, Number((exports as unknown as ModuleExports).HEAP_BASE.value)),
    relaxed: isRelaxed(exports),
    quantized: false,
  };
}

function isRelaxed(exports: WebAssembly.Exports): boolean {
  return Number((exports as unknown as ModuleExports).RELAXED.value) === 1;
}

/** A part's kernels among the exports of a module, checked against KERNEL_ARITY. `name` is the module's in errors. */
export function kernelsIn<P extends Part>(part: P, exports: WebAssembly.Exports, name: string): PartKernels[P] {
  const kernels: Record<string, unknown> = {};
  for (const [kernel, arity] of Object.entries<number>(KERNEL_ARITY[part])) {
    const found = exports[kernel];
    const got = typeof found === "function" ? found.length : undefined;
    if (got !== arity) {
      const what = got === undefined ? "none" : `one of ${got}`;
      const text = `loadKernels: ${name} expected a kernel ${kernel} of ${arity} arguments, got ${what}; its .wasm and .js are of different versions`;
      throw new HeadwiseError("ABI_MISMATCH", text);
    }
    kernels[kernel] = found;
  }
  return kernels as unknown as PartKernels[P];
}
