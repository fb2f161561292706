// Every entry, in a program that is compiled without the types of any host: no page, no worker and no Node.

import {
  type AttentionConfig,
  type AttentionWeights,
  attendAsync,
  createAttention,
  HeadwiseError,
  loadKernels,
} from "headwise";
import * as core from "headwise/core";
import type { Diagnosis } from "headwise/doctor";
import type {} from "headwise/open-worker";
import { quantized } from "headwise/quantized";
import type { reference } from "headwise/reference";
import type { AttendShardedOptions } from "headwise/shards";
import type {} from "headwise/shards-worker";
import type { ThreadsOptions } from "headwise/threads";
import { openSafetensors, urlSource } from "headwise/weights";
import type {} from "headwise/worker";

export type Others = [Diagnosis, typeof reference, AttendShardedOptions, ThreadsOptions];

export async function run(config: AttentionConfig, weights: AttentionWeights, file: Uint8Array): Promise<number> {
  await core.loadKernels({ module: file }).catch((cause: unknown) => {
    throw new HeadwiseError("NOT_WASM", "loadKernels: module expected wasm, got none", { cause });
  });
  using kernels = await loadKernels({ quantized });
  using attention = createAttention(kernels, config, weights);
  const y: Float32Array = await attendAsync(attention, new Float32Array(config.dModel), { sliceMs: 4 });
  const { tensors } = await openSafetensors(await urlSource("https://example.com/model.safetensors"));
  return y.length + tensors.size;
}
