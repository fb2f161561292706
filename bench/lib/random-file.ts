// A model of a real shape and random weights in a file, as published models are quantised: matrices of 4 bits, tables of inputs of 8.

import { createWriteStream } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { QUANTIZED } from "../../src/files/safetensors/safetensors.ts";
import { readDecoder } from "../../src/models/spec/read-spec.ts";
import { expectedTensors } from "../../src/models/spec/tensors.ts";

/** config.json of Gemma 4 E2B, but for what towers need. */
export const GEMMA_E2B = {
  ...{ model_type: "gemma4_text", hidden_size: 1536, intermediate_size: 6144, num_hidden_layers: 35 },
  ...{ num_attention_heads: 8, num_key_value_heads: 1, head_dim: 256, global_head_dim: 512, num_kv_shared_layers: 20 },
  ...{ vocab_size: 262_144, vocab_size_per_layer_input: 262_144, hidden_size_per_layer_input: 256 },
  ...{ sliding_window: 512, use_double_wide_mlp: true, final_logit_softcapping: 30, rms_norm_eps: 1e-6 },
  layer_types: Array.from({ length: 35 }, (_, i) => (i % 5 === 4 ? "full_attention" : "sliding_attention")),
  ...{ max_position_embeddings: 131_072, tie_word_embeddings: true },
} as const;

/** Blocks of 32 weights: a scale of 16 bits, 2^-8, and numbers of 4 or 8 bits. */
const BLOCK_BYTES = { Q4_0: 18, Q8_0: 34 } as const;
type Format = keyof typeof BLOCK_BYTES;

/** Blocks that all tensors repeat: a prime number of them, so that rows differ. */
const BLOCKS = 65_537;

function randomBlocks(format: Format): Buffer {
  const bytes = Buffer.alloc(BLOCKS * BLOCK_BYTES[format]);
  let state = 1;
  for (let i = 0; i < bytes.length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[i] = state >>> 24;
  }
  for (let at = 0; at < bytes.length; at += BLOCK_BYTES[format]) bytes.writeUInt16LE(0x1c00, at);
  return bytes;
}

/** Writes config.json and model.safetensors into a folder. */
export async function writeRandomModel(folder: string, config: object): Promise<void> {
  const decoder = readDecoder("writeRandomModel", config);
  const { required } = expectedTensors(decoder, decoder.names.roots[0] ?? "");
  const notes: Record<string, { format: Format; shape: readonly number[] }> = {};
  const parts: { readonly length: number; readonly from: Buffer }[] = [];
  const blocks = { Q4_0: randomBlocks("Q4_0"), Q8_0: randomBlocks("Q8_0") };
  const gains = Buffer.from(Float32Array.from({ length: 16_384 }, (_, i) => 1 + (i % 7) / 100).buffer);
  let end = 0;
  const entries = Array.from(required, ([name, given = []]): [string, object] => {
    const [n = 0, k] = given;
    const format = /per_layer\.weight$/.test(name) && n === 262_144 ? "Q8_0" : "Q4_0";
    const shape = k === undefined ? given : [n, (k / 32) * BLOCK_BYTES[format]];
    const length = k === undefined ? 4 * n : n * (shape[1] as number);
    if (k !== undefined) notes[name] = { format, shape: given };
    parts.push({ length, from: k === undefined ? gains : blocks[format] });
    const begin = end;
    end += length;
    return [name, { dtype: k === undefined ? "F32" : "U8", shape, data_offsets: [begin, end] }];
  });
  const header = JSON.stringify({
    __metadata__: { [QUANTIZED]: JSON.stringify(notes) },
    ...Object.fromEntries(entries),
  });
  const text = Buffer.from(header.padEnd(Math.ceil(header.length / 8) * 8));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  function* bytes() {
    yield size;
    yield text;
    for (const { length, from } of parts)
      for (let left = length; left > 0; left -= from.length) yield from.subarray(0, Math.min(left, from.length));
  }
  await writeFile(join(folder, "config.json"), JSON.stringify(config));
  await pipeline(bytes(), createWriteStream(join(folder, "model.safetensors")));
}
