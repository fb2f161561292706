import { instantiateSync } from "@assemblyscript/loader";
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

type ModuleExports = KernelTable & {
  readonly RELAXED: WebAssembly.Global;
  readonly HEAP_BASE: WebAssembly.Global;
};

/** Starts a kernel module on a memory of its own. Throws ABI_MISMATCH when its kernels are not those of this host. */
export function instantiate(module: WebAssembly.Module): Instance {
  const memory = new WebAssembly.Memory({ initial: 1 });
  const exports = instantiateSync(module, { env: { memory } }).instance.exports as unknown as ModuleExports;
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
