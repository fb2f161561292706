import { PANEL } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";
import { narrowBf16, narrowF16 } from "./half.ts";

/** `pack_rows_f32` that rounds to f16, or to bf16. */
export const pack_rows_f16: Reference["pack_rows_f16"] = (out, w, n, k, bf16, begin, end) => {
  const narrow = bf16 ? narrowBf16 : narrowF16;
  for (let p = begin; p < end; p++)
    for (let i = 0; i < k; i++)
      for (let c = 0; c < PANEL; c++) {
        const row = p * PANEL + c;
        out[(p * k + i) * PANEL + c] = row < n ? narrow(w[row * k + i]!) : 0;
      }
};

/** `pack_columns_f32` that rounds to f16, or to bf16. */
export const pack_columns_f16: Reference["pack_columns_f16"] = (out, w, n, k, bf16, begin, end) => {
  const narrow = bf16 ? narrowBf16 : narrowF16;
  for (let p = 0; p < Math.ceil(n / PANEL); p++)
    for (let i = begin; i < end; i++)
      for (let c = 0; c < PANEL; c++) {
        const column = p * PANEL + c;
        out[(p * k + i) * PANEL + c] = column < n ? narrow(w[i * n + column]!) : 0;
      }
};

/** `pack_rows_f32` for weights that are 16-bit floats already: their bits are copied. */
export const repack_rows_f16: Reference["repack_rows_f16"] = (out, w, n, k, begin, end) => {
  for (let p = begin; p < end; p++)
    for (let i = 0; i < k; i++)
      for (let c = 0; c < PANEL; c++) {
        const row = p * PANEL + c;
        out[(p * k + i) * PANEL + c] = row < n ? w[row * k + i]! : 0;
      }
};

/** `pack_columns_f32` for weights that are 16-bit floats already: their bits are copied. */
export const repack_columns_f16: Reference["repack_columns_f16"] = (out, w, n, k, begin, end) => {
  for (let p = 0; p < Math.ceil(n / PANEL); p++)
    for (let i = begin; i < end; i++)
      for (let c = 0; c < PANEL; c++) {
        const column = p * PANEL + c;
        out[(p * k + i) * PANEL + c] = column < n ? w[i * n + column]! : 0;
      }
};
