// A decoder as a GGUF file, as llama.cpp reads it: every matrix in one format, or in the mix of formats of Q4_K_M.

import { f32, text, u32, writeGguf } from "../../../test/support/gguf-writer.ts";
import { FileWriter } from "./file-writer.ts";
import { BLOCKS, type BlockFormat } from "./gguf-blocks.ts";
import type { RandomWeights } from "./random-weights.ts";
import { type DecoderShape, elements, isMatrix, type TensorSpec, tensorsOf } from "./shape.ts";

export type GgufFormat = "f32" | "q8_0" | "q4_0" | "q4_k_m" | "q1_0";

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

function ggufName({ name }: TensorSpec, { hybrid }: DecoderShape): string {
  if (hybrid) return name;
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
    ...shape.hybrid?.keys,
  };
  const architecture = shape.hybrid?.architecture ?? shape.type;
  return {
    "general.architecture": text(architecture),
    "general.name": text(shape.name),
    "tokenizer.ggml.model": text("no_vocab"),
    ...Object.fromEntries(Object.entries(own).map(([key, value]) => [`${architecture}.${key}`, value])),
  };
}

/**
 * The format of a tensor. What llama-quantize does for Q4_K_M: six bits for the table of tokens, and for values and down
 * projections of the first and last eighth of the layers and of every third between, five for joint projections; and formats with
 * blocks of 32 for rows that are not whole blocks of 256. Beside one bit, rows that are not whole blocks of 128 have eight.
 */
function formatOf(tensor: TensorSpec, format: GgufFormat, shape: DecoderShape): BlockFormat {
  if (!isMatrix(tensor)) return "f32";
  const columns = tensor.shape.at(-1)!;
  if (format === "q1_0") return columns % BLOCKS.q1_0.weights === 0 ? format : "q8_0";
  if (format !== "q4_k_m") return format;
  const name = ggufName(tensor, shape);
  const six = name === "token_embd.weight" || (/attn_v|ffn_down/.test(name) && isPrecise(name, shape));
  if (columns % BLOCKS.q4_k.weights === 0) return six ? "q6_k" : name.includes("attn_qkv") ? "q5_k" : "q4_k";
  return six ? "q8_0" : "q5_0";
}

/** Whether values or a down projection get more bits. Values of hybrids are counted by themselves, of all layers that have some. */
function isPrecise(name: string, { layers, hybrid }: DecoderShape): boolean {
  const names = name.includes("attn_v") ? (hybrid?.tensors.map((tensor) => tensor.name) ?? []) : [];
  const values = names.filter((other) => other.includes("attn_v"));
  const at = values.length > 0 ? values.indexOf(name) : Number(/\.(\d+)\./.exec(name)?.[1]);
  const count = values.length > 0 ? names.filter((other) => /attn_(v|qkv)/.test(other)).length : layers;
  const eighth = Math.floor(count / 8);
  return at < eighth || at >= Math.floor((7 * count) / 8) || (at - eighth) % 3 === 2;
}

function bytesOf(tensor: TensorSpec, format: GgufFormat, shape: DecoderShape): number {
  const { weights, bytes } = BLOCKS[formatOf(tensor, format, shape)];
  return (elements(tensor.shape) / weights) * bytes;
}

/** Bytes of the matrices, the table of tokens once. */
export const ggufBytes = (format: GgufFormat, shape: DecoderShape): number =>
  tensorsOf(shape).reduce((sum, tensor) => sum + (isMatrix(tensor) ? bytesOf(tensor, format, shape) : 0), 0);

export function writeGgufDecoder(path: string, format: GgufFormat, shape: DecoderShape, weights: RandomWeights): void {
  let end = 0;
  const tensors = weights.tensors.map((tensor) => {
    const offset = end;
    end += Math.ceil(bytesOf(tensor, format, shape) / ALIGNMENT) * ALIGNMENT;
    const { type } = BLOCKS[formatOf(tensor, format, shape)];
    return { name: ggufName(tensor, shape), shape: tensor.shape, type, offset, bytes: new Uint8Array() };
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
      file.write(
        BLOCKS[formatOf(tensor, format, shape)].pack(heads ? interleave(values, shape.headDim, columns) : values),
      );
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
