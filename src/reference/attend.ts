import type { CheckedConfig } from "../layers/attention/config.ts";

type Floats = ArrayLike<number>;

/** Matrices [out, in] row-major and vectors of one attention layer. */
export interface ReferenceWeights {
  /** [numHeads·headDim, dModel] */
  readonly wq: ArrayLike<number>;
  /** [numKvHeads·headDim, kdim] */
  readonly wk: ArrayLike<number>;
  /** [numKvHeads·valueDim, vdim] */
  readonly wv: ArrayLike<number>;
  /** [dModel, numHeads·valueDim] */
  readonly wo: ArrayLike<number>;
  /** [numHeads·headDim] */
  readonly bq?: ArrayLike<number>;
  /** [numKvHeads·headDim] */
  readonly bk?: ArrayLike<number>;
  /** [numKvHeads·valueDim] */
  readonly bv?: ArrayLike<number>;
  /** [dModel] */
  readonly bo?: ArrayLike<number>;
  /** [headDim], or [numHeads·headDim] where the norm is over all heads. */
  readonly qNorm?: ArrayLike<number>;
  /** [headDim], or [numKvHeads·headDim] where the norm is over all heads. */
  readonly kNorm?: ArrayLike<number>;
  /** [numHeads] */
  readonly sinkLogits?: ArrayLike<number>;
  /** One more key, [numKvHeads·headDim], with `biasV`. */
  readonly biasK?: ArrayLike<number>;
  /** Its value, [numKvHeads·valueDim]. */
  readonly biasV?: ArrayLike<number>;
}

/** What a call may say besides x. */
export interface ReferenceOptions {
  /** [kvLen, kdim]; default x. */
  readonly keys?: ArrayLike<number>;
  /** [kvLen, vdim]; default keys. */
  readonly values?: ArrayLike<number>;
  /** How many keys are real; default all. */
  readonly kvLength?: number;
  /** The position of the first query among the keys; default 0. */
  readonly qStart?: number;
  /** RoPE positions of the queries; default 0, 1, … */
  readonly positions?: ArrayLike<number>;
  /** RoPE positions of the keys; default 0, 1, … */
  readonly keyPositions?: ArrayLike<number>;
  /** Whether query t of a head may attend key j; default always. */
  readonly keep?: (head: number, t: number, j: number) => boolean;
  /** What is added to the score of query t of a head and key j; default 0. */
  readonly bias?: (head: number, t: number, j: number) => number;
}

/**
 * One attention layer in float64, from x [qLen, dModel] to y [qLen, dModel] and maps [numHeads, qLen, kvLen + extras]:
 * project, norm, rotate, score, mask, softmax, sum, project, in loops over heads, queries and keys. It shares nothing with the
 * kernels or their twins, and is what they are compared with. Nothing is checked.
 * @param config `config` of an attention, with every default filled in.
 * @example
 * import { createAttention, loadKernels } from "headwise";
 * import { attendReference } from "headwise/reference";
 * const kernels = await loadKernels();
 * const eye = Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0));
 * const square = { data: eye, shape: [4, 4] };
 * const weights = { wq: square, wk: square, wv: square, wo: square };
 * const { config } = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, weights);
 * const { y } = attendReference(config, { wq: eye, wk: eye, wv: eye, wo: eye }, [1, 2, 3, 4]);
 * console.log(y.join(" ")); // 1 2 3 4: one token sees only itself
 * kernels.release();
 */
export function attendReference(
  config: CheckedConfig,
  weights: ReferenceWeights,
  x: ArrayLike<number>,
  options: ReferenceOptions = {},
): {
  /** Output rows [qLen, dModel]. */
  y: Float64Array;
  /** Softmax weights [numHeads, qLen, columns]: the keys, then the key of `biasK` and that of `addZeroAttn`. */
  maps: Float64Array;
} {
  const { dModel, numHeads, numKvHeads, headDim, valueDim, kdim, vdim, scale, softcap, window } = config;
  const { keys = x, values = keys, qStart = 0, keep, bias } = options;
  const { sinkLogits, biasK, biasV } = weights;
  const qLen = x.length / dModel;
  const kvLen = keys.length / kdim;
  const kvLength = options.kvLength ?? kvLen;
  const right = config.causal ? 0 : window.right;

  const q = project(x, weights.wq, weights.bq, dModel, numHeads * headDim);
  const k = project(keys, weights.wk, weights.bk, kdim, numKvHeads * headDim);
  const v = project(values, weights.wv, weights.bv, vdim, numKvHeads * valueDim);
  if (config.qkNorm) {
    norm(q, weights.qNorm!, config.qkNorm);
    norm(k, weights.kNorm!, config.qkNorm);
  }
  if (config.rope) {
    rotate(q, options.positions, numHeads, headDim, config.rope);
    rotate(k, options.keyPositions, numKvHeads, headDim, config.rope);
  }

  const columns = kvLen + (biasK ? 1 : 0) + (config.addZeroAttn ? 1 : 0);
  const maps = new Float64Array(numHeads * qLen * columns);
  const heads = new Float64Array(qLen * numHeads * valueDim);
  for (let h = 0; h < numHeads; h++) {
    const kvHead = Math.floor(h / (numHeads / numKvHeads));
    for (let t = 0; t < qLen; t++) {
      const p = qStart + t;
      const attended: { column: number; score: number; value: (c: number) => number }[] = [];
      const score = (key: ArrayLike<number>, at: number) => {
        let dot = 0;
        for (let d = 0; d < headDim; d++) dot += q[(t * numHeads + h) * headDim + d]! * key[at + d]!;
        return softcap === 0 ? scale * dot : softcap * Math.tanh((scale * dot) / softcap);
      };
      for (let j = 0; j < kvLength; j++) {
        const added = bias ? bias(h, t, j) : 0;
        if (j < p - window.left || j > p + right || keep?.(h, t, j) === false || added === -Infinity) continue;
        const distance = config.slopes ? config.slopes[h]! * Math.abs(p - j) : 0;
        const key = (j * numKvHeads + kvHead) * headDim;
        const value = (c: number) => v[(j * numKvHeads + kvHead) * valueDim + c]!;
        attended.push({ column: j, score: score(k, key) - distance + added, value });
      }
      if (biasK) {
        const value = (c: number) => biasV![kvHead * valueDim + c]!;
        attended.push({ column: kvLen, score: score(biasK, kvHead * headDim), value });
      }
      if (config.addZeroAttn) attended.push({ column: columns - 1, score: 0, value: () => 0 });

      const sink = sinkLogits ? sinkLogits[h]! : -Infinity;
      const largest = attended.reduce((most, one) => Math.max(most, one.score), sink);
      let sum = sink === -Infinity ? 0 : Math.exp(sink - largest);
      for (const one of attended) sum += Math.exp(one.score - largest);
      for (const one of attended) {
        const weight = Math.exp(one.score - largest) / sum;
        maps[(h * qLen + t) * columns + one.column] = weight;
        for (let c = 0; c < valueDim; c++) heads[(t * numHeads + h) * valueDim + c]! += weight * one.value(c);
      }
    }
  }
  return { y: project(heads, weights.wo, weights.bo, numHeads * valueDim, dModel), maps };
}

