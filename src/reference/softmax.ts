import type { Reference } from "../wasm/abi.ts";
import { countColumns } from "./scores.ts";

const EXCLUDED = Number.NEGATIVE_INFINITY;

/** out[t, j] = exp(scores[t, j]) / (exp(sink) + Σ_i exp(scores[t, i])) for rows t in begin..end; 0 for a score of -Infinity. */
export const masked_softmax_f32: Reference["masked_softmax_f32"] = (out, scores, shape, head, begin, end) => {
  const columns = countColumns(shape);
  const sink = shape.sinks ? shape.sinks[head]! : EXCLUDED;
  for (let t = begin; t < end; t++) {
    const row = Float64Array.from(scores.subarray(t * columns, (t + 1) * columns));
    const largest = row.reduce((a, b) => Math.max(a, b), sink);
    let sum = sink === EXCLUDED ? 0 : Math.exp(sink - largest);
    for (const score of row) if (score !== EXCLUDED) sum += Math.exp(score - largest);
    for (const [j, score] of row.entries())
      out[t * columns + j] = score === EXCLUDED ? 0 : Math.exp(score - largest) / sum;
  }
};
