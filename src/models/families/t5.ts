// T5 and its relatives: a decoder with an encoder, a bias by relative position instead of positions, scores without scale. Of the
// relatives, single layers are read.

import type { AttentionRules } from "./attention-rules.ts";
import type { Fields } from "./facts.ts";
import type { Family, Names } from "./family.ts";

const t5Attention = (own: AttentionRules): AttentionRules => ({
  rope: false,
  names: { dModel: ["d_model"], numHeads: ["num_heads"], headDim: ["d_kv"] },
  relativeBias: true,
  scale: () => 1,
  sides: {
    encoder: { layers: ["num_layers"] },
    decoder: { layers: ["num_decoder_layers", "num_layers"] },
  },
  ...own,
});

const attention: AttentionRules = /* @__PURE__ */ t5Attention({ types: "t5", reader: "loadSeq2Seq" });
const relatives: AttentionRules = /* @__PURE__ */ t5Attention({ types: "mt5 switch_transformers umt5" });

export const layers: readonly AttentionRules[] = [attention, relatives];

/** T5's one field of the activation: "relu", or with a gate "gated-gelu", which is tanh GELU there, "gated-silu". */
function t5Mlp(stated: unknown = "relu"): { readonly word: string; readonly gated: boolean } {
  const word = String(stated).replace(/^gated-/, "");
  return { word: stated === "gated-gelu" ? "gelu_new" : word, gated: word !== stated };
}

/** A half, whose MLP is in the part of a layer with this number. */
const half = (
  part: "encoder" | "decoder",
  number: number,
  norms: Names["norms"],
  own: Partial<Family> & { names?: Partial<Names> },
): Family => ({
  attention,
  part,
  namesOf: (facts) => ({
    mlpAt: `layer.${number}.DenseReluDense`,
    mlp: t5Mlp(facts.raw("feed_forward_proj")).gated
      ? { gate: "wi_0", up: "wi_1", down: "wo" }
      : { up: "wi", down: "wo" },
  }),
  norm: { field: "layer_norm_epsilon" },
  mlp: (file) => t5Mlp(file.raw("feed_forward_proj")),
  mlpDim: (file) => file.count("d_ff"),
  relativeBias: (file) => ({
    buckets: file.count("relative_attention_num_buckets", 32),
    maxDistance: file.count("relative_attention_max_distance", 128),
    bothWays: part === "encoder",
  }),
  lengthField: "n_positions",
  ...own,
  names: {
    roots: [""],
    embed: "shared",
    layers: `${part}.block`,
    attention: "layer.0.SelfAttention.",
    projections: ["q", "k", "v", "o"],
    norms,
    relativeBias: `${part}.block.0.layer.0.SelfAttention.relative_attention_bias`,
    finalNorm: `${part}.final_layer_norm`,
    ...own.names,
  },
});

const isTied = (file: Pick<Fields, "flag">) => file.flag("tie_word_embeddings", true);

export const halves = (): Family[] => [
  half(
    "decoder",
    2,
    { attentionPre: "layer.0.layer_norm", crossPre: "layer.1.layer_norm", mlpPre: "layer.2.layer_norm" },
    {
      encoder: half(
        "encoder",
        1,
        { attentionPre: "layer.0.layer_norm", mlpPre: "layer.1.layer_norm" },
        {
          layers: ["num_layers"],
        },
      ),
      names: { cross: "layer.1.EncDecAttention." },
      layers: ["num_decoder_layers", "num_layers"],
      // A table of tokens that is the head gives logits of products with rows that are as much shorter.
      head: (facts) => ({
        scale: facts.flag("scale_decoder_outputs", isTied(facts)) ? 1 / Math.sqrt(facts.count("d_model")) : 1,
      }),
      tied: true,
      ignored: ["dense_act_fn", "initializer_factor", "is_gated_act", "task_specific_params"],
      ignoredTensors:
        /(^|\.)((encoder|decoder)\.embed_tokens\.weight|EncDecAttention\.relative_attention_bias\.weight)$/,
    },
  ),
];