/** y[r] = W · x[r] + bias */
export function project(x: Floats, w: Floats, bias: Floats | undefined, width: number, outputs: number): Float64Array {
  return Float64Array.from({ length: (x.length / width) * outputs }, (_, i) => {
    const [r, n] = [Math.floor(i / outputs), i % outputs];
    let sum = bias ? bias[n]! : 0;
    for (let d = 0; d < width; d++) sum += x[r * width + d]! * w[n * width + d]!;
    return sum;
  });
}

/** x / sqrt(mean(x²) + eps) · gain, for runs of gain.length: a head, or all heads of a token. */
function norm(x: Float64Array, gain: Floats, { eps, onePlus }: NonNullable<CheckedConfig["qkNorm"]>): void {
  const n = gain.length;
  for (let at = 0; at < x.length; at += n) {
    const mean = x.subarray(at, at + n).reduce((sum, one) => sum + one * one, 0) / n;
    for (let i = 0; i < n; i++) x[at + i]! *= (gain[i]! + (onePlus ? 1 : 0)) / Math.sqrt(mean + eps);
  }
}

type Rope = NonNullable<CheckedConfig["rope"]>;

/** Rotates every head of x [tokens][heads·headDim] by its token's position; default 0, 1, … */
export function rotate(
  x: Float64Array,
  positions: ArrayLike<number> | undefined,
  heads: number,
  headDim: number,
  rope: Rope,
): void {
  const half = rope.dim / 2;
  for (let at = 0; at < x.length; at += headDim) {
    const t = Math.floor(at / headDim / heads);
    for (let i = 0; i < half; i++) {
      const { radians, amplitude } = turn(rope, i, positions ? positions[t]! : t);
      const from = at + (rope.start ?? 0);
      const [first, second] = rope.pairing === "half" ? [from + i, from + i + half] : [from + 2 * i, from + 2 * i + 1];
      const [a, b] = [x[first]!, x[second]!];
      x[first] = amplitude * (a * Math.cos(radians) - b * Math.sin(radians));
      x[second] = amplitude * (b * Math.cos(radians) + a * Math.sin(radians));
    }
  }
}

/** How far pair i turns at a position, with the scalings as they were published. */
function turn({ theta, dim, scaling }: Rope, i: number, position: number): { radians: number; amplitude: number } {
  const trained = theta ** ((-2 * i) / dim);
  const factor = scaling?.kind === "factors" ? (scaling.factors[i] as number) : (scaling?.factor ?? 1);
  const stretched = trained / factor;
  const mix = (share: number) => position * (share * trained + (1 - share) * stretched);
  const within = (share: number) => Math.min(1, Math.max(0, share));
  switch (scaling?.kind) {
    case undefined:
    case "linear":
    case "factors":
      return { radians: position * stretched, amplitude: 1 };
    case "ntk":
      return { radians: position * (theta * factor ** (dim / (dim - 2))) ** ((-2 * i) / dim), amplitude: 1 };
    case "llama3": {
      const turns = (scaling.originalMaxSeqLen * trained) / (2 * Math.PI);
      const share = (turns - scaling.lowFreqFactor) / (scaling.highFreqFactor - scaling.lowFreqFactor);
      return { radians: mix(within(share)), amplitude: 1 };
    }
    case "yarn": {
      const { originalMaxSeqLen, betaFast = 32, betaSlow = 1, truncate = true } = scaling;
      const pair = (turns: number) =>
        (dim * Math.log(originalMaxSeqLen / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
      const low = Math.max(0, truncate ? Math.floor(pair(betaFast)) : pair(betaFast));
      const high = Math.min(dim - 1, truncate ? Math.ceil(pair(betaSlow)) : pair(betaSlow));
      const grown = (mscale: number) => (factor > 1 ? 0.1 * mscale * Math.log(factor) + 1 : 1);
      const { mscale, mscaleAllDim } = scaling;
      const published = mscale && mscaleAllDim ? grown(mscale) / grown(mscaleAllDim) : grown(1);
      const ramp = within((i - low) / (low === high ? 0.001 : high - low));
      return { radians: mix(1 - ramp), amplitude: scaling.attentionFactor ?? published };
    }
  }
}
