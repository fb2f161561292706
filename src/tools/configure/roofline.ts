// How fast a machine can be at most, and what that makes of a model: the roofline (Williams 2009).

import { PAGE } from "../../../assembly/layout.ts";
import { ln } from "../../base/util/math.ts";
import { FORMATS, type WeightFormat, wholePanels } from "../../layers/linear/formats.ts";

import type { Candidate, Shape } from "./choose.ts";

// What a token costs in a decoder, counted from its layers.

/** The work of a token after `seqLen` others, and of a prompt of that many. */
export function workOf({ shape, weights, parameters, memory }: Candidate, seqLen: number): TokenWork {
  const head = shape.vocabSize * shape.dModel;
  const block = 1024;
  const weightBytes =
    (FORMATS[weights].panelBytes(block) + FORMATS[weights].sumBytes(block)) / (wholePanels(1) * block);
  const pages = Math.ceil(seqLen / PAGE) * PAGE;
  return {
    ...{ weights, layers: shape.layers, weightBytes, head },
    matrices: parameters - head * (shape.tied ? 1 : 2),
    pairFlops: shape.layers * pairFlops(shape),
    elements: shape.layers * (4 * shape.dModel + shape.mlpDim),
    pairs: (seqLen * (seqLen + 1)) / 2,
    cacheBytes: (memory.sessions * seqLen) / pages,
  };
}

/** Operations of a layer for a query and a key: two for each number of keys, and of values. Latents are both. */
function pairFlops({ numHeads, headDim, projection }: Shape): number {
  if (projection.kind !== "mla") return 4 * numHeads * headDim;
  const { kvLoraRank, ropeDim } = projection;
  return 2 * numHeads * (2 * kvLoraRank + ropeDim);
}

// How fast a machine can be at most, and what that makes of a model: the roofline (Williams 2009). A product of many rows is
// bounded by arithmetic, that of one row by reading the weights.

/** The speed of one thread for matrices of a format. */
export interface FormatSpeed {
  /** Floating-point operations per second with many rows. */
  readonly flops: number;
  /**
   * Bytes of weights per second with one row, by the bytes of all weights that are read in turns, ascending: what stays in a cache
   * of the processor is read faster. Between two sizes, it changes with the logarithm of the size.
   */
  readonly bytes: readonly (readonly [size: number, perSecond: number])[];
}

/** What a machine reaches on one thread. */
export interface Roofline {
  /** Floating-point operations per second of a loop that does nothing else. */
  readonly flops: number;
  /** Bytes per second of a loop that does nothing but read memory. */
  readonly bytes: number;
  /** What kernels reach of that, by format of the weights. Without one, `flops` and `bytes` themselves are the bounds. */
  readonly weights?: Readonly<Partial<Record<WeightFormat, FormatSpeed>>> | undefined;
  /** The same of attention: operations per second in a prompt, and of one token after it. */
  readonly attention?:
    | {
        /** Operations per second in a prompt. */
        readonly prompt: number;
        /** Operations per second of one token. */
        readonly token: number;
      }
    | undefined;
  /** What a token takes besides matrices and attention. Default nothing. */
  readonly other?: OtherCosts | undefined;
}

/** What a token takes besides matrices and attention, in seconds. */
export interface OtherCosts {
  /** Of one token: each layer, by calls of kernels and what the host does between them. */
  readonly layer: number;
  /** Of one token: a pass besides its layers. */
  readonly pass: number;
  /** Of each token of a prompt: each layer, by rotation, the cache and what the host does. */
  readonly row: number;
  /** Of an element of a row, for each time that a norm, the residual or the activation of an MLP works on it. */
  readonly element: number;
}

/** The speed of a model. */
export interface Speed {
  /** Tokens per second of a prompt of so many tokens as the sequence has. */
  readonly prefillTokensPerSecond: number;
  /** Tokens per second, one at a time, after such a prompt. */
  readonly decodeTokensPerSecond: number;
}

/** What a token costs in a model. */
interface TokenWork {
  readonly weights: WeightFormat;
  readonly layers: number;
  /** Weights of the matrices that a token is multiplied by, besides those of the head. */
  readonly matrices: number;
  /** Weights of the head, whose product only the last token of a prompt needs. */
  readonly head: number;
  /** Bytes of a weight in its format, scales and sums among them. */
  readonly weightBytes: number;
  /** Operations of attention for each pair of a query and a key, in all layers. */
  readonly pairFlops: number;
  /** Bytes of the caches at the end of the sequence. */
  readonly cacheBytes: number;
  /** Pairs of a query and a key in a prompt. */
  readonly pairs: number;
  /** Elements that norms, residuals and activations work on. */
  readonly elements: number;
}

const NOTHING: OtherCosts = { layer: 0, pass: 0, row: 0, element: 0 };

/** Milliseconds of a prompt of `tokens` tokens, and of one token after it. */
export function predictMs(work: TokenWork, roofline: Roofline, tokens: number): { prefill: number; decode: number } {
  const { weights, layers, matrices, head, weightBytes, pairFlops, pairs, cacheBytes, elements } = work;
  const format = roofline.weights?.[weights];
  const { attention = { prompt: roofline.flops, token: roofline.flops }, other = NOTHING } = roofline;
  const size = (matrices + head) * weightBytes;
  // Weights and caches are read in turns.
  const perSecond = format ? bytesAt(format.bytes, size + cacheBytes) : roofline.bytes;
  const headSeconds = (head * weightBytes) / perSecond;
  const products = (2 * matrices * tokens) / (format?.flops ?? roofline.flops);
  const rows = tokens * (layers * other.row + elements * other.element);
  const prefill = products + (pairFlops * pairs) / attention.prompt + rows + headSeconds + other.pass;
  const caches = Math.max(cacheBytes / perSecond, (pairFlops * tokens) / attention.token);
  const decode = size / perSecond + caches + layers * other.layer + elements * other.element + other.pass;
  return { prefill: 1000 * prefill, decode: 1000 * decode };
}

/** The speed that follows. */
export function predictSpeed(work: TokenWork, roofline: Roofline, tokens: number): Speed {
  const { prefill, decode } = predictMs(work, roofline, tokens);
  return { prefillTokensPerSecond: (1000 * tokens) / prefill, decodeTokensPerSecond: 1000 / decode };
}

/** The bytes per second at a size. */
function bytesAt(curve: FormatSpeed["bytes"], size: number): number {
  const above = curve.findIndex(([at]) => at >= size);
  const [, last = 0] = curve.at(-1) ?? [];
  if (above < 0) return last;
  const [high, fast] = curve[above] as readonly [number, number];
  const [low, slow] = curve[above - 1] ?? [high, fast];
  return low === high ? fast : slow + ((fast - slow) * (ln(size) - ln(low))) / (ln(high) - ln(low));
}
