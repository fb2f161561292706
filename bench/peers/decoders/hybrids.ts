// Hybrids as llama.cpp's converter writes them: the tensors and keys of their GGUF files. They are compared in these files alone.

import { bool, f32, list, type Typed, u32 } from "../../../test/support/gguf-writer.ts";
import { HYBRID_CONFIGS } from "../../lib/random-model.ts";
import { type DecoderShape, type GgufHybrid, shapeOf, type TensorSpec } from "./shape.ts";

type Fields = Readonly<Record<string, number>>;

const matrices = (all: Readonly<Record<string, readonly number[]>>): TensorSpec[] =>
  Object.entries(all).map(([name, shape]) => ({ name: `${name}.weight`, shape }));
/** Taps stay float32 in every file. */
const taps = (channels: number, count: number, name = "ssm_conv1d"): TensorSpec => ({
  ...{ name: `${name}.weight`, shape: [channels, count], exact: true },
});
const filled = (name: string, shape: readonly number[], fill = 1): TensorSpec => ({ name, shape, exact: true, fill });

const headsOf = ({ dModel, numHeads, numKvHeads, headDim }: DecoderShape, gated = false) => ({
  attn_q: [(gated ? 2 : 1) * numHeads * headDim, dModel],
  ...{ attn_k: [numKvHeads * headDim, dModel], attn_v: [numKvHeads * headDim, dModel] },
  attn_output: [dModel, numHeads * headDim],
});
const mlpOf = ({ dModel, mlpDim }: DecoderShape) => ({
  ...{ ffn_gate: [mlpDim, dModel], ffn_up: [mlpDim, dModel], ffn_down: [dModel, mlpDim] },
});
const normsOf = ({ headDim }: DecoderShape) => ({ attn_q_norm: [headDim], attn_k_norm: [headDim] });

/** What a family has besides the layers that all make of `heads` or `other`. */
interface Kind {
  readonly architecture: string;
  readonly finalNorm: string;
  readonly norms: readonly string[];
  keys(shape: DecoderShape, fields: Fields, attends: readonly boolean[]): Readonly<Record<string, Typed>>;
  heads(shape: DecoderShape): readonly TensorSpec[];
  other(shape: DecoderShape, fields: Fields): readonly TensorSpec[];
}

/** Heads of keys and values of each layer, 0 of those without. */
const kvHeads = ({ numKvHeads }: DecoderShape, attends: readonly boolean[]) => ({
  "attention.head_count_kv": list(
    5,
    attends.map((own) => (own ? numKvHeads : 0)),
  ),
});

