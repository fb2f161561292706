// Six ways to encode the positions of tokens, computed by the kernels of the package. The head is neutral: its queries and
// keys are the contents themselves, without projections.

import {
  alibiSlopes,
  applyRope,
  type Kernels,
  type RopeScaling,
  ropeTables,
  scaledDotProductAttention,
  type Tensor,
} from "headwise";
import { normals } from "../worker/random.ts";

/** Floats of a query or key. */
export const HEAD_DIM = 64;
/** The longest context, in tokens. */
export const MOST_CONTEXT = 192;
/** Heads whose ALiBi slopes the page offers. */
export const ALIBI_HEADS = 8;

export const SCALINGS = ["linear", "ntk", "dynamic", "yarn", "llama3", "longrope"] as const;
export type Scaling = (typeof SCALINGS)[number];

/** What one can choose. Lengths are in tokens. */
export interface Setting {
  /** "same": tokens differ by their positions only. "random": each query and each key is random. */
  readonly content: "same" | "random";
  readonly seed: number;
  readonly trained: number;
  readonly context: number;
  /** Base of the frequencies of RoPE and of sinusoidal vectors. */
  readonly base: number;
  readonly scaling: Scaling;
  readonly factor: number;
  /** Which of 8 heads has its ALiBi slope, from 1. */
  readonly head: number;
}

/** The fields that all schemes depend on. */
const CONTENT = ["content", "seed", "context"] as const;

/** The schemes, and the fields that each depends on. */
export const SCHEMES = {
  sinusoidal: [...CONTENT, "base"],
  learned: [...CONTENT, "trained"],
  rope: [...CONTENT, "base"],
  scaled: [...CONTENT, "base", "scaling", "factor", "trained"],
  alibi: [...CONTENT, "head"],
  nope: CONTENT,
} as const satisfies Readonly<Record<string, readonly (keyof Setting)[]>>;
export type Scheme = keyof typeof SCHEMES;

/** What a head does with the first `length` tokens. */
export interface Pattern {
  /** Tokens that can be computed: all of the context, unless positions of a table run out. */
  readonly length: number;
  /** After the softmax, [length, length]. */
  readonly weights: Float32Array;
  /** Before it, -Infinity where a key comes later than the query. */
  readonly scores: Float32Array;
}

/**
 * The scaling that a choice stands for, with the usual bounds: of "dynamic" the factor of this context, and of LongRoPE, whose
 * factors are found by search for each model, a list made up for this page. It keeps the fastest pairs and stretches the
 * slower half by `factor`.
 */
export function scalingOf({ scaling, factor, trained, context }: Setting): RopeScaling {
  const originalMaxSeqLen = trained;
  switch (scaling) {
    case "linear":
    case "ntk":
      return { kind: scaling, factor };
    case "dynamic":
      return { kind: "ntk", factor: Math.max(1, (factor * context) / trained - (factor - 1)) };
    case "yarn":
      return { kind: "yarn", factor, originalMaxSeqLen };
    case "llama3":
      return { kind: "llama3", factor, lowFreqFactor: 1, highFreqFactor: 4, originalMaxSeqLen };
    case "longrope": {
      const share = (i: number) => Math.min(1, (4 * i) / HEAD_DIM) ** 2;
      const factors = Float32Array.from({ length: HEAD_DIM / 2 }, (_, i) => 1 + (factor - 1) * share(i));
      return { kind: "factors", factors, attentionFactor: Math.sqrt(1 + Math.log(factor) / Math.log(trained)) };
    }
  }
}

const rowsOf = (data: Float32Array): Tensor => ({ data, shape: [1, 1, data.length / HEAD_DIM, HEAD_DIM] });
const upTo = (length: number): number[] => Array.from({ length }, (_, i) => i);

const drawn = new Map<number, Float32Array>();

/** The first rows of what a seed gives, which are the same whatever their number: drawn once. */
function randomRows(length: number, seed: number): Float32Array {
  const floats = drawn.get(seed) ?? normals(MOST_CONTEXT * HEAD_DIM, seed);
  if (drawn.size > 8) drawn.clear();
  drawn.set(seed, floats);
  return floats.subarray(0, length * HEAD_DIM);
}

