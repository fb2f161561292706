// Weights as floats: panels of [k][8].

import { BLOCK, F16_SCRATCH, PANEL, WEIGHT_BF16, WEIGHT_F16, WEIGHT_F32 } from "../../../../assembly/layout.ts";
import { pointer } from "../../../wasm/memory.ts";
import { type Format, panelsOf, stage, stageFloats } from "./format.ts";

/** Floats have no scales, sums and minimums. */
function floats(own: Omit<Format, "integers" | "mins" | "block" | "sumBytes" | "minBytes">): Format {
  return { integers: false, mins: false, block: () => BLOCK, sumBytes: () => 0, minBytes: () => 0, ...own };
}

export const F32: Format = /* @__PURE__ */ floats({
  bits: 32,
  keeps: ["F32", "F64"],
  rows: WEIGHT_F32,
  shape: {},
  work: 0,
  panelBytes: (k) => 4 * PANEL * k,
  pack(kernels, piece, { w }, staging) {
    const [n, k] = piece.shape as [number, number];
    const from = stageFloats(kernels, piece, staging);
    kernels.table.pack_rows_f32(pointer.f32(w), from, n, k, 0, panelsOf(n));
  },
  packInputs(kernels, piece, n, k, to, staging) {
    const [rows] = piece.shape as [number];
    kernels.table.pack_columns_f32(pointer.f32(to), stageFloats(kernels, piece, staging), n, k, 0, rows);
  },
  multiply(table, out, { w, bias }, { x, shape }, begin, end) {
    table.linear_f32(out, x, pointer.f32(w), bias, shape, begin, end);
  },
});

/** 16-bit floats, which the kernel widens. A matrix that has them in its file is moved bit for bit. */
function halves(dtype: "F16" | "BF16", rows: number, bf16: 0 | 1): Format {
  return floats({
    bits: 16,
    keeps: [dtype],
    rows,
    shape: { bf16 },
    work: 4 * F16_SCRATCH,
    panelBytes: (k) => 2 * PANEL * k,
    pack(kernels, piece, { w }, staging) {
      const { table } = kernels;
      const [n, k] = piece.shape as [number, number];
      const [out, panels] = [pointer.u16(w), panelsOf(n)];
      if (piece.dtype === dtype)
        table.repack_rows_f16(out, pointer.u16(stage(kernels, piece, staging)), n, k, 0, panels);
      else table.pack_rows_f16(out, stageFloats(kernels, piece, staging), n, k, bf16, 0, panels);
    },
    packInputs(kernels, piece, n, k, to, staging) {
      const { table } = kernels;
      const [count] = piece.shape as [number];
      const out = pointer.u16(to);
      if (piece.dtype === dtype)
        table.repack_columns_f16(out, pointer.u16(stage(kernels, piece, staging)), n, k, 0, count);
      else table.pack_columns_f16(out, stageFloats(kernels, piece, staging), n, k, bf16, 0, count);
    },
    multiply(table, out, { w, bias }, { x, shape, work }, begin, end) {
      table.linear_f16(out, x, pointer.u16(w), pointer.f32(work), bias, shape, begin, end);
    },
  });
}

export const F16: Format = /* @__PURE__ */ halves("F16", WEIGHT_F16, 0);
export const BF16: Format = /* @__PURE__ */ halves("BF16", WEIGHT_BF16, 1);
