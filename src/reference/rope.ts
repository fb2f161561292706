// Rotations of heads.

import type { CheckedConfig } from "../layers/attention/config.ts";
import type { Reference } from "../wasm/abi.ts";

/** (a, b) -> (a·cos - b·sin, b·cos + a·sin) for the ropeDim / 2 pairs of every head of tokens begin..end, in place. */
export const rope_f32: Reference["rope_f32"] = (x, cos, sin, shape, begin, end) => {
  const { numHeads, headDim, ropeDim, interleaved, stride } = shape;
  const half = ropeDim / 2;
  for (let t = begin; t < end; t++)
    for (let h = 0; h < numHeads; h++)
      for (let i = 0; i < half; i++) {
        const head = t * stride + h * headDim;
        const first = head + (interleaved ? 2 * i : i);
        const second = head + (interleaved ? 2 * i + 1 : i + half);
        const a = x[first]!;
        const b = x[second]!;
        const c = cos[t * half + i]!;
        const s = sin[t * half + i]!;
        x[first] = a * c - b * s;
        x[second] = b * c + a * s;
      }
};

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
