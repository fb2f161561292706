// GPT-Neo: GPT-2 with a window in some layers, and scores that are not scaled.

import type { AttentionRules } from "./attention-rules.ts";
import { type Fields, refusal } from "./facts.ts";
import { type Family, LAYER_NORM_EPSILON, OUT_PROJ } from "./family.ts";
import { GPT2_NAMES } from "./gpt2.ts";

/** Files list the kind of each layer, or repeat lists of kinds. */
function slides(layer: number, file: Fields): boolean {
  const repeated = (file.list("attention_types") ?? [[["global", "local"], 12]]).flatMap((each) => {
    const [kinds, times] = Array.isArray(each) ? (each as readonly unknown[]) : [];
    const most = Array.isArray(kinds) && typeof times === "number" && times >= 0 && times <= 1000 ? times : 0;
    return Array.from({ length: most }, () => kinds as readonly unknown[]).flat();
  });
  const kind = (file.list("attention_layers") ?? repeated)[layer];
  if (kind === "local" || kind === "global") return kind === "local";
  throw refusal(`attention_layers of layer ${layer}`, '"local" or "global"', kind);
}

const attention: AttentionRules = {
  types: "gpt_neo",
  names: { numHeads: ["num_heads", "num_attention_heads"], layers: ["num_layers", "num_hidden_layers"] },
  rope: false,
  scale: () => 1,
  window: { tokens: 256, field: "window_size", slides },
};

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [
  {
    attention,
    names: { ...GPT2_NAMES, attention: "attn.attention.", projections: OUT_PROJ },
    norm: LAYER_NORM_EPSILON,
    activation: { fields: ["activation_function"], word: "gelu_new" },
    plain: true,
    mlpDim: (file, dModel) => file.count("intermediate_size", 4 * dModel),
    embed: (facts) => ({ positions: { offset: 0, rows: facts.count("max_position_embeddings", 2048) } }),
    tied: true,
    ignored: ["attention_layers", "attention_types", "window_size", "gradient_checkpointing"],
    biases: () => ["o", "mlp", "norm"],
  },
];