const KINDS: Readonly<Record<string, Kind>> = {
  lfm2: {
    ...{ architecture: "lfm2", finalNorm: "token_embd_norm", norms: ["attn_norm", "ffn_norm"] },
    keys: (shape, fields, attends) => ({
      ...{ ...kvHeads(shape, attends), "shortconv.l_cache": u32(fields.conv_L_cache!) },
    }),
    heads: (shape) => matrices({ ...headsOf(shape), ...normsOf(shape) }),
    other: ({ dModel }, fields) => [
      taps(dModel, fields.conv_L_cache!, "shortconv.conv"),
      ...matrices({ "shortconv.in_proj": [3 * dModel, dModel], "shortconv.out_proj": [dModel, dModel] }),
    ],
  },
  qwen3_5_text: {
    ...{ architecture: "qwen35", finalNorm: "output_norm", norms: ["attn_norm", "post_attention_norm"] },
    keys: ({ headDim }, fields, attends) => ({
      ...{ "ssm.conv_kernel": u32(fields.linear_conv_kernel_dim!), full_attention_interval: u32(4) },
      ...{ "ssm.state_size": u32(fields.linear_key_head_dim!), "ssm.group_count": u32(fields.linear_num_key_heads!) },
      "ssm.time_step_rank": u32(fields.linear_num_value_heads!),
      "ssm.inner_size": u32(fields.linear_num_value_heads! * fields.linear_value_head_dim!),
      "attention.recurrent_layers": list(
        7,
        attends.map((own) => !own),
      ),
      ...{ "rope.dimension_sections": list(5, [11, 11, 10, 0]), "rope.dimension_count": u32(headDim / 4) },
    }),
    heads: (shape) => matrices({ ...headsOf(shape, true), ...normsOf(shape) }),
    other: ({ dModel }, fields) => {
      const heads = fields.linear_num_value_heads!;
      const values = heads * fields.linear_value_head_dim!;
      const mixed = values + 2 * fields.linear_num_key_heads! * fields.linear_key_head_dim!;
      return [
        ...[taps(mixed, fields.linear_conv_kernel_dim!), filled("ssm_a", [heads], -1), filled("ssm_dt.bias", [heads])],
        ...matrices({ attn_qkv: [mixed, dModel], attn_gate: [values, dModel], ssm_out: [dModel, values] }),
        ...matrices({
          ssm_alpha: [heads, dModel],
          ssm_beta: [heads, dModel],
          ssm_norm: [fields.linear_value_head_dim!],
        }),
      ];
    },
  },
  granitemoehybrid: {
    ...{ architecture: "granitehybrid", finalNorm: "output_norm", norms: ["attn_norm", "ffn_norm"] },
    keys: (shape, fields, attends) => ({
      ...{ ...kvHeads(shape, attends), "attention.scale": f32(fields.attention_multiplier!) },
      ...{ embedding_scale: f32(fields.embedding_multiplier!), residual_scale: f32(fields.residual_multiplier!) },
      ...{ logit_scale: f32(fields.logits_scaling!), "rope.scaling.finetuned": bool(false) },
      ...{ "ssm.conv_kernel": u32(fields.mamba_d_conv!), "ssm.state_size": u32(fields.mamba_d_state!) },
      ...{ "ssm.group_count": u32(fields.mamba_n_groups!), "ssm.time_step_rank": u32(fields.mamba_n_heads!) },
      "ssm.inner_size": u32(fields.mamba_n_heads! * fields.mamba_d_head!),
    }),
    heads: (shape) => matrices(headsOf(shape)),
    other: ({ dModel }, fields) => {
      const heads = fields.mamba_n_heads!;
      const inner = heads * fields.mamba_d_head!;
      const mixed = inner + 2 * fields.mamba_n_groups! * fields.mamba_d_state!;
      return [
        ...[taps(mixed, fields.mamba_d_conv!), filled("ssm_conv1d.bias", [mixed]), filled("ssm_dt.bias", [heads])],
        ...[filled("ssm_a", [heads, 1], -1), filled("ssm_d", [heads, 1])],
        filled("ssm_norm.weight", [fields.mamba_n_groups!, inner / fields.mamba_n_groups!]),
        ...matrices({ ssm_in: [inner + mixed + heads, dModel], ssm_out: [dModel, inner] }),
      ];
    },
  },
};

/** The file of a hybrid of `HYBRID_CONFIGS`. */
function ggufOf(shape: DecoderShape): GgufHybrid {
  const fields = shape.config as Fields;
  const { layer_types: kinds } = shape.config as { readonly layer_types: readonly string[] };
  const { architecture, finalNorm, norms, keys, heads, other } = KINDS[shape.type]!;
  const attends = kinds.map((kind) => kind.endsWith("attention") && kind !== "linear_attention");
  const layers = attends.flatMap((own, layer) =>
    [
      ...matrices(Object.fromEntries(norms.map((name) => [name, [shape.dModel]]))),
      ...(own ? heads(shape) : other(shape, fields)),
      ...matrices(mlpOf(shape)),
    ].map((tensor) => ({ ...tensor, name: `blk.${layer}.${tensor.name}` })),
  );
  return {
    ...{ architecture, keys: keys(shape, fields, attends) },
    tensors: [...layers, ...matrices({ [finalNorm]: [shape.dModel] })],
  };
}

/** The shapes of hybrids. */
export const HYBRIDS: readonly DecoderShape[] = Object.entries(HYBRID_CONFIGS).map(([name, config]) => {
  const shape = shapeOf(name, config);
  return { ...shape, hybrid: ggufOf(shape) };
});