/** Runs a scheme. */
export function runScheme(kernels: Kernels, scheme: Scheme, setting: Setting): Pattern {
  const { content, seed, context, trained, head } = setting;
  const length = scheme === "learned" ? Math.min(context, trained) : context;
  const isAdded = scheme === "sinusoidal" || scheme === "learned";
  const contents = (which: number): Float32Array =>
    content === "random"
      ? randomRows(length, 3 * seed + which)
      : new Float32Array(length * HEAD_DIM).fill(isAdded ? 0 : 1);
  const place = (rows: Float32Array): Tensor => {
    if (isAdded) return rowsOf(added(rows, vectors(scheme, setting, length)));
    if (scheme === "rope" || scheme === "scaled") return rotated(kernels, rows, scheme, setting);
    return rowsOf(rows);
  };
  const [q, k] = [place(contents(0)), place(contents(1))];
  const v: Tensor = { data: new Float32Array(length), shape: [1, 1, length, 1] };
  const slopes = scheme === "alibi" ? { alibi: alibiSlopes(ALIBI_HEADS).slice(head - 1, head) } : {};
  const run = (scores: "weights" | "masked") =>
    scaledDotProductAttention(kernels, q, k, v, { causal: true, scores, ...slopes }).scores?.data as Float32Array;
  return { length, weights: run("weights"), scores: run("masked") };
}

/** The vectors [length, HEAD_DIM] that are added. */
function vectors(scheme: Scheme, { base, seed }: Setting, length: number): Float32Array {
  // A table as before training: rows of random numbers.
  if (scheme === "learned") return randomRows(length, 3 * seed + 2);
  // Pairs of a sine and a cosine of the angles that RoPE rotates by.
  const { cos, sin } = ropeTables({ theta: base, pairing: "half", dim: HEAD_DIM }, upTo(length));
  return Float32Array.from({ length: length * HEAD_DIM }, (_, i) => (i % 2 === 0 ? sin : cos).data[i >> 1] as number);
}

const added = (rows: Float32Array, more: Float32Array): Float32Array => rows.map((value, i) => value + more[i]!);

function rotated(kernels: Kernels, rows: Float32Array, scheme: Scheme, setting: Setting): Tensor {
  const tables = ropeTables(ropeOf(scheme, setting), upTo(rows.length / HEAD_DIM));
  return applyRope(kernels, rowsOf(rows), { ...tables, pairing: "half" });
}

function ropeOf(scheme: Scheme, setting: Setting) {
  const rope = { theta: setting.base, pairing: "half", dim: HEAD_DIM } as const;
  return scheme === "scaled" ? { ...rope, scaling: scalingOf(setting) } : rope;
}

/**
 * Pairs, of the 32 that RoPE rotates, that reach angles in the context which training within the trained length has not shown:
 * those that were rotated by less than a full circle there, and are now rotated further. `times`: how much further at most.
 */
export function unseenPairs(
  scheme: "rope" | "scaled",
  setting: Setting,
): { readonly count: number; readonly times: number } {
  const anglesAt = (of: Scheme, tokens: number) => {
    const { cos, sin } = ropeTables(ropeOf(of, setting), [1]);
    return Array.from(cos.data, (each, i) => tokens * Math.atan2(sin.data[i] as number, each));
  };
  const now = anglesAt(scheme, setting.context);
  const times = anglesAt("rope", setting.trained).map((seen, i) =>
    seen < 2 * Math.PI ? (now[i] as number) / seen : 0,
  );
  // Tables are float32: what is further by rounding only counts as seen.
  return { count: times.filter((each) => each > 1 + 1e-5).length, times: Math.max(1, ...times) };
}

/** The mean score at each distance, over all queries that have a key there. */
export function decay({ length, scores }: Pattern): number[] {
  return upTo(length).map((distance) => {
    let sum = 0;
    for (let query = distance; query < length; query++) sum += scores[query * length + query - distance] as number;
    return sum / (length - distance);
  });
}

/** Of the last token: how many keys, from itself back, have half of its weight, and how much lies `trained` tokens or more back. */
export function reach({ length, weights }: Pattern, trained: number): { readonly half: number; readonly far: number } {
  const row = weights.subarray((length - 1) * length);
  let [half, sum, far] = [0, 0, 0];
  for (let key = length - 1; key >= 0; key--) {
    const weight = row[key] as number;
    if (sum < 0.5) half++;
    sum += weight;
    if (length - 1 - key >= trained) far += weight;
  }
  return { half, far };
}

/** A digest of the bits of all weights, by which two devices can be compared: FNV-1a, a word at a time. */
export function digest(patterns: readonly Pattern[]): string {
  let hash = 0x811c9dc5;
  for (const { weights } of patterns)
    for (const word of new Uint32Array(weights.buffer, weights.byteOffset, weights.length))
      hash = Math.imul(hash ^ word, 0x01000193);
  return (hash >>> 0).toString(16).padStart(8, "0");
}
