import { createFloats, type Tensor } from "../tensor/tensor.ts";
import { expectFloats, expectInt, readFields } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import { cosine, exp, ln, sine } from "../util/math.ts";

/** Options of `logMel`. */
export interface LogMelOptions {
  /** Samples a second of the sound: 16 000, which Whisper was trained on. */
  readonly sampleRate: number;
  /** Bands, `num_mel_bins` of config.json: 80, or 128 for large-v3. Default 80. */
  readonly bands?: number | undefined;
  /** Seconds that the sound is cut or padded to, 1 to 30. Default 30, as in training. */
  readonly seconds?: number | undefined;
}

const RATE = 16_000;
/** Samples of a window, and between two of them. */
const WINDOW = 400;
const HOP = 160;
/** Frequencies of a window, from 0 to half of the rate. */
const BINS = WINDOW / 2 + 1;

/**
 * The features that Whisper reads: the logarithms of the energies of frequency bands, by frame of 10 ms.
 * @param samples One channel, mostly from -1 to 1.
 * @returns [bands, 100·seconds].
 * @throws TypeError or RangeError naming the argument, such as a rate other than 16 000: resample the sound first. RangeError for
 * samples that are no numbers, and for none at all.
 * @example
 * import { logMel } from "headwise/encoders";
 * const tone = Float32Array.from({ length: 16_000 }, (_, i) => (i % 32 < 16 ? 0.5 : -0.5)); // 500 Hz
 * const { shape } = logMel(tone, { sampleRate: 16_000, seconds: 1 });
 * console.log(shape.join(" ")); // 80 100
 */
export function logMel(samples: Float32Array, options: LogMelOptions): Tensor {
  const where = "logMel";
  const given = readFields(where, "options", options, ["sampleRate", "bands", "seconds"]);
  const { sampleRate, bands = 80, seconds = 30 } = given;
  const sound = expectFloats(where, "samples", samples);
  expectInt(where, "bands", bands, 1, BINS);
  expectInt(where, "seconds", seconds, 1, 30);
  if (sampleRate !== RATE)
    throw new RangeError(
      `${where}: sampleRate expected ${RATE}, since Whisper hears nothing else: resample the sound, got ${describe(sampleRate)}`,
    );
  if (sound.length === 0) throw new RangeError(`${where}: samples expected 1 or more, got none`);
  const length = seconds * RATE;
  // One would make all features NaN: they are relative to the loudest.
  const wrong = sound.subarray(0, length).findIndex((sample) => !Number.isFinite(sample));
  if (wrong >= 0) throw new RangeError(`${where}: samples[${wrong}] expected a finite number, got ${sound[wrong]}`);
  const frames = length / HOP;
  const at = (i: number) => (i < sound.length ? (sound[i] as number) : 0);
  // Mirrored at both ends, so that each frame is the middle of a window.
  const mirrored = (i: number) => at(i < 0 ? -i : i >= length ? 2 * length - 2 - i : i);
  const hann = Float64Array.from({ length: WINDOW }, (_, i) => 0.5 - 0.5 * cosine((2 * Math.PI * i) / WINDOW));
  const filters = melFilters(bands);
  const transform = createTransform(WINDOW);
  const features = createFloats(where, "features", bands * frames);
  const part = new Float64Array(WINDOW);
  let most = Number.NEGATIVE_INFINITY;
  for (let frame = 0; frame < frames; frame++) {
    for (let i = 0; i < WINDOW; i++) part[i] = (hann[i] as number) * mirrored(frame * HOP + i - WINDOW / 2);
    const energies = transform(part);
    for (const [band, { first, weights }] of filters.entries()) {
      const energy = weights.reduce((sum, weight, i) => sum + weight * (energies[first + i] as number), 0);
      const level = ln(Math.max(energy, 1e-10)) / ln(10);
      most = Math.max(most, level);
      features[band * frames + frame] = level;
    }
  }
  // What is more than 8 orders of magnitude below the loudest band counts as silence.
  for (let i = 0; i < features.length; i++) features[i] = (Math.max(features[i] as number, most - 8) + 4) / 4;
  return { data: features, shape: [bands, frames] };
}

/** Slaney's scale: linear up to 1000 Hz, and logarithmic above, where 27 mels are a factor of 6.4. */
const LOG_STEP = ln(6.4) / 27;
const toMel = (hertz: number) => (hertz < 1000 ? (3 * hertz) / 200 : 15 + ln(hertz / 1000) / LOG_STEP);
const toHertz = (mel: number) => (mel < 15 ? (200 * mel) / 3 : 1000 * exp((mel - 15) * LOG_STEP));

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

/**
 * Returns a function that gives the energies of the frequencies 0 to n / 2 of n real numbers: a Fourier transform that halves n
 * while it is even, and sums the odd rest directly.
 */
function createTransform(n: number): (x: Float64Array) => Float64Array {
  const [cos, sin] = [cosine, sine].map((wave) =>
    Float64Array.from({ length: n }, (_, i) => wave((2 * Math.PI * i) / n)),
  );
  const [re, im] = [new Float64Array(n), new Float64Array(n)];
  const [evenRe, evenIm] = [new Float64Array(n), new Float64Array(n)];
  const c = cos as Float64Array;
  const s = sin as Float64Array;
  /** The transform of every `step`-th of `size` numbers from `from` on, to `re` and `im` from `to` on. */
  const run = (x: Float64Array, from: number, step: number, size: number, to: number): void => {
    if (size % 2 === 1) {
      for (let k = 0; k < size; k++) {
        let [a, b] = [0, 0];
        for (let i = 0; i < size; i++) {
          const turn = ((i * k) % size) * step;
          a += (x[from + i * step] as number) * (c[turn] as number);
          b -= (x[from + i * step] as number) * (s[turn] as number);
        }
        re[to + k] = a;
        im[to + k] = b;
      }
      return;
    }
    const half = size / 2;
    run(x, from, 2 * step, half, to);
    run(x, from + step, 2 * step, half, to + half);
    evenRe.set(re.subarray(to, to + half), to);
    evenIm.set(im.subarray(to, to + half), to);
    for (let k = 0; k < half; k++) {
      const [wr, wi] = [c[k * step] as number, -(s[k * step] as number)];
      const [or, oi] = [re[to + half + k] as number, im[to + half + k] as number];
      const [a, b] = [wr * or - wi * oi, wr * oi + wi * or];
      re[to + k] = (evenRe[to + k] as number) + a;
      im[to + k] = (evenIm[to + k] as number) + b;
      re[to + half + k] = (evenRe[to + k] as number) - a;
      im[to + half + k] = (evenIm[to + k] as number) - b;
    }
  };
  const energyOf = (a: number, b: number) => a * a + b * b;
  return (x) => {
    run(x, 0, 1, n, 0);
    return Float64Array.from({ length: n / 2 + 1 }, (_, k) => energyOf(re[k] as number, im[k] as number));
  };
}
