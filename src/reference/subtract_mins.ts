import { MINS_SCRATCH, PANEL } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";
import { minOf, padded, readRow } from "./integers.ts";

/** Blocks whose sums are added before they are scaled. */
const CHUNK = MINS_SCRATCH / 16;

/** out -= xScale · Σb min[b] · (Σ of x over block b). */
export const subtract_mins: Reference["subtract_mins"] = (out, x, mins, _scratch, shape, begin, end) => {
  const { panels, k, block, mode, outStride } = shape;
  const length = padded(k);
  for (let m = begin; m < end; m++) {
    const { scale, integers } = readRow(x, m, mode, k);
    for (let n = 0; n < PANEL * panels; n++)
      for (let first = 0; first < length; first += CHUNK * block) {
        let all = 0;
        for (let i = first; i < Math.min(length, first + CHUNK * block); i += block) {
          const sum = integers.slice(i, i + block).reduce((total, q) => total + q, 0);
          all = Math.fround(all + Math.fround(minOf(mins, k, block, n, i) * sum));
        }
        out[m * outStride + n] = out[m * outStride + n]! - Math.fround(all * scale);
      }
  }
};
