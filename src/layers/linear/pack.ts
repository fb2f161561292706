// Packs matrices into panels. Pieces are copied to linear memory and packed by a kernel one at a time, so that no
// matrix is held twice, or as float32 without need.

import { PANEL } from "../../../assembly/layout.ts";
import type { StoredTensor } from "../../base/tensor/dtypes.ts";
import { type MatrixLayout, rowsOf, sizeIn, transposedColumnsOf } from "../../base/tensor/matrix.ts";
import { chunksOf } from "../../base/util/rows.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import type { LinearSize, PackedFormat, PackedPlace } from "./formats/format.ts";
import { FORMATS } from "./formats/formats.ts";

/** Floats of a piece, if no panel and no row is longer. */
const STAGED_FLOATS = 2 ** 16;

/** Floats of staging memory for packing a matrix of n outputs and k inputs. */
export function stagedFloats({ n, k }: LinearSize): number {
  return Math.max(Math.min(STAGED_FLOATS, n * k), PANEL * k, n);
}

/**
 * Allocates a block that `fill` packs matrices of these sizes into, by way of staging memory. If it throws, nothing
 * stays allocated.
 */
export function packBlock<T extends object>(
  where: string,
  { memory }: Kernels,
  bytes: number,
  sizes: readonly LinearSize[],
  fill: (at: number, staging: number) => T,
): T & { readonly at: number; readonly bytes: number } {
  const at = memory.allocate(where, bytes);
  let staging: number | undefined;
  try {
    staging = memory.allocate(where, 4 * Math.max(...sizes.map(stagedFloats)));
    return { ...fill(at, staging), at, bytes };
  } catch (error) {
    memory.free(at);
    throw error;
  } finally {
    if (staging !== undefined) memory.free(staging);
  }
}

/**
 * Packs a matrix [n, k], or [k, n] if its layout is "in-out", to the addresses of its panels, and of the sums and the minimums of
 * its weights, if the format has them. `staging` has room for stagedFloats.
 */
export function packMatrix(
  kernels: Kernels,
  matrix: StoredTensor,
  layout: MatrixLayout,
  { format: name, w, sums, mins }: PackedPlace & { readonly format: PackedFormat },
  staging: number,
): void {
  const [n, k] = sizeIn(matrix, layout);
  const most = stagedFloats({ n, k });
  const format = FORMATS[name];
  const bytes = format.panelBytes(k);
  if (layout === "in-out" && format.packInputs) {
    for (const [begin, end] of chunksOf(k, Math.floor(most / n)))
      format.packInputs(kernels, rowsOf(matrix, begin, end), n, k, w + begin * (bytes / k), staging);
    return;
  }
  for (const [begin, end] of chunksOf(n, PANEL * Math.floor(most / (PANEL * k)))) {
    const piece = layout === "out-in" ? rowsOf(matrix, begin, end) : transposedColumnsOf(matrix, begin, end);
    const panel = begin / PANEL;
    const to = {
      w: w + panel * bytes,
      sums: sums + panel * format.sumBytes(k),
      mins: mins + panel * format.minBytes(k),
    };
    format.pack(kernels, piece, to, staging);
  }
}
