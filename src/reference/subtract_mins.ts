import { MINS_SCRATCH, PANEL } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";
import { minOf, packedQ4, padded, readRow } from "./integers.ts";

/** Blocks whose sums are added before they are scaled. */
const CHUNK = MINS_SCRATCH / 16;

/** out -= xScale · Σb min[b] · (Σ of x over block b), with 8 · scale taken off each min where w is given. */
export const subtract_mins: Reference["subtract_mins"] = (out, x, w, _scratch, mins, shape, begin, end) => {
  const { panels, k, block, mode, outStride } = shape;
  const packed = w ? packedQ4(w, k) : undefined;
  const length = padded(k);
  for (let m = begin; m < end; m++) {
    const { scale, integers } = readRow(x, m, mode, k);
    for (let n = 0; n < PANEL * panels; n++)
      for (let first = 0; first < length; first += CHUNK * block) {
        let all = 0;
        for (let i = first; i < Math.min(length, first + CHUNK * block); i += block) {
          const sum = integers.slice(i, i + block).reduce((total, q) => total + q, 0);
          const eight = packed ? Math.fround(packed.scale(n, i) * 8) : 0;
          const min = Math.fround(minOf(mins, k, block, n, i) - eight);
          all = Math.fround(all + Math.fround(min * sum));
        }
        out[m * outStride + n] = out[m * outStride + n]! - Math.fround(all * scale);
      }
  }
};
