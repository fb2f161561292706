// Packs matrices into panels, by weight format.

import { BLOCK, PANEL } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";
import { narrowBf16, narrowF16, widenF16 } from "./half.ts";
import { integerOf, magnitude, packedQ4, packedQ8, padded, scaleOf, storeSums } from "./integers.ts";

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

/** Integers of a block of so many bytes: a scale, a min if there is one, and 16 or 32 integers. */
const inputsOf = (bytes: number): number => (bytes < BLOCK ? BLOCK / 2 : BLOCK);

/** Packs panels begin..end of blocks [n][k / block] without their mins. */
export const pack_blocks: Reference["pack_blocks"] = (out, sums, blocks, n, k, bytes, begin, end) => {
  const block = inputsOf(bytes);
  const packed = sums ? packedQ8(out, k, block) : packedQ4(out, k, 0);
  const view = new DataView(blocks.buffer, blocks.byteOffset, blocks.byteLength);
  for (let row = begin * PANEL; row < end * PANEL; row++) {
    for (let b = 0; b < k; b += block) {
      const at = ((row * k + b) / block) * bytes;
      packed.setScale(row, b, row < n ? view.getFloat32(at, true) : 0);
      for (let i = 0; i < block; i++) {
        const integer = row < n ? view.getInt8(at + bytes - block + i) : 0;
        packed.setWeight(row, b + i, integer);
      }
    }
    if (sums) storeSums(sums, packed, k, row);
  }
};

/** out[panels][k / block][8] = the mins of the blocks; 0 beyond n. */
export const pack_mins: Reference["pack_mins"] = (out, blocks, n, k, bytes, begin, end) => {
  const count = k / inputsOf(bytes);
  const view = new DataView(blocks.buffer, blocks.byteOffset, blocks.byteLength);
  for (let row = begin * PANEL; row < end * PANEL; row++)
    for (let b = 0; b < count; b++)
      out[(Math.floor(row / PANEL) * count + b) * PANEL + (row % PANEL)] =
        row < n ? view.getFloat32((row * count + b) * bytes + 4, true) : 0;
};
