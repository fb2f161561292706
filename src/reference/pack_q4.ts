import { BLOCK, PANEL } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";
import { widenF16 } from "./half.ts";
import { integerOf, packedQ4, padded, scaleOf } from "./integers.ts";

/** The element that is largest in size, the first of several; NaN if there is one. */
function extreme(values: ArrayLike<number>): number {
  let found = 0;
  for (let i = 0; i < values.length && !Number.isNaN(found); i++)
    if (!(Math.abs(values[i]!) <= Math.abs(found))) found = values[i]!;
  return found;
}

/**
 * Packs panels begin..end of w [n, k] as w[n, i] ≈ scale·(nibble - 8), with one scale for each 32 inputs, chosen so that the
 * input that is largest in size becomes -8.
 */
export const pack_q4: Reference["pack_q4"] = (out, w, n, k, begin, end) => {
  const packed = packedQ4(out, k, 8);
  for (let row = begin * PANEL; row < end * PANEL; row++)
    for (let b = 0; b < padded(k); b += BLOCK) {
      const values = row < n ? w.subarray(row * k + b, row * k + Math.min(k, b + BLOCK)) : [];
      const largest = extreme(values);
      const { scale, factor } = scaleOf(Math.abs(largest), 8);
      const sign = largest > 0 ? -1 : 1;
      packed.setScale(row, b, scale === 0 ? 0 : sign * scale);
      for (let i = 0; i < BLOCK; i++)
        packed.setWeight(row, b + i, i < values.length ? Math.min(7, integerOf(values[i]!, sign * factor)) : 0);
    }
};

/** Bytes of a block of GGUF's Q4_0: a float16, then byte j with the nibbles of elements j and j + 16. */
const Q4_0_BYTES = 18;

/** Packs panels begin..end of a matrix in blocks of Q4_0, [n][k / 32], with the same scales and integers. */
export const repack_q4: Reference["repack_q4"] = (out, blocks, n, k, begin, end) => {
  const packed = packedQ4(out, k, 8);
  const view = new DataView(blocks.buffer, blocks.byteOffset, blocks.byteLength);
  for (let row = begin * PANEL; row < end * PANEL; row++)
    for (let b = 0; b < k; b += BLOCK) {
      const at = ((row * k + b) / BLOCK) * Q4_0_BYTES;
      packed.setScale(row, b, row < n ? widenF16(view.getUint16(at, true)) : 0);
      for (let i = 0; i < BLOCK; i++) {
        const nibble = row < n ? (view.getUint8(at + 2 + (i % 16)) >> (i < 16 ? 0 : 4)) & 15 : 8;
        packed.setWeight(row, b + i, nibble - 8);
      }
    }
};
