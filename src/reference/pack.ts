import { PANEL } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";

/** Packs w [n, k] into panels [k][8]: out[p, i, c] = w[8p + c, i] for panels p in begin..end; 0 beyond n. */
export const pack_rows_f32: Reference["pack_rows_f32"] = (out, w, n, k, begin, end) => {
  for (let p = begin; p < end; p++)
    for (let i = 0; i < k; i++)
      for (let c = 0; c < PANEL; c++) {
        const row = p * PANEL + c;
        out[(p * k + i) * PANEL + c] = row < n ? w[row * k + i]! : 0;
      }
};

/** Packs w [k, n] into panels [k][8]: out[p, i, c] = w[i, 8p + c] for inputs i in begin..end; 0 beyond n. */
export const pack_columns_f32: Reference["pack_columns_f32"] = (out, w, n, k, begin, end) => {
  for (let p = 0; p < Math.ceil(n / PANEL); p++)
    for (let i = begin; i < end; i++)
      for (let c = 0; c < PANEL; c++) {
        const column = p * PANEL + c;
        out[(p * k + i) * PANEL + c] = column < n ? w[i * n + column]! : 0;
      }
};
