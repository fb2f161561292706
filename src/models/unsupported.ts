// Attention that this package does not compute, for models that have it: each is refused by its name.

const LATENT = "latent attention (MLA)";
const GATED = "gated attention beside linear attention";
const OUTPUT_GATE = "attention whose output is gated";
const STATE_SPACE = "state-space layers instead of attention";
const HYBRID = "state-space or recurrent layers between those of attention";
const RELATIVE = "relative positions inside attention";
const AXES = "RoPE over several axes";
const SPARSE = "sparse attention";
const VALUE_NORM = "a norm of values, and keys that layers share";
const NORM_AFTER_ROPE = "norms of queries and keys after RoPE";
const LAYER_NORM = "LayerNorm of queries and keys";
const CHUNKED = "attention in chunks, with a temperature that depends on the position";
const INNER_NORM = "a norm between the heads and the output projection";
const ROW_ORDER = "a row order of its own in the joint projection";

const named = (reason: string, names: string): readonly (readonly [name: string, reason: string])[] =>
  names.split(" ").map((name) => [name, reason]);

/** Values of `model_type`, and what they have instead. */
export const UNSUPPORTED_MODELS: ReadonlyMap<string, string> = new Map([
  ...named(LATENT, "deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 minicpm3 longcat_flash glm4_moe_lite glm_moe_dsa"),
  ...named(LATENT, "kimi_linear"),
  ...named(GATED, "qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text"),
  ...named(OUTPUT_GATE, "afmoe"),
  ...named(STATE_SPACE, "mamba mamba2 falcon_mamba rwkv xlstm"),
  ...named(HYBRID, "jamba bamba zamba zamba2 falcon_h1 nemotron_h granitemoehybrid recurrent_gemma plamo2"),
  ...named(VALUE_NORM, "gemma3n gemma3n_text gemma4 gemma4_text"),
  ...named(CHUNKED, "llama4 llama4_text"),
  ...named("differential attention", "diffllama"),
  ...named(NORM_AFTER_ROPE, "hunyuan_v1_dense hunyuan_v1_moe"),
  ...named(LAYER_NORM, "persimmon chameleon"),
  ...named(INNER_NORM, "bitnet"),
  ...named(ROW_ORDER, "codegen gpt_bigcode"),
  ...named(AXES, "qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe glm4v dinov3_vit"),
  ...named(RELATIVE, "deberta deberta-v2 xlnet transfo-xl wavlm swin swinv2 wav2vec2-bert wav2vec2-conformer"),
  ...named(SPARSE, "longformer big_bird bigbird_pegasus led longt5"),
  ...named("a scale that grows with the position", "qwen"),
]);

/** Values of `general.architecture`, and what they have instead. */
export const UNSUPPORTED_ARCHITECTURES: ReadonlyMap<string, string> = new Map([
  ...named(LATENT, "deepseek2 deepseek2-ocr deepseek32 deepseek4 minicpm3 plm glm-dsa kimi-linear mistral4"),
  ...named(GATED, "qwen3next qwen35 qwen35moe"),
  ...named(OUTPUT_GATE, "afmoe"),
  ...named(STATE_SPACE, "mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7"),
  ...named(HYBRID, "jamba falcon-h1 nemotron_h nemotron_h_moe granitehybrid plamo2"),
  ...named(VALUE_NORM, "gemma3n gemma4"),
  ...named(CHUNKED, "llama4"),
  ...named(NORM_AFTER_ROPE, "hunyuan-dense hunyuan-moe"),
  ...named(LAYER_NORM, "chameleon"),
  ...named(INNER_NORM, "bitnet"),
  ...named(AXES, "qwen2vl qwen3vl qwen3vlmoe hunyuan_vl paddleocr"),
  ...named(RELATIVE, "t5 t5encoder"),
]);

/** The rule for an error, and what the model has. */
export const UNSUPPORTED_RULE = "attention that this package computes";
