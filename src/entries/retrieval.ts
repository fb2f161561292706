/**
 * Search by vectors of texts: how similar they are, how they are kept in few bytes, and which are most similar to a query. The kernels
 * are those of `headwise/models`.
 * @packageDocumentation
 */

export { HeadwiseError, type HeadwiseErrorCode } from "../base/util/errors.ts";
export type { Ranked, ScoreFunction } from "../retrieval/scores.ts";
export {
  createIndex,
  type PackedVectors,
  packVectors,
  type SearchOptions,
  similarity,
  type VectorFormat,
  type VectorIndex,
} from "../retrieval/search.ts";
