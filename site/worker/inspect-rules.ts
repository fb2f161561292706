// A layer under other rules than its own: which tokens its heads see, and how many heads of keys and values they share.

import { scaledDotProductAttention } from "headwise";
import type { AttentionStage, Edit, StageName, Tensor } from "headwise/inspect";
import type { Model } from "headwise/models";
import { type TraceRun, traceLayer } from "./inspect-trace.ts";

/** Rules of a layer, on top of its own. */
export interface Rules {
  readonly layer: number;
  /** Whether later tokens are hidden. */
  readonly causal: boolean;
  /** Tokens that a query sees to a side, its own among them; 0 for all. */
  readonly window: number;
  /** The first token, a sink of many heads: seen as any other, also from outside of the window, or by itself only. */
  readonly first: "seen" | "kept" | "hidden";
  /** Heads of keys and values, a divisor of those that the layer has; 0 for all of them. */
  readonly kvHeads: number;
}

/** What a layer does under other rules. */
export interface RuledLayer {
  /** [heads, tokens, tokens]. */
  readonly weights: Tensor;
  /** Puts what its heads then give in the place of what they gave. */
  readonly edit: Edit;
}

/** Stages of layers whose attention other rules cannot repeat. */
const REFUSED: Readonly<Partial<Record<StageName, string>>> = {
  softcap: "limits its scores",
  extend: "has keys that belong to no token",
  absorb: "has latent attention, whose heads have no keys",
};

/** Runs a layer's attention on the queries, keys and values that the model has there. */
export function ruledLayer(model: Model, ids: readonly number[], rules: Rules, run: TraceRun): RuledLayer {
  const { layer } = rules;
  const { stages } = traceLayer(model, ids, layer, run);
  const of = (name: StageName) => stages.find((stage) => stage.name === name)?.tensors;
  const refuse = (what: string): never => {
    throw new Error(`Layer ${layer} ${what}: the switches of rules do not apply to it.`);
  };
  for (const [name, what] of Object.entries(REFUSED)) if (of(name as StageName)) refuse(what);
  if (rules.kvHeads > 0 && of("norm")) refuse("normalises its keys, so that their mean is not that of weights");
  const n = ids.length;
  const { q, k, v } = { ...of("split"), ...of("norm"), ...of("rotate") } as Record<"q" | "k" | "v", Tensor>;
  const [scores, masked, weights] = (["scores", "mask", "softmax"] as const).map(
    (name) => Object.values(of(name) as AttentionStage["tensors"])[0] as Tensor,
  ) as [Tensor, Tensor, Tensor];
  if ((weights.data[0] as number) < 0.999) refuse("has sinks of its own"); // the first token sees only itself
  const { output, scores: found } = scaledDotProductAttention(
    model.kernels,
    q,
    meanHeads(k, rules),
    meanHeads(v, rules),
    {
      scale: scaleOf(model, q, k, scores),
      ...(n > 1 && { alibi: slopesOf(scores, masked, n) }),
      keep: { data: keptBy(rules, masked, n), shape: [n, n] },
      scores: "weights",
    },
  );
  return { weights: found as Tensor, edit: { at: "z", layer, set: besideEachOther(output, n) } };
}

/** Which keys each query sees, [tokens, tokens]: what the layer's own rules allow and, without causal order, what comes later. */
function keptBy({ causal, window, first }: Rules, { data }: Tensor, n: number): Uint8Array {
  const kept = new Uint8Array(n * n);
  for (let i = 0; i < n; i++)
    for (let j = 0; j < n; j++) {
      const isOwn = j > i ? !causal : data[i * n + j] !== Number.NEGATIVE_INFINITY;
      const isNear = window === 0 || Math.abs(i - j) < window;
      const isSeen = j === 0 && first !== "seen" ? first === "kept" || i === 0 : isNear;
      kept[i * n + j] = Number(isOwn && isSeen);
    }
  return kept;
}

/** The factor on q·k, from the largest score: the trace has scores with it, and q and k without. */
function scaleOf({ kernels }: Model, q: Tensor, k: Tensor, { data }: Tensor): number {
  const plain = scaledDotProductAttention(kernels, q, k, k, { scale: 1, scores: "raw" }).scores as Tensor;
  const largest = data.reduce((best, score, i) => (Math.abs(score) > Math.abs(data[best] as number) ? i : best), 0);
  return data[largest] === 0 ? 1 : (data[largest] as number) / (plain.data[largest] as number);
}

/** How much ALiBi takes from a score for each token of distance, by head; 0 in layers without it. */
const slopesOf = ({ data }: Tensor, masked: Tensor, n: number): Float32Array =>
  Float32Array.from({ length: data.length / (n * n) }, (_, head) => {
    const at = head * n * n + n; // the second token's score for the first one
    return masked.data[at] === Number.NEGATIVE_INFINITY ? 0 : (data[at] as number) - (masked.data[at] as number);
  });

/** Means of neighbouring heads [heads, tokens, dim]: as many as there should be. */
function meanHeads({ data, shape }: Tensor, { kvHeads }: Rules): Tensor {
  const [heads, n, dim] = shape as [number, number, number];
  if (kvHeads === 0 || heads % kvHeads !== 0) return { data, shape };
  const [group, size] = [heads / kvHeads, n * dim];
  const means = new Float32Array(kvHeads * size);
  for (let head = 0; head < heads; head++)
    for (let i = 0; i < size; i++)
      means[Math.floor(head / group) * size + i]! += (data[head * size + i] as number) / group;
  return { data: means, shape: [kvHeads, n, dim] };
}

/** [heads, tokens, dim] -> [tokens, heads · dim]. */
function besideEachOther({ data, shape }: Tensor, n: number): Tensor {
  const [heads, , dim] = shape as [number, number, number];
  const rows = new Float32Array(data.length);
  for (let head = 0; head < heads; head++)
    for (let i = 0; i < n; i++)
      rows.set(data.subarray((head * n + i) * dim, (head * n + i + 1) * dim), (i * heads + head) * dim);
  return { data: rows, shape: [n, heads * dim] };
}
