// A decoder as a GGUF file, every matrix in one format, as llama.cpp reads it.

import { f32, text, toF16, u32, writeGguf } from "../../../test/support/gguf-writer.ts";
import { FileWriter } from "./file-writer.ts";
import type { RandomWeights } from "./random-weights.ts";
import { BLOCK, toBytes, toNibbles } from "./rows.ts";
import { type DecoderShape, elements, type TensorSpec } from "./shape.ts";

export type GgufFormat = "f32" | "q8_0" | "q4_0";

/** ggml's number of each type, and the bytes of a block of weights. */
const TYPES = {
  f32: { type: 0, blockBytes: 4 * BLOCK, pack: (weights: Float32Array) => weights },
  q8_0: { type: 8, blockBytes: 2 + BLOCK, pack: packQ8 },
  q4_0: { type: 2, blockBytes: 2 + BLOCK / 2, pack: packQ4 },
} as const;

/** Values that are converted at once, about. */
const PIECE = 2 ** 23;
const ALIGNMENT = 32;

const NAMES: Readonly<Record<string, string>> = {
  "model.embed_tokens": "token_embd",
  "model.norm": "output_norm",
  input_layernorm: "attn_norm",
  post_attention_layernorm: "ffn_norm",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  "self_attn.q_norm": "attn_q_norm",
  "self_attn.k_norm": "attn_k_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
};

function ggufName({ name }: TensorSpec): string {
  const [, layer, own] = /^(?:model\.layers\.(\d+)\.)?(.*)\.weight$/.exec(name) as unknown as string[];
  return layer === undefined ? `${NAMES[own!]}.weight` : `blk.${layer}.${NAMES[own!]}.weight`;
}

/** Tokens have no text: prompts are lists of ids. */
function metadataOf(shape: DecoderShape) {
  const own = {
    vocab_size: u32(shape.vocabSize),
    context_length: u32(8192),
    embedding_length: u32(shape.dModel),
    block_count: u32(shape.layers),
    feed_forward_length: u32(shape.mlpDim),
    "attention.head_count": u32(shape.numHeads),
    "attention.head_count_kv": u32(shape.numKvHeads),
    "attention.key_length": u32(shape.headDim),
    "attention.value_length": u32(shape.headDim),
    "attention.layer_norm_rms_epsilon": f32(shape.eps),
    "rope.dimension_count": u32(shape.headDim),
    "rope.freq_base": f32(shape.theta),
  };
  return {
    "general.architecture": text(shape.type),
    "general.name": text(shape.name),
    "tokenizer.ggml.model": text("no_vocab"),
    ...Object.fromEntries(Object.entries(own).map(([key, value]) => [`${shape.type}.${key}`, value])),
  };
}

export function writeGgufDecoder(path: string, format: GgufFormat, shape: DecoderShape, weights: RandomWeights): void {
  const formatOf = (tensor: TensorSpec) => TYPES[tensor.shape.length === 1 ? "f32" : format];
  const bytesOf = (tensor: TensorSpec) =>
    tensor.shape.length === 1 ? 4 * tensor.shape[0]! : (elements(tensor.shape) / BLOCK) * formatOf(tensor).blockBytes;
  let end = 0;
  const tensors = weights.tensors.map((tensor) => {
    const offset = end;
    end += Math.ceil(bytesOf(tensor) / ALIGNMENT) * ALIGNMENT;
    const { type } = formatOf(tensor);
    return { name: ggufName(tensor), shape: tensor.shape, type, offset, bytes: new Uint8Array() };
  });
  const file = new FileWriter(path);
  file.write(writeGguf({ metadata: metadataOf(shape), tensors }));
  for (const tensor of weights.tensors) {
    const columns = tensor.shape.at(-1)!;
    const rows = elements(tensor.shape) / columns;
    const heads = rowsPaired(shape, tensor);
    const step = heads ? rows : Math.max(1, Math.floor(PIECE / columns));
    for (let row = 0; row < rows; row += step) {
      const values = weights.read(tensor, row * columns, Math.min(rows, row + step) * columns);
      file.write(formatOf(tensor).pack(heads ? interleave(values, shape.headDim, columns) : values));
    }
    file.pad(ALIGNMENT);
  }
  file.close();
}

/** In files of Llama, the rows of queries and keys stand so that RoPE rotates neighbours. */
function rowsPaired({ type }: DecoderShape, { name }: TensorSpec): boolean {
  return type === "llama" && /[qk]_proj/.test(name);
}

/** Rows i and i + headDim / 2 of each head become rows 2i and 2i + 1. */
function interleave(values: Float32Array, headDim: number, columns: number): Float32Array {
  const out = new Float32Array(values.length);
  for (let row = 0; row < values.length / columns; row++) {
    const inHead = row % headDim;
    const half = headDim / 2;
    const to = row - inHead + 2 * (inHead % half) + Math.floor(inHead / half);
    out.set(values.subarray(row * columns, (row + 1) * columns), to * columns);
  }
  return out;
}

/** Blocks of a float16 scale and 32 bytes. */
function packQ8(weights: Float32Array): Uint8Array {
  const { values, scales } = toBytes(weights, BLOCK);
  const out = new DataView(new ArrayBuffer(scales.length * TYPES.q8_0.blockBytes));
  for (let b = 0, at = 0; b < scales.length; b++, at += TYPES.q8_0.blockBytes) {
    out.setUint16(at, toF16(scales[b]!), true);
    for (let i = 0; i < BLOCK; i++) out.setInt8(at + 2 + i, values[b * BLOCK + i]!);
  }
  return new Uint8Array(out.buffer);
}

/** Blocks of a float16 scale and 16 bytes, byte j with the weights j and j + 16, both plus 8. */
function packQ4(weights: Float32Array): Uint8Array {
  const { values, scales } = toNibbles(weights);
  const out = new DataView(new ArrayBuffer(scales.length * TYPES.q4_0.blockBytes));
  for (let b = 0, at = 0; b < scales.length; b++, at += TYPES.q4_0.blockBytes) {
    out.setUint16(at, toF16(scales[b]!), true);
    const first = b * BLOCK;
    for (let j = 0; j < BLOCK / 2; j++)
      out.setUint8(at + 2 + j, (values[first + j]! + 8) | ((values[first + j + BLOCK / 2]! + 8) << 4));
  }
  return new Uint8Array(out.buffer);
}
