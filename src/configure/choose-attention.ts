// The variants of attention for a number of heads, from the most to the least cache.

import type { AttentionConfig } from "../attention/config.ts";
import type { LatentConfig } from "../latent/config.ts";
import { countParameters } from "../models/count-parameters.ts";
import { expectEven, expectInt, expectOneOf, expectRecord } from "../util/arguments.ts";

/** The heads of a layer, and the number of those of keys and values if it is given. */
export interface Heads {
  readonly dModel: number;
  readonly numHeads: number;
  readonly headDim: number;
  readonly numKvHeads: number | undefined;
}

/** How queries, keys and values are projected. */
export type Projection =
  | {
      /** Keys and values for each head, for each group of heads, or one for all. */
      readonly kind: "mha" | "gqa" | "mqa";
      /** Heads of keys and values. */
      readonly numKvHeads: number;
    }
  | {
      /** Keys and values of all heads from one latent. */
      readonly kind: "mla";
      /** Floats of a latent. */
      readonly kvLoraRank: number;
      /** Floats of a latent of queries; undefined if they are projected directly. */
      readonly qLoraRank: number | undefined;
      /** Floats of a query or key head without position. */
      readonly nopeDim: number;
      /** Floats with position. */
      readonly ropeDim: number;
      /** Floats of a value head. */
      readonly valueDim: number;
    };

/** A variant of attention. */
export type ProjectionKind = Projection["kind"];
export const PROJECTION_KINDS: readonly ProjectionKind[] = ["mha", "gqa", "mqa", "mla"];

/** Throws unless a value is a variant of attention for so many heads. */
export function expectProjection(where: string, name: string, projection: Projection, numHeads: number): void {
  expectRecord(where, name, projection);
  expectOneOf(where, `${name}.kind`, projection.kind, PROJECTION_KINDS);
  if (projection.kind !== "mla") {
    const { numKvHeads } = projection;
    expectInt(where, `${name}.numKvHeads`, numKvHeads, 1, numHeads);
    if (numHeads % numKvHeads !== 0)
      throw new RangeError(`${where}: ${name}.numKvHeads expected a divisor of ${numHeads} heads, got ${numKvHeads}`);
    return;
  }
  for (const size of ["kvLoraRank", "nopeDim", "valueDim"] as const)
    expectInt(where, `${name}.${size}`, projection[size]);
  expectEven(where, `${name}.ropeDim`, projection.ropeDim);
  if (projection.qLoraRank !== undefined) expectInt(where, `${name}.qLoraRank`, projection.qLoraRank);
}

/** A variant of attention whose latents have `rank` and `dim` floats at most, and whose heads have `dim` besides. */
export function narrowed(projection: Projection, dim: number, rank: number = Infinity): Projection {
  if (projection.kind !== "mla") return projection;
  const { kind, kvLoraRank, qLoraRank, ropeDim } = projection;
  return {
    ...{ kind, kvLoraRank: Math.min(rank, kvLoraRank), ropeDim: Math.min(rank, ropeDim), nopeDim: dim, valueDim: dim },
    qLoraRank: qLoraRank && dim,
  };
}

/** Latents of queries pay from this width on: DeepSeek-V2 has them, the Lite model of 2048 does not. */
const QUERY_LATENTS_FROM = 4096;
/** Heads to a group: four as in Llama 3.1 8B, eight as in Llama 3.1 70B. */
const GROUPS = [4, 8];

/** Latents of DeepSeek-V2 (2.1.4): four heads' worth, half a head's of rotated key, which equals 2.25 groups. */
function latents(dModel: number, headDim: number): Projection {
  return {
    kind: "mla",
    kvLoraRank: 4 * headDim,
    qLoraRank: dModel >= QUERY_LATENTS_FROM ? 12 * headDim : undefined,
    nopeDim: headDim,
    // Even, as pairs of components rotate.
    ropeDim: 2 * Math.ceil(headDim / 4),
    valueDim: headDim,
  };
}

/** Heads whose keys and values are of so many groups. */
function grouped(numHeads: number, numKvHeads: number): Projection {
  return { kind: numKvHeads === numHeads ? "mha" : numKvHeads === 1 ? "mqa" : "gqa", numKvHeads };
}

/** The variants to try, each with less cache than the one before; those of `kind` alone if it is given. */
export function projectionsFor(
  { dModel, numHeads, headDim, numKvHeads }: Heads,
  kind: ProjectionKind | undefined,
): readonly [Projection, ...Projection[]] {
  if (numKvHeads !== undefined && kind !== "mla") return [grouped(numHeads, numKvHeads)];
  const groups = GROUPS.filter((group) => numHeads % group === 0 && numHeads > group);
  const all = [
    grouped(numHeads, numHeads),
    ...groups.map((group) => grouped(numHeads, numHeads / group)),
    latents(dModel, headDim),
    grouped(numHeads, 1),
  ].filter((each) => kind === undefined || each.kind === kind);
  const [first = grouped(numHeads, halfOf(numHeads)), ...rest] = all;
  let least = cachedNumbers(first, headDim);
  const smaller = rest.filter((each) => {
    const numbers = cachedNumbers(each, headDim);
    if (numbers >= least) return false;
    least = numbers;
    return true;
  });
  return [first, ...smaller];
}

/** Groups of two heads where there are neither fours nor eights; one group of an odd number. */
const halfOf = (numHeads: number): number => (numHeads % 2 === 0 ? numHeads / 2 : 1);

/** Numbers of a token in the cache of a layer. */
export function cachedNumbers(projection: Projection, headDim: number): number {
  return projection.kind === "mla" ? projection.kvLoraRank + projection.ropeDim : 2 * projection.numKvHeads * headDim;
}

/** Parameters of a layer's attention. */
export function attentionParameters({ dModel, numHeads, headDim }: Heads, projection: Projection): number {
  const heads: AttentionConfig = { dModel, numHeads, headDim };
  if (projection.kind !== "mla") return countParameters({ ...heads, numKvHeads: projection.numKvHeads }).total;
  const { kvLoraRank, qLoraRank, nopeDim, ropeDim, valueDim } = projection;
  const rope = { theta: 10_000, pairing: "interleaved" } as const;
  const latent: LatentConfig = { dModel, numHeads, kvLoraRank, nopeDim, ropeDim, valueDim, rope };
  return countParameters(qLoraRank === undefined ? latent : { ...latent, qLoraRank }).total;
}
