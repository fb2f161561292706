// Decoders of random weights, to be timed.

import type { CacheFormat } from "../cache/page-layout.ts";
import { forward } from "../decoder/forward.ts";
import { loadModel } from "../decoder/load-model.ts";
import type { Model } from "../decoder/model.ts";
import { createSession } from "../decoder/session.ts";
import { createRandom } from "../diagnostics/random.ts";
import type { Load } from "../diagnostics/timing.ts";
import { writeSafetensors } from "../files/safetensors/safetensors.ts";
import { expectedTensors } from "../models/decoder/check-tensors.ts";
import { readDecoder } from "../models/decoder/read-spec.ts";
import type { Tensor } from "../tensor/tensor.ts";
import type { Kernels } from "../wasm/kernels.ts";
import type { Owned } from "./owned.ts";
import type { Candidate } from "./plan-shape.ts";

/** Entries of the tables of such decoders: so few cost nothing beside a layer. */
export const VOCABULARY = 64;

/** A decoder of a shape, with random weights. */
export function loadRandom(where: string, kernels: Kernels, { config, weights }: Candidate): Promise<Model> {
  const tensors = Object.fromEntries(
    [...expectedTensors(readDecoder(where, config), "model.").required].map(([name, shape]) => [
      name,
      weightsOf(shape),
    ]),
  );
  const files = new Map<string, Uint8Array>([
    ["config.json", new TextEncoder().encode(JSON.stringify(config))],
    ["model.safetensors", writeSafetensors(tensors)],
  ]);
  return loadModel(kernels, (name) => files.get(name), { weights });
}

/** Random weights by which rows keep about their norm, and gains of 1. */
function weightsOf(shape: readonly number[]): Tensor {
  const [outputs = 1, inputs] = shape;
  if (inputs === undefined) return { data: new Float32Array(outputs).fill(1), shape };
  const scale = Math.sqrt(3 / inputs);
  return {
    data: createRandom(outputs)
      .floats(outputs * inputs)
      .map((value) => value * scale),
    shape,
  };
}

/** A load of `tokens` tokens after `past` others, in a session of their own that is as long as the decoder is for. */
export function tokensOf(
  owned: Owned,
  model: Model,
  format: CacheFormat,
  past: number,
  tokens: number,
  flops: number,
): Load {
  const session = owned.add(createSession(model, { format }));
  const ids = (count: number) => Array.from({ length: count }, (_, i) => i % VOCABULARY);
  if (past > 0) forward(session, ids(past), { top: 1 });
  const read = ids(tokens);
  return {
    flops,
    run() {
      forward(session, read, { top: 1 });
      session.truncate(past);
    },
  };
}
