// attention_f32 one float operation at a time, in the order its contract names: what the kernel must match bit for bit.
// `fused` is how the build's multiply-add rounds: once, or after the product and again after the sum.

import { FORMAT_F16, FORMAT_F32, FORMAT_Q8, LATENT_PAGES, PAGE } from "../../assembly/layout.ts";
import { narrowF16, widenF16 } from "../../src/reference/numbers.ts";
import { attends, type Trial } from "./attention-trial.ts";

const f = Math.fround;
const f32 = new Float32Array(1);
const i32 = new Int32Array(f32.buffer);
const f64 = new Float64Array(1);
const u64 = new BigUint64Array(f64.buffer);

const LOG2_E = Math.LOG2E;
const LARGEST_F32 = (2 - 2 ** -23) * 2 ** 127;
const LN_2 = Math.LN2;

/** The float of bits(z) << 23. */
function power(z: number): number {
  f32[0] = z;
  i32[0] = i32[0]! << 23;
  return f32[0]!;
}

/** a·b + c rounded once: the sum in double is rounded to odd, so that rounding it again to float is exact. */
function fma(a: number, b: number, c: number): number {
  const product = a * b;
  const sum = product + c;
  const back = sum - product;
  const error = product - (sum - back) + (c - back);
  f64[0] = sum;
  if (Number.isFinite(sum) && error !== 0 && (u64[0]! & 1n) === 0n) u64[0]! += error > 0 === sum > 0 ? 1n : -1n;
  return f(f64[0]!);
}

const unfused = (a: number, b: number, c: number) => f(c + f(a * b));

type Mad = typeof fma;

function polynomial(mad: Mad, x: number, highestFirst: readonly number[]): number {
  return highestFirst.slice(1).reduce((sum, k) => mad(sum, x, f(k)), f(highestFirst[0]!));
}

const EX2 = [
  0.0013264727123511728, 0.009671512644822257, 0.055507337434972125, 0.24022242085262402, 0.6931469775989922, 1,
];

function ex2(mad: Mad, t: number): number {
  const clamped = t < -127 ? -127 : t;
  const z = f(clamped + 12583039);
  return f(polynomial(mad, f(clamped - f(z - 12583039)), EX2) * power(z));
}

const EXP = [0.0013814540579915047, 0.00836874544620514, 0.04166838899254799, 0.1666652113199234, 0.4999999403953552];

function exp(mad: Mad, x: number): number {
  const z = mad(x, 1.4426950216293335, 12583039);
  const n = f(z - 12583039);
  const r = mad(n, 0.00021219444170128554, mad(n, -0.693359375, x));
  return f(f(mad(f(r * r), polynomial(mad, r, EXP), r) + 1) * power(z));
}

const TANH = [
  -0.005704987328499556, 0.0206390880048275, -0.05373971536755562, 0.13331441581249237, -0.3333328068256378,
];

function tanh(mad: Mad, x: number): number {
  const size = Math.abs(x) > f(9.1) ? f(9.1) : Math.abs(x);
  const square = f(size * size);
  const near = mad(f(square * size), polynomial(mad, square, TANH), size);
  const far = f(1 - f(2 / f(exp(mad, f(size + size)) + 1)));
  return Math.sign(x) * (size < 0.625 ? near : far);
}

/** One row's running state, as the kernel keeps it. */
class Row {
  m = Number.NEGATIVE_INFINITY;
  readonly sums = [0, 0, 0, 0];
  readonly o: number[];
  readonly mad: Mad;
  constructor(mad: Mad, valueDim: number) {
    this.mad = mad;
    this.o = new Array<number>(valueDim).fill(0);
  }
  get shift(): number {
    return this.m === Number.NEGATIVE_INFINITY ? 0 : this.m;
  }
  /** Makes `top` part of the max. */
  raise(top: number): void {
    const before = this.m;
    this.m = Math.max(before, top);
    const alpha = this.m === before ? 1 : ex2(this.mad, f(before - this.shift));
    for (let i = 0; i < 4; i++) this.sums[i] = f(this.sums[i]! * alpha);
    for (let d = 0; d < this.o.length; d++) this.o[d] = f(this.o[d]! * alpha);
  }
  weight(score: number): number {
    return ex2(this.mad, f(score - this.shift));
  }
}

