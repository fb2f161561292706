// GGUF files of a model of a given shape whose matrices are random blocks of one type, or of the types of a mix.

import { createWriteStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { f32, text, u32, type Written, writeGguf } from "../../test/support/gguf-writer.ts";

/** The number of each type of blocks, its elements and bytes, and where its float16 scales lie; other scales are integers of the block. */
export const GGUF_BLOCKS = {
  Q4_0: [2, 32, 18, [0]],
  Q4_1: [3, 32, 20, [0, 2]],
  Q5_0: [6, 32, 22, [0]],
  Q5_1: [7, 32, 24, [0, 2]],
  Q8_0: [8, 32, 34, [0]],
  Q2_K: [10, 256, 84, [80, 82]],
  Q3_K: [11, 256, 110, [108]],
  Q4_K: [12, 256, 144, [0, 2]],
  Q5_K: [13, 256, 176, [0, 2]],
  Q6_K: [14, 256, 210, [208]],
  IQ2_XXS: [16, 256, 66, [0]],
  IQ2_XS: [17, 256, 74, [0]],
  IQ3_XXS: [18, 256, 98, [0]],
  IQ1_S: [19, 256, 50, [0]],
  IQ4_NL: [20, 32, 18, [0]],
  IQ3_S: [21, 256, 110, [0]],
  IQ2_S: [22, 256, 82, [0]],
  IQ4_XS: [23, 256, 136, [0]],
  IQ1_M: [29, 256, 56, []],
  TQ1_0: [34, 256, 54, [52]],
  TQ2_0: [35, 256, 66, [64]],
  I2_S: [36, 128, 32, []],
  MXFP4: [39, 32, 17, []],
  NVFP4: [40, 64, 36, []],
  Q1_0: [41, 128, 18, [0]],
  Q2_0: [42, 64, 18, [0]],
} as const satisfies Readonly<Record<string, readonly [type: number, length: number, bytes: number, halves: number[]]>>;

export type BlockType = keyof typeof GGUF_BLOCKS;

/** Sizes of a Llama. */
export interface LlamaShape {
  readonly width: number;
  readonly hidden: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly vocabulary: number;
}

/** Blocks that all tensors repeat: a prime number of them, so that rows differ. */
const BLOCKS = 8191;
/** Bytes behind the blocks of I2_S, which begin with the scale of the tensor. */
const TAIL = 32;

function randomBlocks(type: BlockType): Buffer {
  const [, , width, halves] = GGUF_BLOCKS[type];
  const bytes = Buffer.alloc(BLOCKS * width);
  let state = 1;
  for (let i = 0; i < bytes.length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[i] = state >>> 24;
  }
  for (let at = 0; at < bytes.length; at += width) {
    for (const half of halves) bytes.writeUInt16LE(0x1c00, at + half);
    // The four parts of the scale of IQ1_M, and exponents near 2^-8.
    if (type === "IQ1_M") for (const [i, nibble] of [0, 0, 0xc, 1].entries()) bytes[at + 49 + 2 * i] = nibble << 4;
    if (type === "MXFP4") bytes[at] = 119;
  }
  return bytes;
}

/** Writes a file whose matrices have the types that `typeOf` says, and its vectors F32. Resolves with its size. */
export async function writeRandomGguf(
  path: string,
  { width, hidden, layers, heads, kvHeads, vocabulary }: LlamaShape,
  typeOf: (name: string) => BlockType,
): Promise<number> {
  const kvWidth = (width / heads) * kvHeads;
  const metadata = {
    "general.architecture": text("llama"),
    "llama.block_count": u32(layers),
    "llama.context_length": u32(4096),
    "llama.embedding_length": u32(width),
    "llama.feed_forward_length": u32(hidden),
    "llama.attention.head_count": u32(heads),
    "llama.attention.head_count_kv": u32(kvHeads),
    "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
    "llama.rope.freq_base": f32(10_000),
    "llama.rope.dimension_count": u32(width / heads),
    "llama.vocab_size": u32(vocabulary),
  };
  const shapes: [name: string, shape: readonly number[]][] = [
    ["token_embd.weight", [vocabulary, width]],
    ["output_norm.weight", [width]],
  ];
  for (let layer = 0; layer < layers; layer++)
    shapes.push(
      [`blk.${layer}.attn_norm.weight`, [width]],
      [`blk.${layer}.attn_q.weight`, [width, width]],
      [`blk.${layer}.attn_k.weight`, [kvWidth, width]],
      [`blk.${layer}.attn_v.weight`, [kvWidth, width]],
      [`blk.${layer}.attn_output.weight`, [width, width]],
      [`blk.${layer}.ffn_norm.weight`, [width]],
      [`blk.${layer}.ffn_gate.weight`, [hidden, width]],
      [`blk.${layer}.ffn_up.weight`, [hidden, width]],
      [`blk.${layer}.ffn_down.weight`, [width, hidden]],
    );
  const gains = Buffer.from(Float32Array.from({ length: width }, (_, i) => 1 + (i % 7) / 100).buffer);
  const scale = Buffer.alloc(TAIL);
  scale.writeFloatLE(1 / 64);
  const repeated = new Map<BlockType, Buffer>();
  const parts: { readonly length: number; readonly from: Buffer }[] = [];
  let end = 0;
  const add = (length: number, from: Buffer) => {
    parts.push({ length, from });
    end += length;
  };
  const tensors = shapes.map(([name, shape]): Written => {
    add(-end & 31, Buffer.alloc(32));
    const offset = end;
    const [rows = 0, columns] = shape;
    if (columns === undefined) add(4 * rows, gains);
    else {
      const type = typeOf(name);
      const [, length, bytes] = GGUF_BLOCKS[type];
      const from = repeated.get(type) ?? randomBlocks(type);
      repeated.set(type, from);
      add((rows * columns * bytes) / length, from);
      if (type === "I2_S") add(TAIL, scale);
    }
    const type = columns === undefined ? 0 : GGUF_BLOCKS[typeOf(name)][0];
    return { name, type, shape, bytes: new Uint8Array(), offset };
  });
  const header = writeGguf({ metadata, tensors });
  function* bytes() {
    yield header;
    for (const { length, from } of parts)
      for (let left = length; left > 0; left -= from.length) yield from.subarray(0, Math.min(left, from.length));
  }
  await pipeline(bytes(), createWriteStream(path));
  return header.length + end;
}
