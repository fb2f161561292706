import {
  type Attention,
  type AttentionConfig,
  type AttentionWeights,
  attend,
  createAttention,
  createCache,
  type Kernels,
  type WeightTensor,
} from "../../src/entries/core.ts";
import { convertToGqa } from "../../src/entries/weights.ts";
import type { LatentConfig, LatentWeights } from "../../src/layers/latent/config.ts";
import { createLatentAttention } from "../../src/layers/latent/latents.ts";

import type { Case, Outcome, Values } from "./case.ts";

/** One decoder layer: `x` at once, then `x_decode` one token at a time on the same cache, then the cache. */
export function decoderAttention(kernels: Kernels, c: Case): Outcome {
  const config = decoderConfig(c, c.someNumber("num_kv_heads", "num_heads"));
  return { outputs: decode(kernels, c, config, decoderWeights(c)) };
}

/** The same with latent attention: the cache holds latents, and the keys that are rotated. */
export function latentAttention(kernels: Kernels, c: Case): Outcome {
  const rope = c.entry.attributes.rope as StoredRope;
  const qLoraRank = c.number("q_lora_rank");
  const config: LatentConfig = {
    dModel: c.shape("x").at(-1)!,
    numHeads: c.someNumber("num_heads"),
    kvLoraRank: c.someNumber("kv_lora_rank"),
    qLoraRank,
    nopeDim: c.someNumber("qk_nope_head_dim"),
    ropeDim: c.someNumber("qk_rope_head_dim"),
    valueDim: c.someNumber("v_head_dim"),
    causal: c.flag("is_causal", true),
    scale: c.number("scale"),
    normEps: c.number("norm_eps"),
    rope: { theta: rope.theta, pairing: rope.style },
  };
  const weights: LatentWeights = {
    ...(qLoraRank === undefined
      ? { wq: c.floats("q_proj.weight") }
      : {
          wqDown: c.floats("q_a_proj.weight"),
          qNorm: c.floats("q_a_layernorm.weight").data,
          wqUp: c.floats("q_b_proj.weight"),
        }),
    wkvDown: c.floats("kv_a_proj_with_mqa.weight"),
    kvNorm: c.floats("kv_a_layernorm.weight").data,
    wkvUp: c.floats("kv_b_proj.weight"),
    wo: c.floats("o_proj.weight"),
  };
  const { k_cache, v_cache, ...ys } = run(c, createLatentAttention(kernels, config, weights));
  const withoutHeads = ({ data, shape: [batch, , tokens, dim] }: Values): Values => ({
    data,
    shape: [batch!, tokens!, dim!],
  });
  return { outputs: { ...ys, latent_cache: withoutHeads(k_cache), k_rope_cache: withoutHeads(v_cache) } };
}

type Decoded = Record<"y_prefill" | "y_decode" | "k_cache" | "v_cache", Values>;

/** The same for a given layer. */
export function decode(kernels: Kernels, c: Case, config: AttentionConfig, weights: AttentionWeights): Decoded {
  return run(c, createAttention(kernels, config, weights));
}

/** Prefill and decode with a layer, which is released. */
function run(c: Case, attention: Attention): Decoded {
  const [batch, qLen, dModel] = c.shape("x") as [number, number, number];
  const steps = c.has("x_decode") ? c.shape("x_decode")[1]! : 0;
  const cache = createCache(attention, { maxSeqLen: qLen + steps, batch });
  const at = (begin: number, length: number) => ({ batch, cache, positions: positions(c, begin, length) });
  try {
    const prefill = attend(attention, c.floats("x").data, at(0, qLen));
    const decoded = new Float32Array(batch * steps * dModel);
    const tokens = steps ? c.floats("x_decode").data : decoded;
    for (let n = 0; n < steps; n++) {
      const token = new Float32Array(batch * dModel);
      const rowOf = (b: number) => (b * steps + n) * dModel;
      for (let b = 0; b < batch; b++) token.set(tokens.subarray(rowOf(b), rowOf(b) + dModel), b * dModel);
      const y = attend(attention, token, at(qLen + n, 1));
      for (let b = 0; b < batch; b++) decoded.set(y.subarray(b * dModel, (b + 1) * dModel), rowOf(b));
    }
    const { key, value } = cache.read();
    return {
      y_prefill: { data: prefill, shape: [batch, qLen, dModel] },
      y_decode: { data: decoded, shape: [batch, steps, dModel] },
      k_cache: key,
      v_cache: value,
    };
  } finally {
    cache.release();
    attention.release();
  }
}