/** Added to a float32 of up to 2^22 and taken off again, it leaves the nearest integer, the even one of two. */
const ROUND = 1.5 * 2 ** 23;

/** Numbers as integers up to `most` of one scale, as docs/numerics.md says. */
function coded(row: readonly number[], most: number): { integers: number[]; scale: number } {
  const zeros = row.map(() => 0);
  if (!row.every(Number.isFinite)) return { integers: zeros, scale: Number.NaN };
  const largest = Math.max(0, ...row.map(Math.abs));
  if (largest < 2 ** -110) return { integers: zeros, scale: 0 };
  const factor = f(most / largest);
  return { integers: row.map((x) => f(f(f(x * factor) + ROUND) - ROUND)), scale: f(largest / most) };
}

/** A head's key or value as a page of a format keeps it: floats, or integers and their scale. */
function stored(x: Float32Array, at: number, length: number, format: number): { numbers: number[]; scale?: number } {
  const row = Array.from(x.subarray(at, at + length));
  if (format === FORMAT_F32) return { numbers: row };
  if (format === FORMAT_F16) return { numbers: row.map((one) => widenF16(narrowF16(one))) };
  const { integers, scale } = coded(row, format === FORMAT_Q8 ? 127 : 7);
  return { numbers: integers, scale };
}

