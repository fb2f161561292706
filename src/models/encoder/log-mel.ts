// The features of a sound, as Whisper reads it.

import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import { expectFloats, expectInt, readFields } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { cosine, exp, ln, sine } from "../../base/util/math.ts";
import { finish, type Steps } from "../../base/util/steps.ts";
import { checkSlices, runSlices, SLICE_OPTIONS, type SliceOptions } from "../../layers/pass/forward.ts";

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
function createEnergies(n: number): (x: Float64Array, out: Float64Array) => void {
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

/** Options of `logMel`. */
export interface LogMelOptions {
  /** Samples a second of the sound: 16 000, which Whisper was trained on. */
  readonly sampleRate: number;
  /** Bands, `num_mel_bins` of config.json: 80, or 128 for large-v3. Default 80. */
  readonly bands?: number | undefined;
  /** Seconds that the sound is padded to with silence, 1 to 30. Default 30, as in training. */
  readonly seconds?: number | undefined;
}

const OPTIONS = ["sampleRate", "bands", "seconds"] as const;
const RATE = 16_000;
/** Samples of a window, and between two of them. */
const WINDOW = 400;
const HOP = 160;
/** Frequencies of a window, from 0 to half of the rate. */
const BINS = WINDOW / 2 + 1;
/** Frames of a step: about a millisecond. */
const STEP_FRAMES = 25;

/**
 * The features that Whisper reads: the logarithms of the energies of frequency bands, by frame of 10 ms.
 * @param samples One channel, mostly from -1 to 1, of at most `options.seconds`. A longer sound is heard in pieces, such as
 * `samples.subarray(0, 480_000)`.
 * @returns [bands, 100·seconds].
 * @throws TypeError or RangeError naming the argument, such as a rate other than 16 000: resample the sound first. RangeError for
 * samples that are no numbers, for none at all, and for more than `seconds` has.
 * @example
 * import { logMel } from "headwise/models";
 * const tone = Float32Array.from({ length: 16_000 }, (_, i) => (i % 32 < 16 ? 0.5 : -0.5)); // 500 Hz
 * const { shape } = logMel(tone, { sampleRate: 16_000, seconds: 1 });
 * console.log(shape.join(" ")); // 80 100
 */
export function logMel(samples: Float32Array, options: LogMelOptions): Tensor {
  return finish(melSteps(...checkSound("logMel", samples, options)));
}

/**
 * `logMel` in time slices, with yields to the event loop between them. The samples may be changed meanwhile: they are copied.
 * @throws The same errors as `logMel`, and the signal's reason.
 * @example
 * import { logMelAsync } from "headwise/models";
 * const tone = Float32Array.from({ length: 16_000 }, (_, i) => (i % 32 < 16 ? 0.5 : -0.5)); // 500 Hz
 * const { shape } = await logMelAsync(tone, { sampleRate: 16_000, bands: 128, sliceMs: 4 });
 * console.log(shape.join(" ")); // 128 3000
 */
export async function logMelAsync(samples: Float32Array, options: LogMelOptions & SliceOptions): Promise<Tensor> {
  const where = "logMelAsync";
  const known = [...OPTIONS, ...SLICE_OPTIONS];
  const { signal, onProgress, sliceMs, ...given } = readFields(where, "options", options, known);
  const [, sound, bands, frames] = checkSound(where, samples, given);
  const slices = checkSlices(where, { signal, onProgress, sliceMs });
  return runSlices(melSteps(where, sound.slice(), bands, frames), frames, slices, () => signal?.throwIfAborted());
}

/** The arguments of `melSteps`. */
function checkSound(
  where: string,
  samples: Float32Array,
  options: LogMelOptions,
): [where: string, sound: Float32Array, bands: number, frames: number] {
  const { sampleRate, bands = 80, seconds = 30 } = readFields(where, "options", options, OPTIONS);
  const sound = expectFloats(where, "samples", samples);
  expectInt(where, "bands", bands, 1, BINS);
  expectInt(where, "seconds", seconds, 1, 30);
  if (sampleRate !== RATE)
    throw new RangeError(
      `${where}: sampleRate expected ${RATE}, since Whisper hears nothing else: resample the sound, got ${describe(sampleRate)}`,
    );
  const length = seconds * RATE;
  if (sound.length === 0) throw new RangeError(`${where}: samples expected 1 or more, got none`);
  if (sound.length > length)
    throw new RangeError(
      `${where}: samples expected at most ${length}, ${seconds} s: split the sound, as samples.subarray(0, ${length}), got ${sound.length}`,
    );
  // One would make all features NaN: they are relative to the loudest.
  const wrong = sound.findIndex((sample) => !Number.isFinite(sample));
  if (wrong >= 0) throw new RangeError(`${where}: samples[${wrong}] expected a finite number, got ${sound[wrong]}`);
  return [where, sound, bands, length / HOP];
}

/** Computes the features. Yields numbers of frames. */
function* melSteps(where: string, sound: Float32Array, bands: number, frames: number): Steps<Tensor> {
  const length = frames * HOP;
  // Mirrored at both ends, so that each frame is the middle of a window; silence behind the sound.
  const padded = new Float64Array(length + WINDOW);
  padded.set(sound, WINDOW / 2);
  for (let i = 1; i <= WINDOW / 2; i++) {
    padded[WINDOW / 2 - i] = padded[WINDOW / 2 + i]!;
    padded[WINDOW / 2 + length - 1 + i] = padded[WINDOW / 2 + length - 1 - i]!;
  }
  const hann = Float64Array.from({ length: WINDOW }, (_, i) => 0.5 - 0.5 * cosine((2 * Math.PI * i) / WINDOW));
  const filters = melFilters(bands);
  const readEnergies = createEnergies(WINDOW);
  const features = createFloats(where, "features", bands * frames);
  const [part, energies] = [new Float64Array(WINDOW), new Float64Array(BINS)];
  const ofTen = ln(10);
  let most = -Infinity;
  for (let frame = 0; frame < frames; frame++) {
    for (let i = 0; i < WINDOW; i++) part[i] = hann[i]! * padded[frame * HOP + i]!;
    readEnergies(part, energies);
    for (let band = 0; band < bands; band++) {
      const { first, weights } = filters[band]!;
      let energy = 0;
      for (let i = 0; i < weights.length; i++) energy += weights[i]! * energies[first + i]!;
      const level = ln(Math.max(energy, 1e-10)) / ofTen;
      most = Math.max(most, level);
      features[band * frames + frame] = level;
    }
    if (frame % STEP_FRAMES === STEP_FRAMES - 1) yield STEP_FRAMES;
  }
  // What is more than 8 orders of magnitude below the loudest band counts as silence.
  for (let i = 0; i < features.length; i++) features[i] = (Math.max(features[i]!, most - 8) + 4) / 4;
  return { data: features, shape: [bands, frames] };
}

/** Slaney's scale: linear up to 1000 Hz, and logarithmic above, where 27 mels are a factor of 6.4. */
const logStep = () => ln(6.4) / 27;
const toMel = (hertz: number) => (hertz < 1000 ? (3 * hertz) / 200 : 15 + ln(hertz / 1000) / logStep());
const toHertz = (mel: number) => (mel < 15 ? (200 * mel) / 3 : 1000 * exp((mel - 15) * logStep()));

/** The triangle of each band over the bins, of an area that is the same for all. */
function melFilters(bands: number): { readonly first: number; readonly weights: readonly number[] }[] {
  const most = toMel(RATE / 2);
  const edges = Array.from({ length: bands + 2 }, (_, i) => toHertz((i * most) / (bands + 1)));
  return Array.from({ length: bands }, (_, band) => {
    const [low = 0, middle = 0, high = 0] = edges.slice(band, band + 3);
    const all = Array.from({ length: BINS }, (_, bin) => {
      const hertz = (bin * RATE) / WINDOW;
      const share = Math.min((hertz - low) / (middle - low), (high - hertz) / (high - middle));
      return (Math.max(0, share) * 2) / (high - low);
    });
    const first = all.findIndex((weight) => weight > 0);
    // Without a bin in it, a band is silent.
    return { first: Math.max(0, first), weights: all.filter((weight) => weight > 0) };
  });
}
