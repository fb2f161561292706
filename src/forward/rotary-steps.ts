// RoPE on rows in linear memory.

import type { LayerParts } from "../attention/attention.ts";
import type { RowRun } from "../util/rows.ts";
import { storeRopeShape } from "../wasm/abi.ts";
import { pointer } from "../wasm/memory.ts";

/** A layer, and the offsets of what its rotations need in the scratch at `base`. */
interface RotaryWork {
  readonly attention: Pick<LayerParts, "kernels" | "rotary">;
  readonly places: {
    /** [rows, rope.dim / 2] each. */
    readonly cos: number;
    readonly sin: number;
    /** What describes heads to the kernel that rotates them. */
    readonly ropeShape: number;
  };
  readonly base: number;
}

/** Writes cos and sin for the positions of the runs. */
export function fillTables<Of>(
  { attention: { kernels, rotary }, places, base }: RotaryWork,
  runs: readonly RowRun<Of>[],
  positionsOf: (of: Of) => Int32Array,
): void {
  if (!rotary) return;
  const half = rotary.dim / 2;
  for (const { of, begin, end, at } of runs) {
    const table = (place: number) => kernels.memory.f32(base + place + 4 * at * half, (end - begin) * half);
    rotary.fill(positionsOf(of).subarray(begin, end), table(places.cos), table(places.sin));
  }
}

/** Rotates `heads` heads of each row by these tables, in place; the first rotated component of the first lies at `x`. */
export function rotateHeads(
  { attention: { kernels, rotary }, places, base }: RotaryWork,
  x: number,
  heads: number,
  headDim: number,
  stride: number,
  rows: number,
): void {
  if (!rotary) return;
  const shape = pointer.ropeShape(base + places.ropeShape);
  storeRopeShape(kernels.memory.view(), shape, {
    numHeads: heads,
    headDim,
    ropeDim: rotary.dim,
    interleaved: rotary.pairing === "interleaved" ? 1 : 0,
    stride,
  });
  const [cos, sin] = [pointer.f32(base + places.cos), pointer.f32(base + places.sin)];
  kernels.table.rope_f32(pointer.f32(x), cos, sin, shape, 0, rows);
}