/** out[:valueDim] of head h of query token t, and the log-sum-exp. */
export function oracleRow(trial: Trial, t: number, h: number, fused: boolean): { out: number[]; lse: number } {
  const { shape, q, k, v } = trial;
  const { headDim, valueDim, numKvHeads } = shape;
  const mad = fused ? fma : unfused;
  const kvHead = Math.floor(h / (shape.numHeads / numKvHeads));
  const cap = shape.softcap > 0;
  const factor = f(cap ? f(shape.scale) / f(shape.softcap) : f(shape.scale) * LOG2_E);
  const qs = Array.from({ length: headDim }, (_, d) => f(q[t * shape.qStride + h * shape.qHeadStride + d]! * factor));
  const capped = (s: number) => (cap ? f(tanh(mad, s) * f(f(shape.softcap) * LOG2_E)) : s);
  const score = (key: (d: number) => number): number => {
    let s = 0;
    for (let d = 0; d < headDim; d++) s = mad(qs[d]!, key(d), s);
    return capped(s);
  };
  // Latents lie along their components, of which a register has four.
  const latentScore = (key: readonly number[]): number => {
    const s = [0, 0, 0, 0] as [number, number, number, number];
    for (let d = 0; d < headDim; d++) s[d % 4] = mad(qs[d]!, key[d]!, s[d % 4]!);
    return capped(f(f(s[0] + s[2]) + f(s[1] + s[3])));
  };

  const codes = coded(qs, 8191);
  const latents = (shape.formats & LATENT_PAGES) !== 0;
  const rank = 8 * Math.ceil(valueDim / 8);
  /** The parts of a key that have a scale each: what meets latents, and what meets rotated keys. */
  const both: readonly (readonly [from: number, to: number])[] = [
    [0, rank],
    [rank, headDim],
  ];
  const parts = both.filter(([from, to]) => from < to);
  const partCodes = parts.map(([from, to]) => coded(qs.slice(from, to), 8191));
  const scoreParts = (keys: readonly ReturnType<typeof stored>[]): number => {
    const terms = keys.map(({ numbers, scale = 0 }, i) => {
      const { integers, scale: own } = partCodes[i]!;
      return f(f(numbers.reduce((total, x, d) => total + x * integers[d]!, 0)) * f(own * scale));
    });
    return capped(terms.reduce((sum, term) => f(sum + term)));
  };
  const scoreIntegers = (integers: readonly number[], scale: number): number => {
    const sum = integers.reduce((total, x, d) => total + x * codes.integers[d]!, 0);
    return capped(f(f(sum) * f(codes.scale * scale)));
  };

  const row = new Row(mad, valueDim);
  if (shape.extraKey && shape.extraValue) {
    const { extraKey, extraValue } = shape;
    row.m = score((d) => extraKey[kvHead * headDim + d]!);
    row.sums[0] = row.weight(row.m);
    for (let d = 0; d < valueDim; d++) row.o[d] = f(row.sums[0]! * extraValue[kvHead * valueDim + d]!);
  }
  const join = (s: number) => {
    row.raise(s);
    row.sums[0] = f(row.sums[0]! + row.weight(s));
  };
  if (shape.zeroKey) join(0);
  if (shape.sinks && shape.sinks[h] !== Number.NEGATIVE_INFINITY) join(f(shape.sinks[h]! * f(LOG2_E)));

  const position = shape.qStart + t;
  for (let first = 0; first < shape.kvLen; first += PAGE) {
    const keys = Array.from({ length: PAGE }, (_, i) => first + i).filter((j) => attends(trial, t, h, j));
    if (keys.length === 0) continue;
    const formats = trial.formats?.[first / PAGE] ?? FORMAT_F32;
    const kRows = new Map(keys.map((j) => [j, stored(k, (j * numKvHeads + kvHead) * headDim, headDim, formats & 3)]));
    const partsOf = (j: number) => parts.map(([from, to]) => stored(k, j * headDim + from, to - from, formats & 3));
    const vRows = new Map(
      keys.map((j) => [
        j,
        latents ? partsOf(j)[0]! : stored(v, (j * numKvHeads + kvHead) * valueDim, valueDim, formats >> 2),
      ]),
    );
    const scores = keys.map((j) => {
      const key = kRows.get(j)!;
      const scoreFloats = latents ? latentScore : (of: readonly number[]) => score((d) => of[d]!);
      const scoreCodes = () => (latents ? scoreParts(partsOf(j)) : scoreIntegers(key.numbers, key.scale!));
      let s = key.scale === undefined ? scoreFloats(key.numbers) : scoreCodes();
      if (shape.slopes) s = f(s + f(f(Math.abs(position - j)) * f(shape.slopes[h]! * -LOG2_E)));
      const bias = shape.bias?.[h * shape.biasHeadStride + t * shape.biasRowStride + j];
      return bias === undefined ? s : f(s + Math.max(f(bias * f(LOG2_E)), -LARGEST_F32));
    });
    row.raise(Math.max(...scores));
    const odd = [0, 0, 0, 0];
    const weights: number[] = [];
    keys.forEach((j, i) => {
      const w = row.weight(scores[i]!);
      const sums = (j & 4) === 0 ? row.sums : odd;
      sums[j & 3] = f(sums[j & 3]! + w);
      weights.push(w);
      const value = vRows.get(j)!;
      if (value.scale === undefined) for (let d = 0; d < valueDim; d++) row.o[d] = mad(w, value.numbers[d]!, row.o[d]!);
    });
    if (formats >> 2 > FORMAT_F16) {
      const p = coded(
        keys.map((j, i) => f(weights[i]! * vRows.get(j)!.scale!)),
        16383,
      );
      for (let d = 0; d < valueDim; d++) {
        const sum = keys.reduce((total, j, i) => total + p.integers[i]! * vRows.get(j)!.numbers[d]!, 0);
        row.o[d] = f(row.o[d]! + f(f(sum) * p.scale));
      }
    }
    for (let i = 0; i < 4; i++) row.sums[i] = f(row.sums[i]! + odd[i]!);
  }

  const [a, b, c, d] = row.sums as [number, number, number, number];
  const sum = f(f(a + c) + f(b + d));
  const inverse = sum === 0 ? 0 : f(1 / sum);
  return {
    out: row.o.map((x) => f(f(x * inverse) + 0)),
    lse: sum === 0 ? Number.NEGATIVE_INFINITY : f(row.m * LN_2 + Math.log(sum)),
  };
}
