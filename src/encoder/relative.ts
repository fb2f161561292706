// Biases by relative position: distances share the entries of a table of buckets, near ones have entries of their own.

import type { Model } from "../decoder/model.ts";
import type { RelativeTable } from "../forward/both-ways.ts";
import type { RelativeBias } from "../models/decoder/spec.ts";
import { ln } from "../util/math.ts";
import { aligned } from "../wasm/memory.ts";

/** What kernels may read behind a row. */
const BEHIND = 8;

/** Entries of a row: of keys up to `length` - 1 before the query, and as many after it. */
const strideOf = (length: number) => 2 * length + BEHIND;

const headsOf = ({ spec }: Pick<Model, "spec">) => spec.blocks[0]?.attention.config.numHeads ?? 0;

/** Bytes of the table of a model for sequences of up to `length` tokens; 0 if it has no such bias. */
export const relativeBytes = (model: Pick<Model, "spec">, length: number): number =>
  model.spec.relativeBias ? aligned(4 * headsOf(model) * strideOf(length)) : 0;

/** Writes the table to `at`. Undefined if the model has no such bias. */
export function fillRelative(model: Model, at: number, length: number): RelativeTable | undefined {
  const { relativeBias: spec } = model.spec;
  const { relativeBias: values } = model.weights;
  if (!spec || !values) return undefined;
  const [heads, stride] = [headsOf(model), strideOf(length)];
  const rows = model.kernels.memory.f32(at, heads * stride);
  for (let i = 0; i < stride; i++) {
    const bucket = bucketOf(spec, i - length);
    for (let head = 0; head < heads; head++) rows[head * stride + i] = values[bucket * heads + head] as number;
  }
  return { at, zero: length, stride };
}

/** The bucket of a key `distance` positions after its query. */
export function bucketOf({ buckets, maxDistance, bothWays }: RelativeBias, distance: number): number {
  const count = bothWays ? buckets / 2 : buckets;
  const first = bothWays && distance > 0 ? count : 0;
  const away = bothWays ? Math.abs(distance) : Math.max(0, -distance);
  const exact = Math.floor(count / 2);
  if (away < exact) return first + away;
  // From there on, buckets grow with the distance; in float32, as in PyTorch, because bounds of buckets are not far from integers.
  const share = Math.fround(Math.fround(ln(Math.fround(away / exact))) / Math.fround(ln(maxDistance / exact)));
  return first + Math.min(exact + Math.floor(Math.fround(share * (count - exact))), count - 1);
}
