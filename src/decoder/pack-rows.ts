// Packs matrices [outputs, inputs] of a file, a part at a time. 16-bit floats are widened by a kernel, in the memory that packing
// goes through: JavaScript takes as long for that as packing.

import { PANEL } from "../../assembly/layout.ts";
import { minBytes, panelBytes, sumBytes } from "../linear/formats.ts";
import type { LinearPlace } from "../linear/linear.ts";
import { packMatrix, stagedFloats } from "../linear/pack.ts";
import type { StoredTensor } from "../tensor/dtypes.ts";
import { rowsOf } from "../tensor/matrix.ts";
import { chunksOf } from "../util/rows.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { pointer } from "../wasm/memory.ts";

/**
 * Packs outputs from `first` on, a multiple of 8, into their place in the block at `base`. `staging` has room for stagedFloats of
 * the whole.
 */
export function packRows(
  kernels: Kernels,
  base: number,
  { n, k, format, w, sums, mins }: LinearPlace,
  first: number,
  matrix: StoredTensor,
  staging: number,
): void {
  const isWidened = /^B?F16$/.test(matrix.dtype) && format.toUpperCase() !== matrix.dtype;
  const rows = PANEL * Math.floor(stagedFloats({ n, k }) / (PANEL * k));
  for (const [begin, end] of chunksOf(matrix.shape[0] as number, rows)) {
    const piece = rowsOf(matrix, begin, end);
    const panel = (first + begin) / PANEL;
    const to = {
      ...{ format, w: base + w + panel * panelBytes(format, k) },
      ...{ sums: base + sums + panel * sumBytes(format, k), mins: base + mins + panel * minBytes(format, k) },
    };
    packMatrix(kernels, isWidened ? widen(kernels, piece, staging) : piece, "out-in", to, staging);
  }
}

/** A piece of 16-bit floats as float32 in `staging`. */
function widen({ table, memory }: Kernels, piece: StoredTensor, staging: number): StoredTensor {
  const { bytes, dtype } = piece;
  const at = staging + bytes.length;
  memory.u8(at, bytes.length).set(bytes);
  table.widen_f16(pointer.f32(staging), pointer.u16(at), dtype === "BF16" ? 1 : 0, 0, bytes.length / 2);
  return { ...piece, dtype: "F32", bytes: memory.u8(staging, 2 * bytes.length) };
}
