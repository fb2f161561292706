// Weights as integers with a float32 scale for each block of inputs, or one for each output: panels hold for each block [8]
// scales and [block / 2][8][2] integers. Formats with minimums have these in a place of their own.

import { BLOCK, LINEAR_SCRATCH, MINS_SCRATCH, PANEL, WEIGHT_Q4, WEIGHT_Q8 } from "../../../../assembly/layout.ts";
import { CODED_BLOCKS, type CodedDtype, isCoded } from "../../../base/tensor/dtypes.ts";
import { NULL } from "../../../wasm/abi.ts";
import { pointer } from "../../../wasm/memory.ts";
import { type Format, panelsOf, scaleBytes, stage, stageFloats, wholeBlocks } from "./format.ts";

/** Inputs of a longer block than of 32 whose weights have one sum. */
const SUM_INPUTS = 1024;

/** Bytes of a panel of int8 with a scale for each `block` inputs. */
export function int8PanelBytes(k: number, block: number): number {
  return scaleBytes(k, block) + PANEL * wholeBlocks(k);
}

/** Bytes of the sums of a panel of int8: 16 bits for each block of up to 32, or 32 bits for each 1024 inputs of a longer one. */
export function int8SumBytes(k: number, block: number): number {
  const group = Math.min(block, SUM_INPUTS);
  return PANEL * Math.ceil(k / group) * (group > BLOCK ? 4 : 2);
}

/** Integers of 4 or 8 bits with a scale for each `blockOf(k)` inputs, and the dtypes of files that have such blocks. */
function integers(
  bits: 4 | 8,
  blockOf: (k: number) => number,
  keeps: readonly ("Q8_0" | "Q4_0" | CodedDtype)[],
  mins = false,
): Format {
  const nibbles = bits === 4;
  return {
    ...{ bits, integers: true, mins, keeps, rows: nibbles ? WEIGHT_Q4 : WEIGHT_Q8 },
    // Nibbles are from 0 to 15, and without minimums 8 more than what they stand for.
    shape: { zero: nibbles && !mins ? 8 : 0 },
    work: nibbles ? LINEAR_SCRATCH : mins ? MINS_SCRATCH : 0,
    block: blockOf,
    panelBytes: (k) => scaleBytes(k, blockOf(k)) + (PANEL * wholeBlocks(k) * bits) / 8,
    sumBytes: (k) => (nibbles ? 0 : int8SumBytes(k, blockOf(k))),
    minBytes: (k) => (mins ? scaleBytes(k, blockOf(k)) : 0),
    pack(kernels, piece, { w, sums, mins: minsAt }, staging) {
      const { table } = kernels;
      const { dtype } = piece;
      const [n, k] = piece.shape as [number, number];
      const [out, sumsAt, panels] = [pointer.u8(w), pointer.u8(sums), panelsOf(n)];
      if (!keeps.some((each) => each === dtype)) {
        const floats = stageFloats(kernels, piece, staging);
        if (nibbles) table.pack_q4(out, floats, n, k, 0, panels);
        else table.pack_q8(out, sumsAt, floats, n, k, blockOf(k), 0, panels);
        return;
      }
      const blocks = pointer.u8(stage(kernels, piece, staging));
      if (isCoded(dtype)) {
        const { bytes } = CODED_BLOCKS[dtype];
        table.pack_blocks(out, nibbles ? NULL : sumsAt, blocks, n, k, bytes, 0, panels);
        if (mins) table.pack_mins(pointer.f32(minsAt), blocks, n, k, bytes, 0, panels);
      } else if (nibbles) table.repack_q4(out, blocks, n, k, 0, panels);
      else table.repack_q8(out, sumsAt, blocks, n, k, 0, panels);
    },
    multiply(table, out, { w, sums, mins: minsAt, bias }, { integers: x, shape, work }, begin, end) {
      const panels = pointer.u8(w);
      if (nibbles) table.linear_q4(out, x, panels, pointer.u8(work), bias, shape, begin, end);
      else table.linear_q8(out, x, panels, pointer.u8(sums), bias, shape, begin, end);
      if (mins) table.subtract_mins(out, x, pointer.f32(minsAt), pointer.f32(work), shape, begin, end);
    },
  };
}

const OF_32 = () => BLOCK;
const OF_16 = () => BLOCK / 2;

export const Q8: Format = /* @__PURE__ */ integers(8, OF_32, ["Q8_0", "I8_32"]);
export const Q8_MIN: Format = /* @__PURE__ */ integers(8, OF_32, ["I8_32_MIN"], true);
export const Q8_16: Format = /* @__PURE__ */ integers(8, OF_16, ["I8_16"]);
export const Q8_16_MIN: Format = /* @__PURE__ */ integers(8, OF_16, ["I8_16_MIN"], true);
/** One scale for each output. */
export const Q8_ROW: Format = /* @__PURE__ */ integers(8, wholeBlocks, []);
export const Q4: Format = /* @__PURE__ */ integers(4, OF_32, ["Q4_0"]);
export const Q4_MIN: Format = /* @__PURE__ */ integers(4, OF_32, ["I4_32_MIN"], true);
