import { vi } from "vitest";
import type { KernelTable } from "../../src/wasm/abi.ts";
import type { Kernels } from "../../src/wasm/kernels.ts";

/**
 * Replaces kernels of these names so that call number `count` of them, counted together, throws "failed". Returns a function
 * that puts them back.
 */
export function failKernels({ table }: Kernels, names: readonly (keyof KernelTable)[], count: number): () => void {
  let calls = 0;
  const kernels = table as unknown as Record<string, (...args: unknown[]) => void>;
  const spies = names.map((name) => {
    const run = kernels[name] as (...args: unknown[]) => void;
    return vi.spyOn(kernels, name).mockImplementation((...args: unknown[]) => {
      if (++calls === count) throw new Error("failed");
      run(...args);
    });
  });
  return () => {
    for (const spy of spies) spy.mockRestore();
  };
}
