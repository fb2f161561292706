// Gemma 1 to 3: gains are stored less 1 (in GGUF files, 1 is added), rows of the table are multiplied by √dModel, GELU with gates.
// From 2 on, norms also on the outputs of branches, softcaps, and windows.

import type { AttentionRules } from "./attention-rules.ts";
import type { Facts, Fields } from "./facts.ts";
import { type Family, SANDWICH_NORMS } from "./family.ts";

const attention: AttentionRules = { types: "gemma", gguf: {}, defaults: { headDim: 256 } };
const attention2: AttentionRules = {
  types: "gemma2",
  gguf: { assumesWindow: true, wideScale: 46 },
  defaults: { headDim: 256 },
  window: { tokens: 4096, period: 2 },
  softcap: 50,
  scale: rootOfScalar,
};
const attention3: AttentionRules = {
  types: "gemma3_text",
  gguf: { names: "gemma3", wideScale: 62 },
  defaults: { dModel: 2304, numHeads: 8, numKvHeads: 4, headDim: 256 },
  window: { tokens: 4096, period: 6, patterned: true },
  qkNorm: { kind: "per-head", onePlus: true },
  softcap: 0,
  scale: rootOfScalar,
  rope: { theta: 1_000_000, local: { field: "rope_local_base_freq", theta: 10_000 } },
};

const attentionVault: AttentionRules = {
  types: "vaultgemma",
  defaults: { headDim: 256 },
  window: { tokens: 4096, period: 2 },
  softcap: 50,
  scale: rootOfScalar,
};

export const layers: readonly AttentionRules[] = [attention, attention2, attention3, attentionVault];

function rootOfScalar(file: Fields): number | undefined {
  const scalar = file.factor("query_pre_attn_scalar");
  return scalar === undefined ? undefined : 1 / Math.sqrt(scalar);
}

/** The softcap of logits, `otherwise` if the file does not state it. */
const softcap = (otherwise: number) => (facts: Facts) => ({
  softcap: facts.has("final_logit_softcapping") ? (facts.factor("final_logit_softcapping") ?? 0) : otherwise,
});

const gemma = (own: Pick<Family, "attention"> & Partial<Family>): Family => ({
  gguf: {},
  norm: { onePlus: true },
  activation: { fields: ["hidden_activation", "hidden_act"], word: "gelu_pytorch_tanh" },
  embed: (_facts, dModel) => ({ scale: Math.sqrt(dModel) }),
  tied: true,
  ...own,
});

export const decoders = (): Family[] => [
  gemma({
    attention,
    activation: { fields: ["hidden_activation"], word: "gelu_pytorch_tanh" },
    ignored: ["hidden_act"],
  }),
  gemma({ attention: attention2, names: { norms: SANDWICH_NORMS }, head: softcap(30) }),
  gemma({
    attention: attention3,
    names: { norms: SANDWICH_NORMS },
    head: softcap(0),
    // Files of Google's leave them out.
    absent: { vocab_size: 262_208, intermediate_size: 9216, num_hidden_layers: 26, max_position_embeddings: 131_072 },
  }),
  gemma({
    attention: attentionVault,
    names: { norms: { attentionPre: "input_layernorm", mlpPre: "pre_feedforward_layernorm" } },
    head: softcap(30),
  }),
];
