import { cosine, sine } from "../util/math.ts";

/** cos and sin of 2π i / n, for i < n. */
function turns(n: number): readonly [cos: Float64Array, sin: Float64Array] {
  const of = (wave: (angle: number) => number) =>
    Float64Array.from({ length: n }, (_, i) => wave((2 * Math.PI * i) / n));
  return [of(cosine), of(sine)];
}

/**
 * Returns a function that writes |X[k]|² of n real numbers x to out, k = 0 … n / 2, where X[k] = Σ x[i]·e^(-2πi·ik/n). n is 2 times
 * powers of 2 and 5. Pairs of numbers are taken for the complex numbers z, whose transform Z of half the length is that of the
 * numbers with even index plus i times that of the others: both are found again by its symmetry.
 */
export function createEnergies(n: number): (x: Float64Array, out: Float64Array) => void {
  const half = n / 2;
  const [re, im] = [new Float64Array(half), new Float64Array(half)];
  const [cos, sin] = turns(n);
  const transform = createTransform(half);
  return (x, out) => {
    for (let i = 0; i < half; i++) {
      re[i] = x[2 * i]!;
      im[i] = x[2 * i + 1]!;
    }
    const [zr, zi] = transform(re, im);
    for (let k = 0; k <= half; k++) {
      const a = k % half;
      const b = (half - k) % half;
      const evenRe = (zr[a]! + zr[b]!) / 2;
      const evenIm = (zi[a]! - zi[b]!) / 2;
      const oddRe = (zi[a]! + zi[b]!) / 2;
      const oddIm = (zr[b]! - zr[a]!) / 2;
      const real = evenRe + cos[k]! * oddRe + sin[k]! * oddIm;
      const imaginary = evenIm + cos[k]! * oddIm - sin[k]! * oddRe;
      out[k] = real * real + imaginary * imaginary;
    }
  };
}

type Complex = readonly [re: Float64Array, im: Float64Array];

/**
 * Returns a function that transforms n complex numbers, a product of powers of 2 and 5, which it overwrites. Stockham's form: each
 * pass splits transforms of `size` numbers that lie `stride` apart into 2 or 5, and writes their results in order.
 */
function createTransform(n: number): (re: Float64Array, im: Float64Array) => Complex {
  const [cos, sin] = turns(n);
  const other: Complex = [new Float64Array(n), new Float64Array(n)];
  return (re, im) => {
    let from: Complex = [re, im];
    let to = other;
    for (let size = n, stride = 1; size > 1; ) {
      const radix = size % 2 === 0 ? 2 : 5;
      (radix === 2 ? splitInTwo : splitInFive)(from, to, size, stride, cos, sin);
      size /= radix;
      stride *= radix;
      [from, to] = [to, from];
    }
    return from;
  };
}

type Pass = (from: Complex, to: Complex, size: number, stride: number, cos: Float64Array, sin: Float64Array) => void;

const splitInTwo: Pass = ([xr, xi], [yr, yi], size, stride, cos, sin) => {
  const step = stride * (size / 2);
  for (let p = 0; p < step; p += stride) {
    for (let a = p, y = 2 * p; a < p + stride; a++, y++) {
      const dr = xr[a]! - xr[a + step]!;
      const di = xi[a]! - xi[a + step]!;
      yr[y] = xr[a]! + xr[a + step]!;
      yi[y] = xi[a]! + xi[a + step]!;
      store(yr, yi, y + stride, dr, di, cos[p]!, sin[p]!);
    }
  }
};

/** The transforms of five numbers a to e: b and e, and c and d, have factors that are conjugates of each other. */
const splitInFive: Pass = ([xr, xi], [yr, yi], size, stride, cos, sin) => {
  const step = stride * (size / 5);
  const fifth = cos.length / 5;
  const [c1, c2] = [cos[fifth]!, cos[2 * fifth]!];
  const [s1, s2] = [sin[fifth]!, sin[2 * fifth]!];
  for (let p = 0; p < step; p += stride)
    for (let a = p, y = 5 * p; a < p + stride; a++, y++) {
      const b = a + step;
      const c = b + step;
      const d = c + step;
      const e = d + step;
      const sumRe = xr[b]! + xr[e]!;
      const sumIm = xi[b]! + xi[e]!;
      const sumRe2 = xr[c]! + xr[d]!;
      const sumIm2 = xi[c]! + xi[d]!;
      const outRe = xr[b]! - xr[e]!;
      const outIm = xi[b]! - xi[e]!;
      const outRe2 = xr[c]! - xr[d]!;
      const outIm2 = xi[c]! - xi[d]!;
      yr[y] = xr[a]! + sumRe + sumRe2;
      yi[y] = xi[a]! + sumIm + sumIm2;
      const re1 = xr[a]! + c1 * sumRe + c2 * sumRe2;
      const im1 = xi[a]! + c1 * sumIm + c2 * sumIm2;
      const re2 = xr[a]! + c2 * sumRe + c1 * sumRe2;
      const im2 = xi[a]! + c2 * sumIm + c1 * sumIm2;
      const acrossRe1 = s1 * outRe + s2 * outRe2;
      const acrossIm1 = s1 * outIm + s2 * outIm2;
      const acrossRe2 = s2 * outRe - s1 * outRe2;
      const acrossIm2 = s2 * outIm - s1 * outIm2;
      store(yr, yi, y + stride, re1 + acrossIm1, im1 - acrossRe1, cos[p]!, sin[p]!);
      store(yr, yi, y + 2 * stride, re2 + acrossIm2, im2 - acrossRe2, cos[2 * p]!, sin[2 * p]!);
      store(yr, yi, y + 3 * stride, re2 - acrossIm2, im2 + acrossRe2, cos[3 * p]!, sin[3 * p]!);
      store(yr, yi, y + 4 * stride, re1 - acrossIm1, im1 + acrossRe1, cos[4 * p]!, sin[4 * p]!);
    }
};

/** y[at] = (re + i·im)·(cos - i·sin). */
function store(yr: Float64Array, yi: Float64Array, at: number, re: number, im: number, cos: number, sin: number): void {
  yr[at] = cos * re + sin * im;
  yi[at] = cos * im - sin * re;
}
