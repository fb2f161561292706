// The stages of a layer, on what attention reads there when the model runs a text.

import { type AttentionStage, type Edit, forwardWith, traceAttention } from "headwise/inspect";
import { createSession, type Model, type SessionOptions } from "headwise/models";

export type CacheFormat = Extract<NonNullable<SessionOptions["format"]>, string>;

/** How the text is run. */
export interface TraceRun {
  readonly edits: readonly Edit[];
  readonly cache: CacheFormat;
}

export interface LayerTrace {
  /** What attention reads, [tokens, dModel]. */
  readonly x: Float32Array;
  readonly stages: readonly AttentionStage[];
}

/** Traces a layer. Its keys and values are those that the layer computed, before a cache of another format rounds them. */
export function traceLayer(
  model: Model,
  ids: readonly number[],
  layer: number,
  { edits, cache }: TraceRun,
): LayerTrace {
  const session = createSession(model, { format: cache });
  try {
    const { captured } = forwardWith(session, ids, { edits, capture: [{ at: "attnIn", layer }] });
    const x = captured[0]?.data as Float32Array;
    return { x, stages: traceAttention({ model, layer }, x) };
  } finally {
    session.release();
  }
}
