import { seqLen } from "./data.ts";
import { vocabSize, vocabulary } from "./vocabulary.ts";

export const dModel = 64;
export const numHeads = 4;
export const headDim = 16;
export const numLayers = 2;
export const ropeTheta = 10_000;
export const normEps = 1e-5;

/** Tensor name -> shape, in the order of the file. Matrices are [out, in], as Llama checkpoints have them. */
export const shapes: Readonly<Record<string, readonly number[]>> = {
  "model.embed_tokens.weight": [vocabSize, dModel],
  ...Object.fromEntries(Array.from({ length: numLayers }, (_, layer) => layerShapes(layer)).flat()),
  "model.norm.weight": [dModel],
  "lm_head.weight": [vocabSize, dModel],
};

function layerShapes(layer: number): [string, number[]][] {
  const matrices = ["q", "k", "v", "o"].map((x): [string, number[]] => [
    `model.layers.${layer}.self_attn.${x}_proj.weight`,
    [dModel, dModel],
  ]);
  return [[`model.layers.${layer}.input_layernorm.weight`, [dModel]], ...matrices];
}

/** Written beside the weights, in the words that checkpoints on the Hugging Face hub use. */
export const hfConfig = {
  model_type: "llama",
  hidden_size: dModel,
  num_attention_heads: numHeads,
  num_key_value_heads: numHeads,
  head_dim: headDim,
  num_hidden_layers: numLayers,
  rope_theta: ropeTheta,
  rms_norm_eps: normEps,
  vocab_size: vocabSize,
  max_position_embeddings: seqLen,
  tie_word_embeddings: false,
  torch_dtype: "float32",
  vocabulary,
};
