// y = x·wᵀ + b, by weight format: matrices in panels, rows of integers, products.

import {
  BLOCK,
  GGML_IQ4_XS,
  LONGEST_BLOCK,
  MINS_SCRATCH,
  PANEL,
  PLAIN_CODES,
  ROUNDED,
  SIGNED,
  SUPER_BLOCK,
} from "../../assembly/layout.ts";
import type { LinearShape, Plain, Reference } from "../wasm/abi.ts";
import {
  minOf,
  narrowBf16,
  narrowF16,
  type Packed,
  packedLookup,
  packedQ4,
  packedQ4K,
  packedQ8,
  padded,
  quantized,
  quantizedBlock,
  readRow,
  widenBf16,
  widenF16,
  writeRow,
} from "./numbers.ts";
import { matrixOf, packedCodebook } from "./stored-blocks.ts";

/** out[m, n] = x[m, k] · widen(w[n, k])ᵀ + bias[n] for rows m in begin..end; w packed [panels][k][8], n = 8·panels. */
function multiply(
  out: Float32Array,
  x: Float32Array,
  w: Matrix,
  bias: Float32Array | null,
  { panels, k, outStride, xStride }: Plain<LinearShape>,
  begin: number,
  end: number,
  widen = same,
): void {
  for (let m = begin; m < end; m++)
    for (let n = 0; n < 8 * panels; n++) {
      const panel = Math.floor(n / 8);
      const column = n % 8;
      let sum = bias ? bias[n]! : 0;
      for (let i = 0; i < k; i++) sum += x[m * xStride + i]! * widen(w[(panel * k + i) * 8 + column]!);
      out[m * outStride + n] = sum;
    }
}

/** out[m, n] = x[m, k] · w[n, k]ᵀ + bias[n] for rows m in begin..end; w packed [panels][k][8], n = 8·panels. */
export const linear_f32: Reference["linear_f32"] = (out, x, w, bias, shape, begin, end) =>
  multiply(out, x, w, bias, shape, begin, end);

/** out[m, n] = x[m, k] · w[n, k]ᵀ + bias[n] for rows m in begin..end; w packed [panels][k][8] in f16, or bf16. */
export const linear_f16: Reference["linear_f16"] = (out, x, w, _scratch, bias, shape, begin, end) =>
  multiply(out, x, w, bias, shape, begin, end, shape.bf16 ? widenBf16 : widenF16);

/** out = x · wᵀ + bias for rows begin..end; x from quantize_rows in the same mode, w from pack_q8 or repack_q8. */
export const linear_q8: Reference["linear_q8"] = (out, x, w, _sums, bias, shape, begin, end) =>
  linearIntegers(out, x, packedQ8(w, shape.k, shape.block), bias, shape, begin, end);

/** out = x · wᵀ + bias for rows begin..end; x from quantize_rows in the same mode, w from pack_q4 or repack_q4. */
export const linear_q4: Reference["linear_q4"] = (out, x, w, _scratch, bias, shape, begin, end) =>
  linearIntegers(out, x, packedQ4(w, shape.k, shape.zero), bias, shape, begin, end);

/**
 * out = x · wᵀ + bias for rows begin..end; x from quantize_rows in the same mode, w from pack_q4_k. The sums of a super-block are exact,
 * all else is one float32 operation after the other.
 */
export const linear_q4_k: Reference["linear_q4_k"] = (out, x, w, _scratch, bias, shape, begin, end) => {
  const { panels, k, mode, outStride } = shape;
  const packed = packedQ4K(w, k);
  for (let m = begin; m < end; m++) {
    const { scale, integers, scaleOf } = readRow(x, m, mode, k);
    for (let n = 0; n < PANEL * panels; n++) {
      let sum = 0;
      for (let s = 0; s < k; s += SUPER_BLOCK) {
        let [products, minimums] = [0, 0];
        for (let i = s; i < s + SUPER_BLOCK; i++) {
          products += packed.scale(n, i) * packed.nibble(n, i) * integers[i]!;
          minimums += packed.minimum(n, i) * integers[i]!;
        }
        const product = Math.fround(Math.fround(products) * packed.d(n, s));
        const less = Math.fround(Math.fround(minimums) * packed.least(n, s));
        sum = Math.fround(sum + Math.fround(Math.fround(product - less) * scaleOf(s)));
      }
      out[m * outStride + n] = (bias ? bias[n]! : 0) + Math.fround(sum * scale);
    }
  }
};

/** out = x · wᵀ + bias for rows begin..end; x from quantize_rows in the same mode, w from pack_codebook. */
export const linear_codebook: Reference["linear_codebook"] = (out, x, w, _scratch, bias, shape, begin, end) =>
  linearIntegers(out, x, packedCodebook(w, shape.k, shape.type), bias, shape, begin, end);

