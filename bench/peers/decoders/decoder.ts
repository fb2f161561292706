// What a peer does in this comparison.

/** A loaded decoder with one sequence. */
export interface Decoder {
  /** Empties the sequence. */
  reset(): void | Promise<void>;
  /** Reads tokens behind those of the sequence, and gives the most probable next one. */
  read(ids: readonly number[]): number | Promise<number>;
  /** The logits behind `ids`, read into an empty sequence. All may differ from the peers' by the same number. */
  logits(ids: readonly number[]): Float32Array | Promise<Float32Array>;
}

/** What a decoder is loaded from. */
export interface LoadRequest {
  /** A folder or file, or in a page its URL. */
  readonly source: string;
  /** The format of the peer, with which it is loaded. */
  readonly format: string;
  /** Tokens of the longest sequence. */
  readonly maxSeqLen: number;
}

export type LoadDecoder = (request: LoadRequest) => Promise<Decoder>;

/** The index of the largest value. */
export function largestOf(values: Float32Array): number {
  let largest = 0;
  for (let i = 1; i < values.length; i++) if (values[i]! > values[largest]!) largest = i;
  return largest;
}
