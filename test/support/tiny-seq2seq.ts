// Small models with two halves and random weights, as folders in memory.

import type { Tensor } from "../../src/base/tensor/tensor.ts";
import { readSeq2Seq } from "../../src/models/encoder/load.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { tinyFolder, tinyTensors } from "./tiny-models.ts";

const BART = {
  ...{ vocab_size: 67, d_model: 40, encoder_layers: 2, decoder_layers: 3, encoder_attention_heads: 4 },
  ...{ decoder_attention_heads: 5, encoder_ffn_dim: 52, decoder_ffn_dim: 44, activation_function: "gelu" },
};

/** config.json of tiny models with two halves. */
export const TINY_SEQ2SEQ = {
  t5: {
    ...{ model_type: "t5", vocab_size: 67, d_model: 40, d_kv: 12, d_ff: 52, num_layers: 2, num_decoder_layers: 3 },
    ...{ num_heads: 3, relative_attention_num_buckets: 16, relative_attention_max_distance: 40, n_positions: 512 },
  },
  t5_gated: {
    ...{ model_type: "t5", vocab_size: 67, d_model: 36, d_kv: 10, d_ff: 44, num_layers: 2, num_heads: 4 },
    ...{ feed_forward_proj: "gated-gelu", tie_word_embeddings: false },
  },
  bart: { model_type: "bart", ...BART, max_position_embeddings: 320, scale_embedding: true },
  whisper: { model_type: "whisper", ...BART, num_mel_bins: 10, max_source_positions: 300, max_target_positions: 320 },
} as const;

export type TinySeq2Seq = keyof typeof TINY_SEQ2SEQ;

export const seq2seqTensors = (name: TinySeq2Seq): Map<string, Tensor> => {
  const tensors = tinyTensors(TINY_SEQ2SEQ[name], 3, readSeq2Seq);
  const decoder = readSeq2Seq("tinyTensors", TINY_SEQ2SEQ[name]);
  // What the encoder has besides.
  if (decoder.encoder)
    for (const [own, tensor] of tinyTensors(TINY_SEQ2SEQ[name], 4, () => decoder.encoder as typeof decoder))
      tensors.set(own, tensors.get(own) ?? tensor);
  return tensors;
};

/** A folder of a tiny model, as `loadSeq2Seq` takes it. */
export const seq2seqFolder = (
  name: TinySeq2Seq,
  tensors: ReadonlyMap<string, Tensor> = seq2seqTensors(name),
): ((file: string) => Uint8Array | undefined) => tinyFolder(TINY_SEQ2SEQ[name], tensors);

/** A source of about this length: ids, or features of twice as many frames. */
export function sourceFor(name: TinySeq2Seq, length: number, seed = 1): number[] | Tensor {
  if (name !== "whisper") return Array.from({ length }, (_, i) => (i * 31 + 5 * seed) % 67);
  return { data: createRandom(seed).floats(10 * 2 * length), shape: [10, 2 * length] };
}
