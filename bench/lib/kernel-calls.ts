// The kernel calls of some work, to be repeated without what the host does between them.

import { AttentionShape, type KernelTable, LinearShape } from "../../src/wasm/abi.ts";
import type { Build } from "./builds.ts";

/** Bytes of the shape behind the third last argument of a kernel, where later calls of the host may overwrite it. */
function shapeBytes(kernel: string): number {
  if (kernel.startsWith("linear_")) return LinearShape.bytes;
  return kernel.startsWith("attention_") ? AttentionShape.bytes : 0;
}

/** Runs `run` once; what is returned repeats its calls of the kernels that are wanted, with the shapes that these had. */
export function recordCalls(build: Build, run: () => void, wanted: (kernel: string) => boolean): () => void {
  type Kernel = (...args: number[]) => void;
  const { host, memory } = build;
  const table = host.table as unknown as Record<keyof KernelTable, Kernel>;
  const calls: (() => void)[] = [];
  const own = Object.entries(table) as [keyof KernelTable, Kernel][];
  for (const [name, kernel] of own.filter(([each]) => wanted(each)))
    table[name] = (...args) => {
      const kept = [...args];
      const bytes = shapeBytes(name);
      if (bytes > 0) {
        const at = memory.allocate("bench", bytes);
        memory.u8(at, bytes).set(memory.u8(args.at(-3)!, bytes));
        kept[args.length - 3] = at;
      }
      const [a, b, c, d, e, f, g, h] = kept as [number, number, number, number, number, number, number, number];
      calls.push(() => kernel(a, b, c, d, e, f, g, h));
      kernel(...args);
    };
  run();
  for (const [name, kernel] of own) table[name] = kernel;
  return () => {
    for (const call of calls) call();
  };
}
