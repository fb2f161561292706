// y = x·wᵀ + b, by weight format.

import { MINS_SCRATCH, PANEL } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";
import { widenBf16, widenF16 } from "./half.ts";
import { linearIntegers, minOf, packedQ4, packedQ8, padded, readRow } from "./integers.ts";

/** out[m, n] = x[m, k] · w[n, k]ᵀ + bias[n] for rows m in begin..end; w packed [panels][k][8], n = 8·panels. */
export const linear_f32: Reference["linear_f32"] = (out, x, w, bias, shape, begin, end) => {
  const { panels, k, outStride, xStride } = shape;
  for (let m = begin; m < end; m++)
    for (let n = 0; n < 8 * panels; n++) {
      const panel = Math.floor(n / 8);
      const column = n % 8;
      let sum = bias ? bias[n]! : 0;
      for (let i = 0; i < k; i++) sum += x[m * xStride + i]! * w[(panel * k + i) * 8 + column]!;
      out[m * outStride + n] = sum;
    }
};

/** out[m, n] = x[m, k] · w[n, k]ᵀ + bias[n] for rows m in begin..end; w packed [panels][k][8] in f16, or bf16. */
export const linear_f16: Reference["linear_f16"] = (out, x, w, _scratch, bias, shape, begin, end) => {
  const { panels, k, bf16, outStride, xStride } = shape;
  const widen = bf16 ? widenBf16 : widenF16;
  for (let m = begin; m < end; m++)
    for (let n = 0; n < 8 * panels; n++) {
      const panel = Math.floor(n / 8);
      const column = n % 8;
      let sum = bias ? bias[n]! : 0;
      for (let i = 0; i < k; i++) sum += x[m * xStride + i]! * widen(w[(panel * k + i) * 8 + column]!);
      out[m * outStride + n] = sum;
    }
};

/** out = x · wᵀ + bias for rows begin..end; x from quantize_rows in the same mode, w from pack_q8 or repack_q8. */
export const linear_q8: Reference["linear_q8"] = (out, x, w, _sums, bias, shape, begin, end) =>
  linearIntegers(out, x, packedQ8(w, shape.k, shape.block), bias, shape, begin, end);

/** out = x · wᵀ + bias for rows begin..end; x from quantize_rows in the same mode, w from pack_q4 or repack_q4. */
export const linear_q4: Reference["linear_q4"] = (out, x, w, _scratch, bias, shape, begin, end) =>
  linearIntegers(out, x, packedQ4(w, shape.k, shape.zero), bias, shape, begin, end);

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

/** out[lane] = (end - begin) · Σ over r < 8 and b < 4 of x[4·lane + b] · w[r, 4·lane + b]: both ways give the same sums. */
export const repeat_dots: Reference["repeat_dots"] = (out, x, w, _direct, begin, end) => {
  const weights = new Int8Array(w.buffer, w.byteOffset, 128);
  const lanes = new Int32Array(out.buffer, out.byteOffset, 4);
  for (let lane = 0; lane < 4; lane++) {
    let sum = 0;
    for (let r = 0; r < 8; r++)
      for (let i = 4 * lane; i < 4 * lane + 4; i++) sum += (x[i] as number) * (weights[16 * r + i] as number);
    lanes[lane] = Math.imul(Math.max(0, end - begin), sum);
  }
};