/** Key and value heads of a group become their mean; the layer runs before and after. */
export function mhaToGqa(kernels: Kernels, c: Case): Outcome {
  const before = decoderConfig(c, c.someNumber("num_kv_heads_before", "num_heads"));
  const numKvHeads = c.someNumber("num_kv_heads_after");
  const converted = convertToGqa(decoderWeights(c), before, numKvHeads);
  const { wk, wv, bk, bv } = converted.weights;
  const vector = (data: Float32Array | undefined): Values | undefined => data && { data, shape: [data.length] };
  const layer = (config: AttentionConfig, weights: AttentionWeights): Values => {
    const attention: Attention = createAttention(kernels, config, weights);
    try {
      const x = c.floats("x");
      const [batch, qLen] = x.shape as [number, number];
      return { data: attend(attention, x.data, { batch, positions: positions(c, 0, qLen) }), shape: x.shape };
    } finally {
      attention.release();
    }
  };
  return {
    outputs: {
      "gqa.k_proj.weight": wk!,
      "gqa.v_proj.weight": wv!,
      ...(bk && { "gqa.k_proj.bias": vector(bk)! }),
      ...(bv && { "gqa.v_proj.bias": vector(bv)! }),
      y_mha: layer(before, decoderWeights(c)),
      y_gqa: layer({ ...before, numKvHeads }, converted.weights),
    },
  };
}

interface StoredRope {
  readonly style: "half" | "interleaved";
  readonly theta: number;
  readonly rotary_dim: number;
}

/** Positions only turn queries and keys; the cache counts from 0 whatever the first token's position is. */
export function positions(c: Case, begin: number, length: number): number[] | undefined {
  if (!c.entry.attributes.rope) return undefined;
  const first = (c.number("position_offset") ?? 0) + begin;
  return Array.from({ length }, (_, i) => first + i);
}

export function decoderConfig(c: Case, numKvHeads: number): AttentionConfig {
  const rope = (c.entry.attributes.rope ?? undefined) as StoredRope | undefined;
  const norm = c.text("qk_norm");
  const tokens = c.number("sliding_window");
  return {
    dModel: c.shape("x").at(-1)!,
    numHeads: c.someNumber("num_heads"),
    numKvHeads,
    headDim: c.number("head_dim"),
    valueDim: c.number("v_head_dim"),
    causal: c.flag("is_causal", true),
    // A sliding window of W tokens counts the query's own; `left` does not.
    window: tokens === undefined ? undefined : { left: tokens - 1 },
    scale: c.number("scale"),
    softcap: c.number("softcap") || undefined,
    alibi: c.floatsIfAny("alibi_slopes")?.data,
    rope: rope && { theta: rope.theta, pairing: rope.style, dim: rope.rotary_dim },
    qkNorm: norm === "" ? undefined : { kind: norm === "full" ? "full" : "per-head", eps: c.number("norm_eps") },
  };
}

/** Weights of a case, whose matrices are as `matrix` reads them. */
export function decoderWeights(
  c: Case,
  matrix: (name: "q" | "k" | "v" | "o") => WeightTensor = (name) => c.floats(`${name}_proj.weight`),
): AttentionWeights {
  const bias = (name: string): Float32Array | undefined => c.floatsIfAny(`${name}_proj.bias`)?.data;
  return {
    layout: "out-in",
    wq: matrix("q"),
    wk: matrix("k"),
    wv: matrix("v"),
    wo: matrix("o"),
    bq: bias("q"),
    bk: bias("k"),
    bv: bias("v"),
    bo: bias("o"),
    qNorm: c.floatsIfAny("q_norm.weight")?.data,
    kNorm: c.floatsIfAny("k_norm.weight")?.data,
    sinkLogits: c.floatsIfAny("sinks")?.data,
  };
}
