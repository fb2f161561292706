// Small encoders with random weights, one of each family, as folders in memory.

import type { Tensor } from "../../src/base/tensor/tensor.ts";
import { readEncoder } from "../../src/models/encoder/load.ts";
import { tinyFolder, tinyTensors } from "./tiny-models.ts";

const SMALL = { vocab_size: 67, hidden_size: 40, num_hidden_layers: 3, num_attention_heads: 4, intermediate_size: 52 };

/** config.json of tiny encoders. */
export const TINY_ENCODERS = {
  bert: { model_type: "bert", ...SMALL, max_position_embeddings: 320, type_vocab_size: 3 },
  roberta: { model_type: "roberta", ...SMALL, max_position_embeddings: 322, type_vocab_size: 1, pad_token_id: 1 },
  distilbert: {
    ...{ model_type: "distilbert", vocab_size: 67, dim: 36, hidden_dim: 44, n_heads: 3, n_layers: 2 },
    max_position_embeddings: 320,
  },
  albert: {
    ...{ model_type: "albert", ...SMALL, embedding_size: 20, num_hidden_groups: 2, num_hidden_layers: 5 },
    max_position_embeddings: 320,
  },
  mpnet: { model_type: "mpnet", ...SMALL, max_position_embeddings: 322, relative_attention_num_buckets: 16 },
  modernbert: { model_type: "modernbert", ...SMALL, num_hidden_layers: 4, local_attention: 10 },
  nomic_bert: { model_type: "nomic_bert", ...SMALL, type_vocab_size: 2, rotary_emb_base: 1000 },
} as const;

export type TinyEncoder = keyof typeof TINY_ENCODERS;

/** The tensors of an encoder, with a head for masked tokens where the family has one. */
export const encoderTensors = (name: TinyEncoder): Map<string, Tensor> =>
  tinyTensors(TINY_ENCODERS[name], 1, readEncoder);

/** A folder of a tiny encoder, as `loadEncoder` takes it. */
export const encoderFolder = (
  name: TinyEncoder,
  tensors: ReadonlyMap<string, Tensor> = encoderTensors(name),
): ((file: string) => Uint8Array | undefined) => tinyFolder(TINY_ENCODERS[name], tensors);
