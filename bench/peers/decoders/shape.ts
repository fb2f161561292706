// What a decoder that is compared is, and the tensors of its checkpoint.

import type { Typed } from "../../../test/support/gguf-writer.ts";

/** A pre-norm decoder with a gated MLP and a head that is the table of tokens: grouped queries, in hybrids in some layers. */
export interface DecoderShape {
  readonly name: string;
  /** `model_type`. */
  readonly type: string;
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
  /** What a hybrid has in its GGUF file, the only one that it is compared in. */
  readonly hybrid?: GgufHybrid;
}

/** The GGUF file of a hybrid, as llama.cpp's converter writes it. */
export interface GgufHybrid {
  readonly architecture: string;
  /** Below the architecture, besides those of all decoders. */
  readonly keys: Readonly<Record<string, Typed>>;
  /** Of the file, without the table of tokens. */
  readonly tensors: readonly TensorSpec[];
}

/** A tensor of a checkpoint, with its name there. Matrices are [outputs, inputs]. */
export interface TensorSpec {
  readonly name: string;
  readonly shape: readonly number[];
  /** Float32 in every format. */
  readonly exact?: true;
  /** All of its values. Default 1 of vectors, and random ones of matrices. */
  readonly fill?: number;
}

/** What decoders have in common, of a configuration. */
export function shapeOf(name: string, config: object): DecoderShape {
  const fields = config as Record<string, number> & {
    readonly model_type: string;
    rope_parameters?: { rope_theta: number };
  };
  return {
    ...{ name, config, type: fields.model_type },
    ...{ dModel: fields.hidden_size!, layers: fields.num_hidden_layers!, vocabSize: fields.vocab_size! },
    ...{ numHeads: fields.num_attention_heads!, numKvHeads: fields.num_key_value_heads! },
    headDim: fields.head_dim ?? fields.hidden_size! / fields.num_attention_heads!,
    // The MLPs of LFM2 have two thirds of the width that is stated, in multiples of 256.
    mlpDim: fields.model_type === "lfm2" ? 256 * Math.ceil(fields.intermediate_size! / 384) : fields.intermediate_size!,
    theta: fields.rope_parameters?.rope_theta ?? fields.rope_theta ?? 10_000,
    eps: fields.rms_norm_eps ?? fields.norm_eps!,
  };
}

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

/** All tensors of a checkpoint, or of the GGUF file of a hybrid, in order. */
export function tensorsOf(shape: DecoderShape): readonly TensorSpec[] {
  if (shape.hybrid)
    return [{ name: "token_embd.weight", shape: [shape.vocabSize, shape.dModel] }, ...shape.hybrid.tensors];
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

/** Whether a tensor is a matrix of weights, which formats convert. */
export const isMatrix = ({ shape, exact }: TensorSpec): boolean => shape.length === 2 && !exact;

/** Weights of the matrices that a token is multiplied with, the head among them. */
export function weightsRead(shape: DecoderShape): number {
  const matrices = tensorsOf(shape).filter(isMatrix);
  return matrices.reduce((sum, tensor) => sum + elements(tensor.shape), 0);
}
