import type { Names } from "./family.ts";

/** Names of tensors in the files of Llama. */
export const LLAMA_NAMES: Names = {
  roots: ["model.", "", "language_model.model.", "model.language_model."],
  embed: "embed_tokens",
  embedNorm: "embed_norm",
  positions: "embed_positions",
  projectIn: "project_in",
  projectOut: "project_out",
  layers: "layers",
  attention: "self_attn.",
  projections: ["q_proj", "k_proj", "v_proj", "o_proj"],
  norms: { attentionPre: "input_layernorm", mlpPre: "post_attention_layernorm" },
  mlpAt: "mlp",
  mlp: { gate: "gate_proj", up: "up_proj", down: "down_proj" },
  finalNorm: "norm",
  head: "lm_head",
};
