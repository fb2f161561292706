import { STAMP } from "../../assembly/stamp.ts";
import { HeadwiseError, memoryRefused } from "../util/errors.ts";
import type { KernelTable, PartKernels } from "./abi.ts";
import { LinearMemory } from "./memory.ts";
import type { Sharing } from "./shared-memory.ts";

/** The groups of kernels, one module each. */
export type KernelGroup = keyof PartKernels;

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
export const MARKS: { readonly [P in KernelGroup]: keyof PartKernels[P] & string } = {
  floats: "linear_f32",
  weights: "linear_q8",
  caches: "append_pages",
  latents: "append_latents",
  decoders: "embed_rows",
  statistics: "attention_statistics",
};

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
