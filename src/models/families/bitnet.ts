// BitNet b1.58 2B4T: norms before the last projections of attention and MLP, whose gate is the square of ReLU. How it stores matrices,
// other models do, too.

import type { AttentionRules } from "./attention-rules.ts";
import type { Fields } from "./facts.ts";
import type { Family, TensorForm } from "./family.ts";

/** How matrices are stored, by the field `quantization_config` of any model; undefined without it. */
export function readBitnetScales(file: Fields): TensorForm["scales"] {
  const given = file.fields("quantization_config");
  if (given === undefined) return undefined;
  if (given.raw("quant_method") !== "bitnet")
    throw file.refusal(
      "quantization_config",
      "a field that this package knows, or none",
      file.raw("quantization_config"),
    );
  const kind = given.raw("linear_class") ?? "bitlinear";
  const mode = given.raw("quantization_mode") ?? "offline";
  given.only("linear_class", "bitlinear", "autobitlinear");
  given.only("quantization_mode", "offline", "online");
  given.only("use_rms_norm", false);
  given.raw("rms_norm_eps");
  const kept = given.list("modules_to_not_convert") ?? [];
  if (kept.some((name) => name !== "lm_head"))
    throw given.refusal("modules_to_not_convert", '"lm_head" alone, or null', kept);
  const [unread] = given.unread();
  if (unread) throw given.refusal(unread[0], "a field that this package knows, or none", unread[1]);
  return kind === "bitlinear" ? "divided" : mode === "online" ? "online" : "packed";
}

const attention: AttentionRules = {
  types: "bitnet",
  gguf: {},
  defaults: { numKvHeads: 5 },
  rope: { theta: 500_000 },
};

export const decoders = (): Family[] => [
  {
    attention,
    gguf: { activation: () => ({ kind: "swish", alpha: 1 }), scaled: true },
    names: {
      norms: {
        attentionPre: "input_layernorm",
        attentionSub: "self_attn.attn_sub_norm",
        mlpPre: "post_attention_layernorm",
        mlpSub: "mlp.ffn_sub_norm",
      },
    },
    norm: { eps: 1e-5 },
    activation: { word: "relu2" },
  },
];
