import { HeadwiseError, memoryRefused } from "../util/errors.ts";
import { KERNEL_ARITY, type KernelTable, type PartKernels } from "./abi.ts";
import { LinearMemory } from "./memory.ts";
import type { Sharing } from "./shared-memory.ts";

/** The parts that kernels come in: a module each. */
export type Part = keyof PartKernels;

/** The modules of an instance: floats always, the others together or not at all. */
export interface Modules {
  readonly floats: WebAssembly.Module;
  readonly weights?: WebAssembly.Module;
  readonly caches?: WebAssembly.Module;
}

/** Modules' kernels beside the memory they work on. */
export interface Instance {
  readonly kernels: KernelTable;
  readonly memory: LinearMemory;
  /** Made with relaxed SIMD. */
  readonly relaxed: boolean;
  /** Knows weights and caches that are not float32. */
  readonly quantized: boolean;
}

/** An instance with what others need to start the same on its memory. */
export interface StartedInstance extends Instance {
  readonly modules: Modules;
  readonly wasmMemory: WebAssembly.Memory;
}

interface ModuleExports {
  readonly RELAXED: WebAssembly.Global;
  readonly HEAP_BASE: WebAssembly.Global;
}

/**
 * Starts the module of floats on a memory of its own, or on one that threads share. Throws ABI_MISMATCH when its kernels are
 * not those of this host, and OUT_OF_MEMORY. Asynchronous because some browsers refuse to start more than 4 KB synchronously
 * on a page's own thread.
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

/** Starts the other modules on the memory of an instance. Their tables lie below those of floats, where no heap is. */
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

/** The kernels of an instance of the module of floats, checked against those of this host. */
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

/** A part's kernels among what a module exports. `name` is the module's in errors. */
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
