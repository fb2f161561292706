import { HeadwiseError } from "../util/errors.ts";
import type { LinearMemory } from "../wasm/memory.ts";

/**
 * Grows memory for blocks that are allocated next, once: each growth costs the engine about a millisecond. Where so many bytes
 * do not fit in one piece, the blocks may, and grow it themselves.
 */
export function reserve(where: string, memory: LinearMemory, bytes: number): void {
  try {
    memory.free(memory.allocate(where, bytes));
  } catch (error) {
    if (!(error instanceof HeadwiseError) || error.code !== "OUT_OF_MEMORY") throw error;
  }
}
