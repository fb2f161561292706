import { BLOCK, PANEL } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";
import { widenF16 } from "./half.ts";
import { integerOf, magnitude, packedQ8, padded, scaleOf, storeSums } from "./integers.ts";

/** Packs panels begin..end of w [n, k] as w[n, i] ≈ scale·integer, one scale for each `block` inputs, and their sums; 0 beyond n and k. */
export const pack_q8: Reference["pack_q8"] = (out, sums, w, n, k, block, begin, end) => {
  const packed = packedQ8(out, k, block);
  for (let row = begin * PANEL; row < end * PANEL; row++) {
    for (let b = 0; b < padded(k); b += block) {
      const values = row < n ? w.subarray(row * k + b, row * k + Math.min(k, b + block)) : [];
      const { scale, factor } = scaleOf(magnitude(values), 127);
      packed.setScale(row, b, scale);
      for (let i = 0; i < block; i++)
        packed.setWeight(row, b + i, i < values.length ? integerOf(values[i]!, factor) : 0);
    }
    storeSums(sums, packed, k, row);
  }
};

/** Bytes of a block of GGUF's Q8_0: a float16, then 32 integers. */
const Q8_0_BYTES = 34;

/** Packs panels begin..end of a matrix in blocks of Q8_0, [n][k / 32], with the same scales and integers. */
export const repack_q8: Reference["repack_q8"] = (out, sums, blocks, n, k, begin, end) => {
  const packed = packedQ8(out, k, BLOCK);
  const view = new DataView(blocks.buffer, blocks.byteOffset, blocks.byteLength);
  for (let row = begin * PANEL; row < end * PANEL; row++) {
    for (let b = 0; b < k; b += BLOCK) {
      const at = ((row * k + b) / BLOCK) * Q8_0_BYTES;
      packed.setScale(row, b, row < n ? widenF16(view.getUint16(at, true)) : 0);
      for (let i = 0; i < BLOCK; i++) packed.setWeight(row, b + i, row < n ? view.getInt8(at + 2 + i) : 0);
    }
    storeSums(sums, packed, k, row);
  }
};
