// What the compiler must refuse about handles and weights. `tsc` checks this file; an unused @ts-expect-error fails it.

import {
  type Attention,
  type AttentionWeights,
  attend,
  type Cache,
  createAttention,
  createCache,
  type Kernels,
  type Tensor,
} from "../../../../src/entries/core.ts";
import {
  attendSharded,
  createShardedCache,
  type ShardedAttention,
  type ShardedCache,
} from "../../../../src/entries/shards.ts";

declare const kernels: Kernels;
declare const attention: Attention;
declare const cache: Cache;
declare const sharded: ShardedAttention;
declare const shardedCache: ShardedCache;
declare const x: Float32Array;
declare const matrix: Tensor;

const config = { dModel: 4, numHeads: 2 };
const separate = { wq: matrix, wk: matrix, wv: matrix, wo: matrix };
const fused = { wqkv: matrix, wo: matrix };

export function handles(): void {
  attend(attention, x, { cache });
  // @ts-expect-error a copy of an attention is none
  attend({ ...attention }, x);
  // @ts-expect-error a copy of kernels is none
  createAttention({ ...kernels }, config, separate);
  // @ts-expect-error a copy of a cache is none
  attend(attention, x, { cache: { ...cache } });
  const { config: checked, formats, kind, passes, pageShape, rotary } = attention;
  const literal = {
    kernels,
    config: checked,
    formats,
    kind,
    passes,
    pageShape,
    rotary,
    bytes: 0,
    released: false,
    release() {},
  };
  // @ts-expect-error a literal is no handle
  createCache({ ...literal, [Symbol.dispose]() {} }, { maxSeqLen: 1 });
  // @ts-expect-error a cache is no attention
  attend(cache, x);
  // @ts-expect-error a configuration cannot be changed
  attention.config.causal = true;
  attendSharded(sharded, x, { cache: shardedCache });
  // @ts-expect-error a copy of a sharded attention is none
  createShardedCache({ ...sharded }, { maxSeqLen: 1 });
  // @ts-expect-error a copy of a sharded cache is none
  attendSharded(sharded, x, { cache: { ...shardedCache } });
}

export function weights(): readonly AttentionWeights[] {
  // @ts-expect-error neither wq, wk and wv, nor wqkv
  createAttention(kernels, config, { wo: matrix });
  // @ts-expect-error both
  createAttention(kernels, config, { ...separate, ...fused });
  // @ts-expect-error a bias of wqkv without wqkv
  createAttention(kernels, config, { ...separate, bqkv: x });
  // @ts-expect-error wk is missing
  createAttention(kernels, config, { wq: matrix, wv: matrix, wo: matrix });
  // @ts-expect-error separate biases beside wqkv
  createAttention(kernels, config, { ...fused, bq: x });
  return [separate, fused];
}
