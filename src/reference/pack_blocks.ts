import { BLOCK, PANEL } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";
import { packedQ4, packedQ8, storeSums } from "./integers.ts";

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
