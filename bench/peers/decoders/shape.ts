// The decoders that are compared, and the tensors of their checkpoints.

import { MODEL_CONFIGS } from "../../lib/random-model.ts";

/** A pre-norm decoder with grouped queries, a gated MLP and a head that is the table of tokens. */
export interface DecoderShape {
  readonly name: string;
  readonly type: "llama" | "qwen3";
  readonly dModel: number;
  readonly layers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly mlpDim: number;
  readonly vocabSize: number;
  readonly theta: number;
  readonly eps: number;
  /** config.json. */
  readonly config: object;
}

/** A tensor of a checkpoint, with its name there. Matrices are [outputs, inputs]. */
export interface TensorSpec {
  readonly name: string;
  readonly shape: readonly number[];
}

function shapeOf(name: string, config: object): DecoderShape {
  const fields = config as Record<string, number> & { readonly model_type: DecoderShape["type"] };
  return {
    ...{ name, config, type: fields.model_type },
    ...{ dModel: fields.hidden_size!, layers: fields.num_hidden_layers!, vocabSize: fields.vocab_size! },
    ...{ numHeads: fields.num_attention_heads!, numKvHeads: fields.num_key_value_heads! },
    headDim: fields.head_dim ?? fields.hidden_size! / fields.num_attention_heads!,
    ...{ mlpDim: fields.intermediate_size!, theta: fields.rope_theta!, eps: fields.rms_norm_eps! },
  };
}

export const SHAPES: readonly DecoderShape[] = Object.entries(MODEL_CONFIGS).map(([name, config]) =>
  shapeOf(name, config),
);

/** The tensors of a layer; `model.layers.N.` stands before their names. */
export function layerTensors(shape: DecoderShape): TensorSpec[] {
  const { type, dModel, numHeads, numKvHeads, headDim, mlpDim } = shape;
  const tensors: Record<string, readonly number[]> = {
    input_layernorm: [dModel],
    "self_attn.q_proj": [numHeads * headDim, dModel],
    "self_attn.k_proj": [numKvHeads * headDim, dModel],
    "self_attn.v_proj": [numKvHeads * headDim, dModel],
    "self_attn.o_proj": [dModel, numHeads * headDim],
    ...(type === "qwen3" ? { "self_attn.q_norm": [headDim], "self_attn.k_norm": [headDim] } : {}),
    post_attention_layernorm: [dModel],
    "mlp.gate_proj": [mlpDim, dModel],
    "mlp.up_proj": [mlpDim, dModel],
    "mlp.down_proj": [dModel, mlpDim],
  };
  return Object.entries(tensors).map(([name, size]) => ({ name: `${name}.weight`, shape: size }));
}

export const layerPrefix = (layer: number) => `model.layers.${layer}.`;
export const EMBED = "model.embed_tokens.weight";
export const FINAL_NORM = "model.norm.weight";

/** All tensors of a checkpoint, in order. */
export function tensorsOf(shape: DecoderShape): TensorSpec[] {
  const layers = Array.from({ length: shape.layers }, (_, layer) =>
    layerTensors(shape).map(({ name, shape: size }) => ({ name: `${layerPrefix(layer)}${name}`, shape: size })),
  );
  return [
    { name: EMBED, shape: [shape.vocabSize, shape.dModel] },
    ...layers.flat(),
    { name: FINAL_NORM, shape: [shape.dModel] },
  ];
}

export const elements = (shape: readonly number[]) => shape.reduce((product, side) => product * side, 1);

/** Weights of the matrices that a token is multiplied with, the head among them. */
export function weightsRead(shape: DecoderShape): number {
  const matrices = tensorsOf(shape).filter((tensor) => tensor.shape.length === 2);
  return matrices.reduce((sum, tensor) => sum + elements(tensor.shape), 0);
}
