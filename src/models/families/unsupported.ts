// Attention that single layers do not compute, for models that have it: each is refused by its name, unless it is read whole. These tables are plain
// objects, so that bundlers can drop them from programs that read no configuration.

/** Names, separated by spaces, by what these models have instead. */
type Unsupported = Readonly<Record<string, string>>;

/** Values of `model_type` of models that are not read whole either. */
export const UNSUPPORTED_MODELS: Unsupported = {
  "latent attention (MLA) to keys that an indexer selects": "deepseek_v32 glm_moe_dsa",
  "latent attention (MLA) with factors on the latents": "longcat_flash",
  "attention to blocks of keys that an indexer selects": "qwen4_exp qwen4_exp_text",
  "state-space layers instead of attention": "mamba falcon_mamba rwkv xlstm",
  "state-space or recurrent layers between those of attention": "bamba plamo2",
  "a block of attention and MLP that layers share": "zamba zamba2",
  "a term of each key's value in its scores": "doge",
  "LayerNorm of queries and keys": "chameleon",
  "RoPE over several axes": "glm4v dinov3_vit",
  "relative positions inside attention": "deberta xlnet transfo-xl wavlm swin swinv2 wav2vec2-bert wav2vec2-conformer",
  "sparse attention": "longformer big_bird bigbird_pegasus led longt5",
  "a scale that grows with the position": "qwen",
};

/** Those of models that are read whole. */
export const WHOLE_MODELS: Unsupported = {
  "latent attention (MLA) with longrope": "minicpm3",
  "latent attention (MLA) with a temperature that depends on the position": "mistral4",
  "latent attention (MLA) beside linear attention": "kimi_linear",
  "attention whose output is gated": "afmoe",
  "gated attention beside linear attention": "qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text",
  "state-space layers instead of attention": "mamba2",
  "state-space or recurrent layers between those of attention":
    "jamba falcon_h1 nemotron_h granitemoehybrid recurrent_gemma",
  "a norm of values, and keys that layers share":
    "gemma3n gemma3n_text gemma4 gemma4_text gemma4_unified gemma4_unified_text",
  "attention in chunks, with a temperature that depends on the position": "llama4 llama4_text",
  "differential attention": "diffllama",
  "norms of queries and keys after RoPE": "hunyuan_v1_dense hunyuan_v1_moe nanochat",
  "queries that grow with their positions": "ministral3",
  "LayerNorm of queries and keys": "persimmon",
  "a norm between the heads and the output projection": "bitnet",
  "a row order of its own in the joint projection": "codegen gpt_bigcode",
  "RoPE over several axes":
    "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3_vl qwen3_vl_text qwen3_vl_moe qwen3_vl_moe_text",
};

/** Values of `general.architecture`. */
export const UNSUPPORTED_ARCHITECTURES: Unsupported = {
  "latent attention (MLA) of another kind":
    "deepseek2-ocr deepseek32 deepseek4 minicpm3 plm glm-dsa kimi-linear mistral4",
  "attention whose output is gated": "afmoe",
  "gated attention beside linear attention": "qwen3next qwen35 qwen35moe",
  "state-space layers instead of attention": "mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7",
  "state-space or recurrent layers between those of attention":
    "jamba falcon-h1 nemotron_h nemotron_h_moe granitehybrid plamo2",
  "a norm of values, and keys that layers share": "gemma3n gemma4",
  "attention in chunks, with a temperature that depends on the position": "llama4",
  "norms of queries and keys after RoPE": "hunyuan-dense hunyuan-moe",
  "LayerNorm of queries and keys": "chameleon",
  "a norm between the heads and the output projection": "bitnet",
  "RoPE over several axes": "qwen2vl qwen3vl qwen3vlmoe hunyuan_vl paddleocr",
  "relative positions inside attention": "t5 t5encoder",
};

/** The rule for an error. */
export const UNSUPPORTED_RULE = "attention that this package computes";

/** What the model of this name has instead; undefined if no table lists it. */
export function reasonAgainst(name: unknown, ...tables: readonly Unsupported[]): string | undefined {
  if (typeof name !== "string") return undefined;
  const all = tables.flatMap((table) => Object.entries(table));
  return all.find(([, names]) => names.split(" ").includes(name))?.[0];
}