/** out = x · wᵀ + bias for rows begin..end; x from quantize_rows in the same mode, w from pack_lookup. */
export const linear_lookup: Reference["linear_lookup"] = (out, x, w, _scratch, bias, shape, begin, end) =>
  linearIntegers(out, x, packedLookup(w, shape.k, shape.block), bias, shape, begin, end);

/** Blocks whose sums are added before they are scaled. */
const CHUNK = MINS_SCRATCH / 16;

/** out -= xScale · Σb min[b] · (Σ of x over block b), of fast rows times the scale of b. */
export const subtract_mins: Reference["subtract_mins"] = (out, x, mins, _scratch, shape, begin, end) => {
  const { panels, k, block, mode, outStride } = shape;
  const length = padded(k);
  for (let m = begin; m < end; m++) {
    const { scale, integers, scaleOf } = readRow(x, m, mode, k);
    for (let n = 0; n < PANEL * panels; n++)
      for (let first = 0; first < length; first += CHUNK * block) {
        let all = 0;
        for (let i = first; i < Math.min(length, first + CHUNK * block); i += block) {
          const sum = Math.fround(integers.slice(i, i + block).reduce((total, q) => total + q, 0) * scaleOf(i));
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

/**
 * out[m, n] = bias[n] + xScale[m] · Σg wScale[g, n] · (Σ of x[m, i] · w[n, i] over the i of group g): the sums in brackets
 * exact, all else one float32 operation after the other. Of fast rows, wScale is first multiplied by the scale of the group's inputs.
 */
function linearIntegers(
  out: Float32Array,
  x: Uint8Array,
  w: Pick<Packed, "group" | "fastGroup" | "scale" | "weight">,
  bias: Float32Array | null,
  { panels, k, mode, outStride }: Plain<LinearShape>,
  begin: number,
  end: number,
): void {
  const group = mode & 1 ? w.fastGroup : w.group;
  for (let m = begin; m < end; m++) {
    const { scale, integers, scaleOf } = readRow(x, m, mode, k);
    for (let n = 0; n < PANEL * panels; n++) {
      let sum = 0;
      for (let g = 0; g < integers.length; g += group) {
        let exact = 0;
        for (let i = g; i < Math.min(g + group, integers.length); i++) exact += integers[i]! * w.weight(n, i);
        sum = Math.fround(sum + Math.fround(Math.fround(exact) * Math.fround(w.scale(n, g) * scaleOf(g))));
      }
      out[m * outStride + n] = (bias ? bias[n]! : 0) + Math.fround(sum * scale);
    }
  }
}

/**
 * Quantises rows begin..end as x[r] ≈ scale[r]·integers[r]: to 14 bits, exactly if they were rounded; or if mode is odd to 7 or 8, with a
 * scale for each `block` inputs.
 */
export const quantize_rows: Reference["quantize_rows"] = (out, x, k, xStride, block, mode, begin, end) => {
  const zeros = new Array<number>(padded(k) - k).fill(0);
  for (let r = begin; r < end; r++) {
    const row = x.subarray(r * xStride, r * xStride + k);
    if (mode & 1) {
      const [integers, blocks]: [number[], ReturnType<typeof quantizedBlock>[]] = [[], []];
      for (let i = 0; i < k; i += block) {
        const own = quantizedBlock(row.subarray(i, i + block), (mode & SIGNED) !== 0);
        integers.push(...own.integers);
        for (let j = i; j < Math.min(i + block, k); j += BLOCK) blocks.push(own);
      }
      writeRow(out, r, mode, 1, [...integers, ...zeros], blocks);
    } else {
      const { scale, integers } = quantized(row, mode & ROUNDED ? 8128 : 8191);
      writeRow(out, r, mode, scale, [...integers, ...zeros]);
    }
  }
};

/** A matrix of floats or of 16-bit floats. */
type Matrix = Float32Array | Uint16Array;

/** out[p, i, c] = store(w[8p + c, i]) for panels p in begin..end; 0 beyond n. */
function packRows(out: Matrix, w: Matrix, n: number, k: number, begin: number, end: number, store = same): void {
  for (let p = begin; p < end; p++)
    for (let i = 0; i < k; i++)
      for (let c = 0; c < PANEL; c++) {
        const row = p * PANEL + c;
        out[(p * k + i) * PANEL + c] = row < n ? store(w[row * k + i]!) : 0;
      }
}

/** out[p, i, c] = store(w[i, 8p + c]) for inputs i in begin..end; 0 beyond n. */
function packColumns(out: Matrix, w: Matrix, n: number, k: number, begin: number, end: number, store = same): void {
  for (let p = 0; p < Math.ceil(n / PANEL); p++)
    for (let i = begin; i < end; i++)
      for (let c = 0; c < PANEL; c++) {
        const column = p * PANEL + c;
        out[(p * k + i) * PANEL + c] = column < n ? store(w[i * n + column]!) : 0;
      }
}

const same = (x: number): number => x;

/** Packs w [n, k] into panels [k][8]: out[p, i, c] = w[8p + c, i] for panels p in begin..end; 0 beyond n. */
export const pack_rows_f32: Reference["pack_rows_f32"] = (out, w, n, k, begin, end) =>
  packRows(out, w, n, k, begin, end);

/** Packs w [k, n] into panels [k][8]: out[p, i, c] = w[i, 8p + c] for inputs i in begin..end; 0 beyond n. */
export const pack_columns_f32: Reference["pack_columns_f32"] = (out, w, n, k, begin, end) =>
  packColumns(out, w, n, k, begin, end);

/** `pack_rows_f32` that rounds to f16, or to bf16. */
export const pack_rows_f16: Reference["pack_rows_f16"] = (out, w, n, k, bf16, begin, end) =>
  packRows(out, w, n, k, begin, end, bf16 ? narrowBf16 : narrowF16);

/** `pack_columns_f32` that rounds to f16, or to bf16. */
export const pack_columns_f16: Reference["pack_columns_f16"] = (out, w, n, k, bf16, begin, end) =>
  packColumns(out, w, n, k, begin, end, bf16 ? narrowBf16 : narrowF16);

/** `pack_rows_f32` for weights that are 16-bit floats already: their bits are copied. */
export const repack_rows_f16: Reference["repack_rows_f16"] = (out, w, n, k, begin, end) =>
  packRows(out, w, n, k, begin, end);

/** `pack_columns_f32` for weights that are 16-bit floats already: their bits are copied. */
export const repack_columns_f16: Reference["repack_columns_f16"] = (out, w, n, k, begin, end) =>
  packColumns(out, w, n, k, begin, end);

/** Packs panels begin..end of w [n, k] as w[n, i] ≈ scale·integer, one scale for each `block` inputs, and their sums; 0 beyond n and k. */
export const pack_q8: Reference["pack_q8"] = (out, sums, w, n, k, block, begin, end) => {
  const packed = packedQ8(out, k, block);
  for (let row = begin * PANEL; row < end * PANEL; row++) {
    for (let b = 0; b < padded(k); b += block) {
      const values = row < n ? w.subarray(row * k + b, row * k + Math.min(k, b + block)) : [];
      const { scale, integers } = quantized(values, 127);
      packed.setScale(row, b, scale);
      for (let i = 0; i < block; i++) packed.setWeight(row, b + i, integers[i] ?? 0);
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
      const sign = extreme(values) > 0 ? -1 : 1;
      const signed = Array.from(values, (x) => sign * x);
      const { scale, integers } = quantized(signed, 8);
      packed.setScale(row, b, scale === 0 ? 0 : sign * scale);
      for (let i = 0; i < BLOCK; i++) packed.setWeight(row, b + i, Math.min(7, integers[i] ?? 0));
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

/** Bytes of a super-block of GGUF's Q4_K: halves d and least, 12 bytes of scales and minimums, 128 of nibbles. */
const Q4_K_FILE_BYTES = 144;

/** Packs panels begin..end of a matrix in super-blocks of Q4_K, [n][k / 256]; 0 beyond n. */
export const pack_q4_k: Reference["pack_q4_k"] = (out, blocks, n, k, begin, end) => {
  const packed = packedQ4K(out, k);
  const view = new DataView(blocks.buffer, blocks.byteOffset, blocks.byteLength);
  for (let row = begin * PANEL; row < end * PANEL; row++)
    for (let i = 0; i < k; i += BLOCK) {
      const at = Math.floor((row * k + i) / SUPER_BLOCK) * Q4_K_FILE_BYTES;
      const byte = (offset: number) => (row < n ? view.getUint8(at + offset) : 0);
      const half = (offset: number) => (row < n ? widenF16(view.getUint16(at + offset, true)) : 0);
      const part = (i % SUPER_BLOCK) / BLOCK;
      packed.setSuper(row, i, half(0), half(2));
      const [first, second, third] = [4, 8, 12].map((offset) => byte(offset + (part % 4))) as [number, number, number];
      if (part < 4) packed.setPart(row, i, first & 63, second & 63);
      else packed.setPart(row, i, (third & 15) + 16 * (first >> 6), (third >> 4) + 16 * (second >> 6));
      for (let j = 0; j < BLOCK; j++)
        packed.setNibble(row, i + j, (byte(16 + BLOCK * Math.floor(part / 2) + j) >> (4 * (part % 2))) & 15);
    }
};

/**
 * Packs panels begin..end of a matrix [n, k] in blocks of a scale and 16 bytes of codes: a float16, or where a row has one scale, a
 * float32 in each; or of a matrix in blocks of a GGUF type that become such ones. Rows beyond n are zeros.
 */
export const pack_lookup: Reference["pack_lookup"] = (out, from, n, k, block, type, begin, end) => {
  const view = new DataView(from.buffer, from.byteOffset, from.byteLength);
  const packed = packedLookup(out, k, block);
  const [bits, bytes] = [block === LONGEST_BLOCK ? 1 : 2, block > LONGEST_BLOCK ? 20 : 18];
  const [inputs, step] = [LONGEST_BLOCK / bits, bits === 1 ? 2 : 1];
  const matrix = type === PLAIN_CODES ? undefined : matrixOf(from, k, type);
  for (let row = begin * PANEL; row < end * PANEL; row++)
    for (let b = 0; b < k; b += inputs) {
      const at = bytes * ((row * k + b) / inputs);
      const scale = () =>
        matrix?.scale(row, b) ?? (bytes === 20 ? view.getFloat32(at, true) : widenF16(view.getUint16(at, true)));
      if (b === 0 || bytes === 18) packed.setScale(row, b, row < n ? scale() : 0);
      const codeOf = (i: number) =>
        matrix?.integer(row, b + i) ?? view.getUint8(at + bytes - 16 + ((i * bits) >> 3)) >> ((i * bits) & 7);
      for (let i = 0; i < inputs; i++)
        packed.setWeight(row, b + i, step * ((row < n ? codeOf(i) : 0) & (2 ** bits - 1)) - 1);
    }
};

/** Packs panels begin..end of a matrix in blocks of a type without their mins, with the same scales and integers. */
export const pack_blocks: Reference["pack_blocks"] = (out, sums, from, n, k, type, begin, end) => {
  const { part, ...matrix } = matrixOf(from, k, type);
  const packed = sums ? packedQ8(out, k, part) : packedQ4(out, k, 0);
  for (let row = begin * PANEL; row < end * PANEL; row++) {
    for (let i = 0; i < k; i++) {
      if (i % part === 0) packed.setScale(row, i, row < n ? matrix.scale(row, i) : 0);
      packed.setWeight(row, i, row < n ? matrix.integer(row, i) : 0);
    }
    if (sums) storeSums(sums, packed, k, row);
  }
};

/** Packs panels begin..end of a matrix in blocks of indices into a codebook with the same scales and indices; 0 beyond n. */
export const pack_codebook: Reference["pack_codebook"] = (out, from, n, k, type, begin, end) => {
  const { bits, unit, index } = matrixOf(from, k, type);
  const packed = packedCodebook(out, k, type);
  for (let row = begin * PANEL; row < end * PANEL; row++)
    for (let i = 0; i < k; i++) {
      if (type === GGML_IQ4_XS) packed.setUnit(row, i, row < n ? unit(row, i) : 0);
      packed.setScale(row, i, row < n ? bits(row, i) : 0);
      packed.setNibble(row, i, row < n ? index(row, i) : 0);
    }
};

/** out[panels][k / part][8] = the mins of the blocks; 0 beyond n. */
export const pack_mins: Reference["pack_mins"] = (out, from, n, k, type, begin, end) => {
  const { part, ...matrix } = matrixOf(from, k, type);
  for (let row = begin * PANEL; row < end * PANEL; row++)
    for (let i = 0; i < k; i += part)
      out[(Math.floor(row / PANEL) * (k / part) + i / part) * PANEL + (row % PANEL)] = row < n ? matrix.min(row, i) : 0;
};

/**
 * Minus the sums of output n's weights over each group of fast rows, in [panels][groups][8] int16.
 */
function storeSums(sums: Uint8Array, w: Packed, k: number, n: number): void {
  const view = new DataView(sums.buffer, sums.byteOffset, sums.byteLength);
  const { fastGroup: group } = w;
  const groups = Math.ceil(padded(k) / group);
  for (let g = 0; g < groups; g++) {
    let sum = 0;
    for (let i = g * group; i < Math.min((g + 1) * group, padded(k)); i++) sum -= w.weight(n, i);
    const at = (Math.floor(n / PANEL) * groups + g) * PANEL + (n % PANEL);
    view.setInt16(2 * at, sum, true);
  }
}
