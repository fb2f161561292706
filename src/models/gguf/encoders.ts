// The architectures of GGUF files whose encoders are read besides those of decoders.ts. Their files do not have heads for masked
// tokens; those that put texts in order have a classifier, which is not read.

import type { DecoderRules } from "./decoders.ts";

const BERT: DecoderRules = {
  norm: "layer",
  norms: { attentionAfter: "attn_output_norm", mlpAfter: "layer_output_norm" },
  embedNorm: true,
  noFinalNorm: true,
};

export const GGUF_ENCODERS: Readonly<Record<string, DecoderRules>> = {
  bert: { ...BERT, plain: true, activation: { kind: "gelu", alpha: 1 }, positions: true },
  "nomic-bert": BERT,
};
