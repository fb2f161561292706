// Packs matrices into panels. Pieces are copied to linear memory and packed by a kernel one at a time, so that no
// matrix is held twice, or as float32 without need.

import { PANEL } from "../../../assembly/layout.ts";
import { CODED_BLOCKS, decodeFloats, isCoded, type StoredTensor } from "../../base/tensor/dtypes.ts";
import { type MatrixLayout, rowsOf, sizeIn, transposedColumnsOf } from "../../base/tensor/matrix.ts";
import { chunksOf } from "../../base/util/rows.ts";
import { NULL } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { pointer } from "../../wasm/memory.ts";
import {
  blockOf,
  formatOf,
  hasMins,
  isInteger,
  isNibbles,
  type LinearSize,
  minBytes,
  type PackedFormat,
  panelBytes,
  panelsOf,
  sumBytes,
} from "./formats.ts";

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
  { format, w, sums, mins }: PackedPlace,
  staging: number,
): void {
  const [n, k] = sizeIn(matrix, layout);
  const most = stagedFloats({ n, k });
  if (layout === "in-out" && !isInteger(format)) {
    for (const [begin, end] of chunksOf(k, Math.floor(most / n)))
      packInputs(
        kernels,
        rowsOf(matrix, begin, end),
        format,
        n,
        k,
        w + begin * PANEL * (format === "f32" ? 4 : 2),
        staging,
      );
    return;
  }
  const bytes = panelBytes(format, k);
  for (const [begin, end] of chunksOf(n, PANEL * Math.floor(most / (PANEL * k)))) {
    const piece = layout === "out-in" ? rowsOf(matrix, begin, end) : transposedColumnsOf(matrix, begin, end);
    const panel = begin / PANEL;
    const to = {
      ...{ format, w: w + panel * bytes },
      ...{ sums: sums + panel * sumBytes(format, k), mins: mins + panel * minBytes(format, k) },
    };
    packOutputs(kernels, piece, to, staging);
  }
}

/** Where a matrix is packed to: the addresses of its panels, and of sums and minimums if its format has them. */
interface PackedPlace {
  readonly format: PackedFormat;
  readonly w: number;
  readonly sums: number;
  readonly mins: number;
}

/** Copies a piece to `staging` in its own dtype. */
function stage({ memory }: Kernels, { bytes }: StoredTensor, staging: number): number {
  memory.u8(staging, bytes.length).set(bytes);
  return staging;
}

/** Copies a piece to `staging` as float32. */
function stageFloats(kernels: Kernels, piece: StoredTensor, staging: number) {
  const [n, k] = piece.shape as [number, number];
  const staged = kernels.memory.f32(staging, n * k);
  const floats = decodeFloats(piece, "", staged);
  if (floats !== staged) staged.set(floats);
  return pointer.f32(staging);
}

/** Packs rows of a matrix as whole panels of outputs. A matrix that keeps its dtype is moved bit for bit. */
function packOutputs(
  kernels: Kernels,
  piece: StoredTensor,
  { format, w: to, sums, mins }: PackedPlace,
  staging: number,
): void {
  const { table } = kernels;
  const { dtype } = piece;
  const [n, k] = piece.shape as [number, number];
  const panels = panelsOf(n);
  if (format === "f32") {
    table.pack_rows_f32(pointer.f32(to), stageFloats(kernels, piece, staging), n, k, 0, panels);
  } else if (format === "f16" || format === "bf16") {
    const out = pointer.u16(to);
    if (dtype === format.toUpperCase())
      table.repack_rows_f16(out, pointer.u16(stage(kernels, piece, staging)), n, k, 0, panels);
    else table.pack_rows_f16(out, stageFloats(kernels, piece, staging), n, k, format === "bf16" ? 1 : 0, 0, panels);
  } else {
    const out = pointer.u8(to);
    const sumsAt = pointer.u8(sums);
    const block = blockOf(format, k);
    if (dtype === "Q8_0" && format === "q8")
      table.repack_q8(out, sumsAt, pointer.u8(stage(kernels, piece, staging)), n, k, 0, panels);
    else if (dtype === "Q4_0" && format === "q4")
      table.repack_q4(out, pointer.u8(stage(kernels, piece, staging)), n, k, 0, panels);
    else if (isCoded(dtype) && formatOf({ dtype }, true) === format) {
      const blocks = pointer.u8(stage(kernels, piece, staging));
      const { bytes } = CODED_BLOCKS[dtype];
      table.pack_blocks(out, isNibbles(format) ? NULL : sumsAt, blocks, n, k, bytes, 0, panels);
      if (hasMins(format)) table.pack_mins(pointer.f32(mins), blocks, n, k, bytes, 0, panels);
    } else if (format === "q4") table.pack_q4(out, stageFloats(kernels, piece, staging), n, k, 0, panels);
    else table.pack_q8(out, sumsAt, stageFloats(kernels, piece, staging), n, k, block, 0, panels);
  }
}

/** Packs rows [k', n] of a matrix with layout "in-out": some inputs of all outputs. */
function packInputs(
  kernels: Kernels,
  piece: StoredTensor,
  format: PackedFormat,
  n: number,
  k: number,
  to: number,
  staging: number,
): void {
  const { table } = kernels;
  const rows = piece.shape[0] as number;
  const out = pointer.u16(to);
  if (format === "f32") {
    table.pack_columns_f32(pointer.f32(to), stageFloats(kernels, piece, staging), n, k, 0, rows);
  } else if (piece.dtype === format.toUpperCase()) {
    table.repack_columns_f16(out, pointer.u16(stage(kernels, piece, staging)), n, k, 0, rows);
  } else table.pack_columns_f16(out, stageFloats(kernels, piece, staging), n, k, format === "bf16" ? 1 : 0, 0, rows);
}
