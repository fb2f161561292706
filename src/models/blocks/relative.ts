// Biases by relative position: distances share the entries of a table of buckets, near ones have entries of their own. Packed, each
// head has a row with an entry for each distance.

import { ln } from "../../base/util/math.ts";
import type { RelativeTable } from "../../layers/attention/heads.ts";
import type { LinearMemory } from "../../wasm/memory.ts";
import { mostTokens } from "../spec/read-spec.ts";
import type { ModelSpec, RelativeBias } from "../spec/spec.ts";

/** What kernels may read behind a row. */
const BEHIND = 8;

const headsOf = ({ blocks }: ModelSpec) => blocks[0]?.attention.config.numHeads ?? 0;

/** Entries of a row: of all keys before a query, its own, and those after it. */
const strideOf = (spec: ModelSpec) => 2 * mostTokens(spec) + BEHIND;

/** Floats of the packed bias of a model; 0 if it has none. */
export const relativeFloats = (spec: ModelSpec): number => (spec.relativeBias ? headsOf(spec) * strideOf(spec) : 0);

/** The packed bias at the address `at`. */
export const relativeTable = (spec: ModelSpec, at: number): RelativeTable => ({
  ...{ at, zero: mostTokens(spec), stride: strideOf(spec) },
});

/** Packs a bias [buckets, heads] at the address `at`. */
export function packRelative(memory: LinearMemory, spec: ModelSpec, values: Float32Array, at: number): void {
  const [heads, bias] = [headsOf(spec), spec.relativeBias as RelativeBias];
  const { stride, zero } = relativeTable(spec, at);
  const rows = memory.f32(at, heads * stride);
  for (let i = 0; i < stride; i++) {
    const bucket = bucketOf(bias, i - zero);
    for (let head = 0; head < heads; head++) rows[head * stride + i] = values[bucket * heads + head] as number;
  }
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
