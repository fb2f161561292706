import { KERNEL_ARITY, type KernelTable } from "./abi.ts";
import { HeadwiseError } from "./errors.ts";
import { LinearMemory } from "./memory.ts";

/** A module's kernels beside the memory they work on. */
export interface Instance {
  readonly kernels: KernelTable;
  readonly memory: LinearMemory;
  /** Made with relaxed SIMD. */
  readonly relaxed: boolean;
}

/** An instance whose memory other threads share, with what they need to join. */
export interface SharedInstance extends Instance {
  readonly module: WebAssembly.Module;
  readonly wasmMemory: WebAssembly.Memory;
}

type ModuleExports = KernelTable & {
  readonly RELAXED: WebAssembly.Global;
  readonly HEAP_BASE: WebAssembly.Global;
};

/**
 * Starts a kernel module on a memory of its own. Throws ABI_MISMATCH when its kernels are not those of this host.
 * Asynchronous because some browsers refuse to start more than 4 KB synchronously on a page's own thread.
 */
export async function instantiate(module: WebAssembly.Module): Promise<Instance> {
  const memory = new WebAssembly.Memory({ initial: 1 });
  return adopt(await WebAssembly.instantiate(module, { env: { memory } }), memory);
}

/** Starts a module of a threaded build on shared memory. */
export async function instantiateShared(module: WebAssembly.Module): Promise<SharedInstance> {
  const wasmMemory = createSharedMemory();
  const instance = await WebAssembly.instantiate(module, { env: { memory: wasmMemory } });
  return { ...adopt(instance, wasmMemory), module, wasmMemory };
}

/** Pages that shared memory may grow to: 4 GiB, or less where an engine cannot set so many addresses aside. */
const MOST_PAGES = [65_536, 16_384, 4096];

function createSharedMemory(): WebAssembly.Memory {
  let refused: unknown;
  for (const maximum of MOST_PAGES) {
    try {
      return new WebAssembly.Memory({ initial: 1, maximum, shared: true });
    } catch (error) {
      refused = error;
    }
  }
  throw refused;
}

/** The kernels of an instance, checked against those of this host. */
export function adopt(instance: WebAssembly.Instance, memory: WebAssembly.Memory): Instance {
  const exports = instance.exports as unknown as ModuleExports;
  for (const [name, arity] of Object.entries(KERNEL_ARITY)) {
    const kernel: unknown = exports[name as keyof KernelTable];
    const got = typeof kernel === "function" ? kernel.length : undefined;
    if (got !== arity) {
      const found = got === undefined ? "none" : `one of ${got}`;
      const text = `loadKernels: the module expected a kernel ${name} of ${arity} arguments, got ${found}; its .wasm and .js are of different versions`;
      throw new HeadwiseError("ABI_MISMATCH", text);
    }
  }
  return {
    kernels: exports,
    memory: new LinearMemory(memory, Number(exports.HEAP_BASE.value)),
    relaxed: Number(exports.RELAXED.value) === 1,
  };
}
