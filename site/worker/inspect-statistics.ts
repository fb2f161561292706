// Statistics of attention in long texts: numbers of each query, without the matrix.

import { type AttentionStatistics, forwardWith } from "headwise/inspect";
import { createSession } from "headwise/models";
import type { Call } from "./call.ts";
import { loadedModel } from "./load.ts";
import { pause } from "./pause.ts";

/** What is measured of each query, in the order of `Measured.values`. */
const MEASURES = ["effectiveKeys", "distance", "firstMass", "lastMass"] as const;

/** Means of what each head does, by place in the text. */
export interface Measured {
  /** [heads of all layers, MEASURES, bins]: means over the queries of a bin. */
  readonly values: Float32Array;
  readonly bins: number;
  readonly tokens: number;
  readonly ms: number;
  /** Bytes that the weights of all heads would take, and those that the session took. */
  readonly matrixBytes: number;
  readonly sessionBytes: number;
}

/** Tokens of a call, between which other tasks run; places in the text that have a mean of their own; the last keys that count as near. */
const [SLICE, BINS, NEAR] = [256, 128, 64];

/** Reads a text, repeated up to a length, and measures all heads. */
export async function measureTask(
  { text, length }: { readonly text: string; readonly length: number },
  { report, signal }: Call,
): Promise<Measured> {
  const { model, tokenizer } = loadedModel();
  const own = tokenizer.encode(text);
  if (own.length === 0) throw new Error("Type a text.");
  const ids = Array.from({ length }, (_, i) => own[i % own.length] as number);
  const bins = Math.min(BINS, length);
  const session = createSession(model, { maxSeqLen: length });
  const begin = performance.now();
  try {
    const sums: Float64Array[] = [];
    for (let at = 0; at < length; at += SLICE) {
      await pause(signal);
      const { statistics } = forwardWith(session, ids.slice(at, at + SLICE), { statistics: { first: 1, last: NEAR } });
      let head = 0;
      for (const layer of statistics) head = addLayer(sums, layer, head, at, { bins, length });
      report({ kind: "progress", done: Math.min(length, at + SLICE), all: length });
    }
    const values = new Float32Array(sums.length * MEASURES.length * bins);
    const counts = new Float64Array(bins);
    for (let i = 0; i < length; i++) counts[Math.floor((i * bins) / length)]!++;
    for (const [i, sum] of sums.entries())
      values.set(
        sum.map((value, at) => value / (counts[at % bins] as number)),
        i * MEASURES.length * bins,
      );
    const matrixBytes = 4 * sums.length * length * length;
    return { values, bins, tokens: length, ms: performance.now() - begin, matrixBytes, sessionBytes: session.bytes };
  } finally {
    session.release();
  }
}

/** Adds a slice of a layer to the sums of its heads, the first of which has number `first`; says which head comes next. */
function addLayer(
  sums: Float64Array[],
  layer: AttentionStatistics,
  first: number,
  at: number,
  { bins, length }: { readonly bins: number; readonly length: number },
): number {
  const [heads = 0, rows = 0] = layer.entropy.shape;
  for (let head = 0; head < heads; head++) {
    sums[first + head] ??= new Float64Array(MEASURES.length * bins);
    const sum = sums[first + head] as Float64Array;
    for (const [m, name] of MEASURES.entries())
      for (let i = 0; i < rows; i++)
        sum[m * bins + Math.floor(((at + i) * bins) / length)]! += layer[name].data[head * rows + i] as number;
  }
  return first + heads;
}
