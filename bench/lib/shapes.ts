// The sizes that are measured: those of real models.

/** Rows, outputs and inputs of a projection. */
export interface LinearShape {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Also measured by --quick. */
  readonly quick?: boolean;
}

export const linearShapes: readonly LinearShape[] = [
  // A prompt through the output projection and the fused q, k, v of GPT-2 small, and through one of Llama 2 7B.
  { m: 128, n: 768, k: 768, quick: true },
  { m: 512, n: 2304, k: 768, quick: true },
  { m: 1024, n: 4096, k: 4096 },
  // One token of Llama 3.2 1B and of Llama 2 7B.
  { m: 1, n: 2048, k: 2048, quick: true },
  { m: 1, n: 4096, k: 4096, quick: true },
  // A few tokens at a time: small batches and short drafts.
  { m: 2, n: 2048, k: 2048 },
  { m: 3, n: 2048, k: 2048 },
  { m: 4, n: 2048, k: 2048, quick: true },
  { m: 5, n: 2048, k: 2048 },
  { m: 7, n: 2048, k: 2048 },
  { m: 8, n: 2048, k: 2048 },
  { m: 16, n: 2048, k: 2048 },
  // The same with 64 MB of weights, which are read from memory.
  { m: 2, n: 4096, k: 4096 },
  { m: 3, n: 4096, k: 4096 },
  { m: 4, n: 4096, k: 4096 },
  { m: 6, n: 4096, k: 4096 },
  { m: 8, n: 4096, k: 4096 },
  { m: 12, n: 4096, k: 4096 },
  { m: 16, n: 4096, k: 4096 },
];

/** The same with quantised weights: a prompt, a few tokens, and one with weights in the third-level cache or in memory. */
export const quantizedShapes: readonly LinearShape[] = [
  { m: 128, n: 768, k: 768, quick: true },
  { m: 512, n: 2304, k: 768 },
  { m: 128, n: 4096, k: 4096 },
  { m: 8, n: 2048, k: 2048 },
  { m: 4, n: 2048, k: 2048 },
  { m: 2, n: 2048, k: 2048 },
  { m: 1, n: 2048, k: 2048 },
  { m: 8, n: 4096, k: 4096 },
  { m: 4, n: 4096, k: 4096 },
  { m: 2, n: 4096, k: 4096 },
  { m: 1, n: 4096, k: 4096, quick: true },
  { m: 1, n: 32768, k: 4096 },
];

/** Query tokens, keys, query heads per kv head, and the size of a key and of a value. */
export interface AttentionSizes {
  readonly qLen: number;
  readonly kvLen: number;
  readonly group: number;
  readonly headDim: number;
  /** Default 1. */
  readonly numKvHeads?: number;
  /** Default headDim. */
  readonly valueDim?: number;
  /** Latent attention: of headDim, the last components are the rotated key, and the others the value, too. */
  readonly ropeDim?: number;
  /** Also measured by --quick. */
  readonly quick?: boolean;
}

export const attentionShapes: readonly AttentionSizes[] = [
  // A prompt, causal: heads of GPT-2 and Llama 3.2 1B (64), of Llama 3 8B (128).
  { qLen: 128, kvLen: 128, group: 1, headDim: 64 },
  { qLen: 512, kvLen: 512, group: 1, headDim: 64, quick: true },
  { qLen: 2048, kvLen: 2048, group: 1, headDim: 64 },
  { qLen: 128, kvLen: 128, group: 1, headDim: 128 },
  { qLen: 512, kvLen: 512, group: 1, headDim: 128, quick: true },
  { qLen: 2048, kvLen: 2048, group: 1, headDim: 128 },
  // One token over a thousand keys: MHA, the groups of Llama 3, and eight heads to a kv head.
  { qLen: 1, kvLen: 1024, group: 1, headDim: 64, quick: true },
  { qLen: 1, kvLen: 1024, group: 4, headDim: 64, quick: true },
  { qLen: 1, kvLen: 1024, group: 8, headDim: 64 },
  { qLen: 1, kvLen: 1024, group: 1, headDim: 128 },
  { qLen: 1, kvLen: 1024, group: 4, headDim: 128 },
  { qLen: 1, kvLen: 1024, group: 8, headDim: 128 },
];

const latentHeads = { numHeads: 16, rank: 512, nopeDim: 128, ropeDim: 64, valueDim: 128 };

/** Heads of DeepSeek-V2-Lite on latents, 512 + 64 floats a token. */
const absorbed = {
  group: latentHeads.numHeads,
  headDim: latentHeads.rank + latentHeads.ropeDim,
  ropeDim: latentHeads.ropeDim,
};
/** The same heads with the keys and values that the latents stand for. */
const expanded = {
  group: 1,
  numKvHeads: latentHeads.numHeads,
  headDim: latentHeads.nopeDim + latentHeads.ropeDim,
  valueDim: latentHeads.valueDim,
};

/** A decode step and a prompt of latent attention, by both paths. */
export const latentShapes: readonly AttentionSizes[] = [
  { qLen: 1, kvLen: 1024, ...absorbed, quick: true },
  { qLen: 1, kvLen: 8192, ...absorbed },
  { qLen: 512, kvLen: 512, ...absorbed },
  { qLen: 1, kvLen: 1024, ...expanded },
  { qLen: 1, kvLen: 8192, ...expanded },
  { qLen: 512, kvLen: 512, ...expanded },
];

/** A whole attention layer: x -> projections -> causal attention -> output projection. */
export interface LayerShape {
  readonly model: string;
  readonly dModel: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly bias: boolean;
  /** Base of the half-split rotary embedding, if there is one. */
  readonly ropeTheta?: number;
  /** Prompt lengths that are measured. */
  readonly prompts: readonly number[];
}

/** A pass of a layer over new tokens. */
export interface LayerWork {
  readonly shape: LayerShape;
  readonly tokens: number;
  /** Tokens in the cache; undefined for a prompt without a cache. */
  readonly past?: number;
  readonly quick?: boolean;
}

export const gpt2Layer: LayerShape = {
  model: "GPT-2 small",
  dModel: 768,
  numHeads: 12,
  numKvHeads: 12,
  bias: true,
  prompts: [16, 128, 512, 1024, 2048],
};

export const llamaLayer: LayerShape = {
  model: "Llama 3.2 1B",
  dModel: 2048,
  numHeads: 32,
  numKvHeads: 8,
  bias: false,
  ropeTheta: 500_000,
  prompts: [16, 128, 512, 2048],
};

export const layerShapes: readonly LayerShape[] = [gpt2Layer, llamaLayer];

/** Tokens in the cache when `llamaLayer` decodes one more. */
export const decodePasts: readonly number[] = [128, 1024, 4096];

/** A layer too small for a second thread to help. */
export const tinyLayer: LayerShape = {
  model: "a layer of 64",
  dModel: 64,
  numHeads: 4,
  numKvHeads: 4,
  bias: false,
  prompts: [1, 16],
};

/** Too long for a matrix of scores: 32768² floats are 4 GiB per head. */
export const longLayer: LayerShape = {
  model: "8 heads of 64",
  dModel: 512,
  numHeads: 8,
  numKvHeads: 8,
  bias: false,
  prompts: [32_768],
};
