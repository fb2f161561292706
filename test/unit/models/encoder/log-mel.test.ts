import { expect, test } from "vitest";
import { logMel, logMelAsync } from "../../../../src/models/encoder/log-mel.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";

const sound = createRandom(5).floats(24_000);

/** The energies of the bins of a frame, by the definition of the transform. */
function energies(samples: Float32Array, frame: number, length: number): number[] {
  const at = (i: number) => samples[i < 0 ? -i : i >= length ? 2 * length - 2 - i : i] ?? 0;
  const part = Array.from({ length: 400 }, (_, i) => at(frame * 160 + i - 200) * Math.sin((Math.PI * i) / 400) ** 2);
  return Array.from({ length: 201 }, (_, k) => {
    const along = (wave: (angle: number) => number) =>
      part.reduce((sum, x, i) => sum + x * wave((2 * Math.PI * i * k) / 400), 0);
    return along(Math.cos) ** 2 + along(Math.sin) ** 2;
  });
}

/** Slaney's band over the bins, by its corners. */
function bandOver(band: number, bands: number): number[] {
  const hertz = (mel: number) => (mel < 15 ? (mel * 200) / 3 : 1000 * 6.4 ** ((mel - 15) / 27));
  const most = 15 + (27 * Math.log(8)) / Math.log(6.4);
  const [low, middle, high] = [0, 1, 2].map((i) => hertz(((band + i) * most) / (bands + 1))) as [
    number,
    number,
    number,
  ];
  return Array.from({ length: 201 }, (_, k) => {
    const f = 40 * k;
    const share = f <= middle ? (f - low) / (middle - low) : (high - f) / (high - middle);
    return (2 * Math.max(0, share)) / (high - low);
  });
}

test.each([80, 128])("with %i bands, features are within 1e-6 of those of the definition", (bands) => {
  const { data, shape } = logMel(sound, { sampleRate: 16_000, bands, seconds: 2 });
  expect(shape).toEqual([bands, 200]);
  const frames = [0, 1, 77, 148, 150, 199];
  const levels = frames.map((frame) => {
    const all = energies(sound, frame, 32_000);
    return Array.from({ length: bands }, (_, band) => {
      const energy = bandOver(band, bands).reduce((sum, weight, k) => sum + weight * (all[k] as number), 0);
      return Math.log10(Math.max(energy, 1e-10));
    });
  });
  // The loudest level is known from the features themselves, unless it is in one of these frames.
  const most = Math.max(...data) * 4 - 4;
  for (const [i, frame] of frames.entries())
    for (const [band, level] of (levels[i] as number[]).entries()) {
      expect(level).toBeLessThanOrEqual(most + 1e-5);
      expect(data[band * 200 + frame]).toBeCloseTo((Math.max(level, most - 8) + 4) / 4, 5);
    }
});

test("a sound is padded with silence", () => {
  const whole = logMel(sound, { sampleRate: 16_000 });
  expect(whole.shape).toEqual([80, 3000]);
  const padded = new Float32Array(480_000);
  padded.set(sound);
  expect(logMel(padded, { sampleRate: 16_000 })).toEqual(whole);
});

test("a sound that is longer than its seconds is refused, not cut", () => {
  const long = new Float32Array(480_001);
  expect(() => logMel(long, { sampleRate: 16_000 })).toThrow(
    "logMel: samples expected at most 480000, 30 s: split the sound, as samples.subarray(0, 480000), got 480001",
  );
  expect(() => logMel(sound, { sampleRate: 16_000, seconds: 1 })).toThrow(
    "logMel: samples expected at most 16000, 1 s: split the sound, as samples.subarray(0, 16000), got 24000",
  );
  expect(logMel(long.subarray(1), { sampleRate: 16_000 }).shape).toEqual([80, 3000]);
});

test("logMelAsync gives the features of logMel, with tasks in between, of the samples as they were", async () => {
  const options = { sampleRate: 16_000, bands: 128 };
  const changed = sound.slice();
  const shares: number[] = [];
  const found = logMelAsync(changed, { ...options, sliceMs: 1e-3, onProgress: (done) => shares.push(done) });
  let tasks = 0;
  const count = setInterval(() => tasks++);
  changed.fill(1);
  expect(await found).toEqual(logMel(sound, options));
  clearInterval(count);
  expect(tasks).toBeGreaterThan(0);
  expect(shares.length).toBeGreaterThan(10);
  expect(shares.at(-1)).toBe(1);
});

test("logMelAsync rejects with the signal's reason between two slices", async () => {
  const aborter = new AbortController();
  const onProgress = () => aborter.abort(new Error("enough"));
  const options = { sampleRate: 16_000, sliceMs: 1e-3, signal: aborter.signal, onProgress };
  await expect(logMelAsync(sound, options)).rejects.toThrow("enough");
  await expect(logMelAsync(sound, { sampleRate: 8000 })).rejects.toThrow("logMelAsync: sampleRate expected 16000");
});

test.each<[options: object, message: string]>([
  [
    { sampleRate: 44_100 },
    "logMel: sampleRate expected 16000, since Whisper hears nothing else: resample the sound, got 44100",
  ],
  [{}, "logMel: sampleRate expected 16000, since Whisper hears nothing else: resample the sound, got undefined"],
  [{ sampleRate: 16_000, seconds: 31 }, "logMel: seconds expected an integer from 1 to 30, got 31"],
  [{ sampleRate: 16_000, bands: 0 }, "logMel: bands expected an integer from 1 to 201, got 0"],
  [{ sampleRate: 16_000, rate: 1 }, 'logMel: options expected only sampleRate, bands, seconds, got "rate"'],
])("%o is refused", (options, message) => {
  expect(() => logMel(sound.subarray(0, 16_000), options as { sampleRate: number })).toThrow(message);
});

test("samples that are no numbers are refused, and so are none at all", () => {
  const options = { sampleRate: 16_000, seconds: 1 };
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
    const message = `logMel: samples[15999] expected a finite number, got ${value}`;
    expect(() => logMel(new Float32Array(16_000).fill(value, 15_999), options)).toThrow(message);
  }
  expect(() => logMel(new Float32Array(), options)).toThrow("logMel: samples expected 1 or more, got none");
});
