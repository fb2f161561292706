import type { CheckedLatentConfig } from "../../src/layers/latent/config.ts";
import { project, rotate } from "../../src/reference/attend.ts";

type Floats = ArrayLike<number>;

/** Matrices [out, in] row-major and vectors of one layer of latent attention, with the names of LatentWeights. */
export interface ReferenceLatentWeights {
  readonly wq?: Floats;
  readonly wqDown?: Floats;
  readonly qNorm?: Floats;
  readonly wqUp?: Floats;
  readonly wkvDown: Floats;
  readonly kvNorm?: Floats;
  readonly wkvUp: Floats;
  readonly wo: Floats;
  readonly bq?: Floats;
  readonly bqDown?: Floats;
  readonly bkvDown?: Floats;
  readonly bo?: Floats;
}

/** What a call may say besides x. */
export interface ReferenceLatentOptions {
  /** Which of the two sums is taken, which are equal but for rounding. Default "absorbed". */
  readonly path?: "absorbed" | "expanded";
  /** How many keys are real; default all. */
  readonly kvLength?: number;
  /** RoPE positions; default 0, 1, … */
  readonly positions?: Floats;
  readonly keep?: (head: number, t: number, j: number) => boolean;
  readonly bias?: (head: number, t: number, j: number) => number;
}

/** y [len, dModel], maps [numHeads, len, len], and what both paths start from. */
export interface ReferenceLatentResult {
  readonly y: Float64Array;
  readonly maps: Float64Array;
  /** [len, numHeads, nopeDim + ropeDim], rotated. */
  readonly queries: Float64Array;
  /** [len, kvLoraRank], normalised. */
  readonly latents: Float64Array;
  /** [len, ropeDim]. */
  readonly rotated: Float64Array;
}

/**
 * One layer of latent attention in float64, from x [len, dModel]. It shares nothing with the kernels or their twins.
 *
 * A head's key is (W_uk · c, r) and its value W_uv · c, for the latent c and the rotated key r of a token. "expanded" computes
 * them. "absorbed" computes q · (W_uk · c) as (W_ukᵀ · q) · c, and W_uv · Σ w·c for Σ w·(W_uv · c).
 */
export function attendLatentReference(
  config: CheckedLatentConfig,
  weights: ReferenceLatentWeights,
  x: Floats,
  { path = "absorbed", positions, keep, bias, ...options }: ReferenceLatentOptions = {},
): ReferenceLatentResult {
  const { dModel, numHeads, headDim, nopeDim, ropeDim, valueDim, kvLoraRank: rank, qLoraRank } = config;
  const { scale, softcap, causal, rope, normEps } = config;
  const len = x.length / dModel;
  const { kvLength = len } = options;

  let queriesFrom = x;
  if (qLoraRank > 0) {
    const down = project(x, weights.wqDown!, weights.bqDown, dModel, qLoraRank);
    queriesFrom = norm(down, weights.qNorm, normEps, qLoraRank);
  }
  const wq = qLoraRank > 0 ? weights.wqUp! : weights.wq!;
  const queries = project(queriesFrom, wq, weights.bq, qLoraRank || dModel, numHeads * headDim);
  const kv = project(x, weights.wkvDown, weights.bkvDown, dModel, rank + ropeDim);
  const part = (from: number, to: number) =>
    kv.filter((_, i) => i % (rank + ropeDim) >= from && i % (rank + ropeDim) < to);
  const latents = norm(part(0, rank), weights.kvNorm, normEps, rank);
  const rotated = part(rank, rank + ropeDim);
  if (rope) {
    rotate(queries, positions, numHeads, headDim, rope);
    rotate(rotated, positions, 1, ropeDim, { ...rope, start: 0 });
  }

  const maps = new Float64Array(numHeads * len * len);
  const heads = new Float64Array(len * numHeads * valueDim);
  for (let h = 0; h < numHeads; h++) {
    // W_uk and W_uv of a head, [nopeDim, rank] and [valueDim, rank].
    const up = (row: number, i: number) => weights.wkvUp[(h * (nopeDim + valueDim) + row) * rank + i]!;
    const uk = Float64Array.from({ length: nopeDim * rank }, (_, i) => up(Math.floor(i / rank), i % rank));
    const uv = Float64Array.from({ length: valueDim * rank }, (_, i) => up(nopeDim + Math.floor(i / rank), i % rank));
    const keys = path === "expanded" ? project(latents, uk, undefined, rank, nopeDim) : latents;
    const values = path === "expanded" ? project(latents, uv, undefined, rank, valueDim) : latents;
    const [keyDim, sumDim] = path === "expanded" ? [nopeDim, valueDim] : [rank, rank];
    for (let t = 0; t < len; t++) {
      const q = queries.subarray((t * numHeads + h) * headDim, (t * numHeads + h + 1) * headDim);
      const query = path === "expanded" ? q : Float64Array.from({ length: rank }, (_, i) => column(uk, q, i, rank));
      const scores = new Map<number, number>();
      for (let j = 0; j < kvLength; j++) {
        const added = bias ? bias(h, t, j) : 0;
        if ((causal && j > t) || keep?.(h, t, j) === false || added === -Infinity) continue;
        let dot = 0;
        for (let d = 0; d < keyDim; d++) dot += query[d]! * keys[j * keyDim + d]!;
        for (let d = 0; d < ropeDim; d++) dot += q[nopeDim + d]! * rotated[j * ropeDim + d]!;
        scores.set(j, added + (softcap === 0 ? scale * dot : softcap * Math.tanh((scale * dot) / softcap)));
      }
      const most = Math.max(...scores.values());
      let sum = 0;
      for (const score of scores.values()) sum += Math.exp(score - most);
      const total = new Float64Array(sumDim);
      for (const [j, score] of scores) {
        const weight = Math.exp(score - most) / sum;
        maps[(h * len + t) * len + j] = weight;
        for (let d = 0; d < sumDim; d++) total[d]! += weight * values[j * sumDim + d]!;
      }
      const out = path === "expanded" ? total : project(total, uv, undefined, rank, valueDim);
      heads.set(out, (t * numHeads + h) * valueDim);
    }
  }
  return { y: project(heads, weights.wo, weights.bo, numHeads * valueDim, dModel), maps, queries, latents, rotated };
}

/** Column i of a matrix with rows of `rank`, times q. */
function column(w: Floats, q: Floats, i: number, rank: number): number {
  let sum = 0;
  for (let d = 0; d * rank < w.length; d++) sum += w[d * rank + i]! * q[d]!;
  return sum;
}

/** x / sqrt(mean(x²) + eps) · gain for rows of n, or x without a gain. */
function norm(x: Float64Array, gain: Floats | undefined, eps: number, n: number): Float64Array {
  if (!gain) return x;
  return x.map((one, at) => {
    const from = at - (at % n);
    const mean = x.subarray(from, from + n).reduce((sum, each) => sum + each * each, 0) / n;
    return (one * gain[at - from]!) / Math.sqrt(mean + eps);
  });
}
