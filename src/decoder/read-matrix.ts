// Packed matrices as floats again, in any format.

import type { PackedLinear } from "../linear/linear.ts";
import { EMBED_SHAPE_BYTES } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { embedRows } from "./rows.ts";

/** About how many floats are read at a time. */
const READ_FLOATS = 2 ** 20;

/** Where the panels of a matrix are, and what they consist of. */
export type Panels = Pick<PackedLinear, "k" | "format" | "w" | "mins">;

/**
 * Rows first..first + count of a packed matrix: [count, k], the very numbers that products multiply by. A matrix has the panels of a
 * table of tokens, whose rows a kernel reads.
 */
export function readMatrix(
  where: string,
  kernels: Kernels,
  { k, format, w, mins }: Panels,
  first: number,
  count: number,
): Float32Array {
  const { memory } = kernels;
  const most = Math.min(count, Math.max(1, Math.floor(READ_FLOATS / k)));
  const layout = new Layout();
  const [shape, ids, rows] = [layout.take(EMBED_SHAPE_BYTES), layout.take(4 * most), layout.floats(most * k)];
  const base = memory.scratch(where, layout.bytes);
  const table = { rows: first + count, dim: k, format, at: w, mins };
  const to = { at: pointer.f32(base + rows), stride: k };
  const floats = new Float32Array(count * k);
  for (let begin = 0; begin < count; begin += most) {
    const part = Math.min(most, count - begin);
    const numbers = memory.u32(base + ids, part);
    for (let i = 0; i < part; i++) numbers[i] = first + begin + i;
    embedRows({ kernels, base, shape }, table, base + ids, to, 1, part);
    floats.set(memory.f32(to.at, part * k), begin * k);
  }
  return floats;
}
