// y = x·wᵀ + b through the public functions: its bits depend on the row and the weights alone, what is planned is what is
// taken, and an asynchronous call that ends early changes nothing.

import { afterEach, describe, expect, test } from "vitest";
import {
  createLinear,
  type Kernels,
  type Linear,
  linear,
  linearAsync,
  planLinear,
  type StoredTensor,
  type Tensor,
  type WeightTensor,
} from "../../src/entries/core.ts";
import { quantizeTensor, toFloats } from "../../src/entries/weights.ts";
import { FORMATS, WEIGHT_FORMATS, type WeightFormat } from "../../src/layers/linear/formats.ts";

import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { projectByTwins } from "../support/integer-projection.ts";
import { firstDifference, kernelsOf, matrix, shippedBuilds, threadedKernels } from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";

/** Ends a slice after every step. */
const SHORT = 1e-9;

/** Outputs and inputs: one of each, panels and blocks that are not whole, and more. */
const SIZES = [
  [1, 1],
  [1, 70],
  [9, 1],
  [8, 32],
  [13, 33],
  [40, 96],
  [131, 100],
] as const;

const held: Kernels[] = [];
afterEach(() => {
  for (const kernels of held.splice(0)) kernels.release();
});

/** Kernels that the test's end releases. */
async function hold(loading: Promise<Kernels>): Promise<Kernels> {
  const kernels = await loading;
  held.push(kernels);
  return kernels;
}

const transposed = ({ data, shape: [rows = 0, columns = 0] }: Tensor): Tensor => ({
  data: data.map((_, i) => data[(i % rows) * columns + Math.floor(i / rows)] as number),
  shape: [columns, rows],
});

/** Each row by itself. */
function rowByRow(layer: Linear, x: Float32Array): Float32Array {
  const { inputs, outputs } = layer;
  const y = new Float32Array((x.length / inputs) * outputs);
  for (let r = 0; r * inputs < x.length; r++)
    y.set(linear(layer, x.subarray(r * inputs, (r + 1) * inputs)), r * outputs);
  return y;
}

function expectSame(got: Float32Array, want: Float32Array, what: string): void {
  expect(got.length, what).toBe(want.length);
  expect(firstDifference(got, want), what).toBe(-1);
}

/** |got - x·wᵀ - b| in float64 is at most (k + 1) roundings of the sum of the terms' magnitudes. */
function expectNear(got: Float32Array, x: Float32Array, w: Float32Array, bias: Float32Array, k: number): void {
  const n = bias.length;
  let worst = 0;
  for (const [i, y] of got.entries()) {
    const [r, o] = [Math.floor(i / n), i % n];
    let [sum, size] = [bias[o] as number, Math.abs(bias[o] as number)];
    for (let j = 0; j < k; j++) {
      const term = (x[r * k + j] as number) * (w[o * k + j] as number);
      sum += term;
      size += Math.abs(term);
    }
    worst = Math.max(worst, Math.abs(y - sum) - (k + 1) * 2 ** -24 * size);
  }
  expect(worst).toBeLessThanOrEqual(0);
}

describe.each(shippedBuilds)("in the %s build", (build) => {
  test.each(WEIGHT_FORMATS)(
    "%s: a row has the same bits in any number of rows, and those of its sum",
    async (format) => {
      const kernels = await hold(kernelsOf(build));
      for (const [seed, [n, k]] of SIZES.entries()) {
        const random = createRandom(seed);
        const [weight, bias] = [matrix(random, n, k), floats(random, n)];
        using layer = createLinear(kernels, { weight, bias }, { weights: format });
        using plain = createLinear(kernels, { weight }, { weights: format });
        expect([layer.outputs, layer.inputs, layer.format]).toEqual([n, k, format]);
        const x = floats(random, 600 * k);
        const want = rowByRow(layer, x);
        for (const rows of [1, 2, 5, 6, 12, 13, 67, 255, 256, 257, 600])
          expectSame(linear(layer, x.subarray(0, rows * k)), want.subarray(0, rows * n), `${n}x${k}, ${rows} rows`);
        expectSame(await linearAsync(layer, x, { sliceMs: SHORT }), want, `${n}x${k}, async`);
        const some = x.subarray(0, 20 * k);
        if (FORMATS[format].integers) {
          expectSame(linear(plain, some), projectByTwins(weight, format, some), `${n}x${k}, twins`);
          using fast = createLinear(kernels, { weight }, { weights: format, activations: "fast" });
          const coarse = rowByRow(fast, x.subarray(0, 260 * k));
          expectSame(linear(fast, x.subarray(0, 260 * k)), coarse, `${n}x${k}, fast`);
          expectSame(coarse.subarray(0, 20 * n), projectByTwins(weight, format, some, true), `${n}x${k}, fast twins`);
        } else {
          const rounded =
            format === "f32" ? weight.data : toFloats(quantizeTensor(weight, format === "f16" ? "F16" : "BF16"));
          expectNear(linear(layer, some), some, rounded, bias, k);
          expectNear(linear(plain, some), some, rounded, new Float32Array(n), k);
        }
      }
    },
  );

  test("in-out has the bits of out-in, and a stored matrix those of its floats", async () => {
    const kernels = await hold(kernelsOf(build));
    const random = createRandom(3);
    const [n, k] = [37, 64];
    const [weight, bias, x] = [matrix(random, n, k), floats(random, n), floats(random, 15 * k)];
    const run = (given: WeightTensor, format: WeightFormat | undefined, layout?: "in-out") => {
      using layer = createLinear(kernels, { weight: given, bias, layout }, { weights: format });
      return { y: linear(layer, x), format: layer.format };
    };
    for (const format of WEIGHT_FORMATS)
      expectSame(run(transposed(weight), format, "in-out").y, run(weight, format).y, `in-out ${format}`);
    const f64: StoredTensor = {
      ...{ name: "w", dtype: "F64", shape: [n, k] },
      bytes: new Uint8Array(Float64Array.from(weight.data).buffer),
    };
    const kept: readonly (readonly [StoredTensor, WeightFormat])[] = [
      [f64, "f32"],
      [quantizeTensor(weight, "F16"), "f16"],
      [quantizeTensor(weight, "BF16"), "bf16"],
      [quantizeTensor(weight, "Q8_0"), "q8"],
      [quantizeTensor(weight, "Q4_0"), "q4"],
    ];
    for (const [stored, format] of kept) {
      const got = run(stored, undefined);
      expect(got.format, stored.dtype).toBe(format);
      if (FORMATS[format].integers) continue;
      expectSame(got.y, run({ data: toFloats(stored), shape: [n, k] }, "f32").y, stored.dtype);
    }
  });

  test("outputs that are computed in pieces have the bits of one piece, beside more outputs than fit in scratch", async () => {
    const kernels = await hold(kernelsOf(build));
    const random = createRandom(4);
    for (const format of ["f32", "q8"] as const) {
      const [n, k] = [6003, 40];
      using layer = createLinear(
        kernels,
        { weight: matrix(random, n, k), bias: floats(random, n) },
        { weights: format },
      );
      const x = floats(random, 300 * k);
      const { scratch } = planLinear({ outputs: n, inputs: k }, { rows: 300, weights: format });
      expect(scratch).toBeLessThan(4 * 256 * n);
      expectSame(linear(layer, x), rowByRow(layer, x), format);
    }
  });

  test("1 to 4 threads give the bits of one, for every format", async () => {
    const alone = await hold(kernelsOf(build));
    const run = (kernels: Kernels) =>
      WEIGHT_FORMATS.flatMap((format) => {
        const random = createRandom(9);
        const [n, k] = [203, 130];
        using layer = createLinear(
          kernels,
          { weight: matrix(random, n, k), bias: floats(random, n) },
          { weights: format },
        );
        return [1, 7, 300].map((rows) => linear(layer, floats(random, rows * k)));
      });
    const want = run(alone);
    for (const threads of sampled([1, 2, 3, 4], 1, (each) => (each === 4 ? each : 0))) {
      const kernels = await hold(threadedKernels(build, threads));
      expect(kernels.threads.used).toBe(threads);
      for (const [i, y] of run(kernels).entries()) expectSame(y, want[i] as Float32Array, `${threads} threads, ${i}`);
    }
  });

  test("NaN and infinities affect their own row of x and their own output, and no bit of others", async () => {
    const kernels = await hold(kernelsOf(build));
    for (const format of WEIGHT_FORMATS) {
      const random = createRandom(6);
      const [n, k, rows] = [21, 64, 9];
      const [weight, x] = [matrix(random, n, k), floats(random, rows * k)];
      using layer = createLinear(kernels, { weight }, { weights: format });
      const clean = linear(layer, x);
      for (const poison of [Number.NaN, Number.POSITIVE_INFINITY]) {
        const dirty = x.slice();
        dirty[4 * k + 11] = poison;
        const other = { data: weight.data.slice(), shape: [n, k] };
        other.data[5 * k + 3] = poison;
        using poisoned = createLinear(kernels, { weight: other }, { weights: format });
        const [byRow, byOutput] = [linear(layer, dirty), linear(poisoned, x)];
        for (let i = 0; i < clean.length; i++) {
          const [r, o] = [Math.floor(i / n), i % n];
          const what = `${format}, ${poison}, row ${r}, output ${o}`;
          if (r === 4) expect(Number.isFinite(byRow[i]), what).toBe(false);
          else expect(byRow[i], what).toBe(clean[i]);
          if (o === 5) expect(Number.isFinite(byOutput[i]), what).toBe(false);
          else expect(byOutput[i], what).toBe(clean[i]);
        }
      }
    }
  });
});

test("out is filled and returned, and may be x where rows have the same length", async () => {
  const kernels = await hold(kernelsOf("simd"));
  const random = createRandom(2);
  using square = createLinear(kernels, { weight: matrix(random, 24, 24) });
  using wide = createLinear(kernels, { weight: matrix(random, 48, 24) });
  const x = floats(random, 700 * 24);
  const [want, wider] = [linear(square, x), linear(wide, x)];
  const shared = new Float32Array(3 * x.length);
  shared.set(x);
  const [source, rest] = [shared.subarray(0, x.length), shared.subarray(x.length)];
  expect(linear(wide, source, { out: rest })).toBe(rest);
  expectSame(rest, wider, "apart in one buffer");
  expect(linear(square, source, { out: source })).toBe(source);
  expectSame(source, want, "in place");
  const again = x.slice();
  expect(await linearAsync(square, again, { out: again, sliceMs: SHORT })).toBe(again);
  expectSame(again, want, "in place, async");
});

test("no rows give no outputs, and take no memory", async () => {
  const kernels = await hold(kernelsOf("simd"));
  using layer = createLinear(kernels, { weight: matrix(createRandom(1), 5, 3) });
  const { usedBytes } = kernels;
  const none = new Float32Array(0);
  expect(linear(layer, none)).toEqual(none);
  expect(linear(layer, none, { out: none })).toBe(none);
  expect(await linearAsync(layer, none)).toEqual(none);
  expect(kernels.usedBytes).toBe(usedBytes);
});

test("planLinear gives the exact bytes over 150 random layers and calls, and no call of fewer rows takes more", async () => {
  // Of each format, some of many rows and some of many outputs.
  for (const seed of sampled([...Array(150).keys()], 1, (each) => each % 30)) {
    const kernels = await kernelsOf("simd");
    const random = createRandom(seed);
    const format = WEIGHT_FORMATS[seed % WEIGHT_FORMATS.length] as WeightFormat;
    const size = { outputs: random.int(1, seed % 10 === 0 ? 9000 : 200), inputs: random.int(1, 90) };
    const rows = random.int(1, seed % 5 === 0 ? 700 : 40);
    const planned = planLinear(size, { rows, weights: format });
    const before = kernels.usedBytes;
    const layer = createLinear(kernels, { weight: matrix(random, size.outputs, size.inputs) }, { weights: format });
    expect(kernels.usedBytes - before, `seed ${seed}, weights`).toBe(planned.weights);
    expect(layer.bytes).toBeLessThanOrEqual(planned.weights);
    const x = floats(random, rows * size.inputs);
    linear(layer, x);
    expect(kernels.usedBytes - before, `seed ${seed}, total`).toBe(planned.total);
    linear(layer, x.subarray(0, random.int(1, rows) * size.inputs));
    expect(kernels.usedBytes - before, `seed ${seed}, fewer rows`).toBe(planned.total);
    layer.release();
    layer.release();
    expect(kernels.usedBytes - before, `seed ${seed}, released`).toBe(planned.scratch);
    kernels.release();
  }
  const size = { outputs: 130_000, inputs: 64 };
  let most = 0;
  for (let rows = 1; rows <= 300; rows++) {
    const { scratch } = planLinear(size, { rows });
    expect(scratch, `${rows} rows`).toBeGreaterThanOrEqual(most);
    most = scratch;
  }
  expect(planLinear(size, { rows: 1e6 }).scratch).toBe(most);
});

/** A layer whose calls take several steps. */
function largeLayer(kernels: Kernels, random: Random): { layer: Linear; x: Float32Array } {
  return { layer: createLinear(kernels, { weight: matrix(random, 512, 512) }), x: floats(random, 600 * 512) };
}

test("linearAsync yields between steps, takes the scratch that is planned, and other calls change none of its bits", async () => {
  const kernels = await hold(kernelsOf("simd"));
  const { layer, x } = largeLayer(kernels, createRandom(8));
  const want = linear(layer, x);
  const { usedBytes } = kernels;
  const { scratch } = planLinear({ outputs: 512, inputs: 512 }, { rows: 600 });
  const progress: number[] = [];
  let tasks = 0;
  let running = true;
  const task = () => {
    tasks++;
    if (running) setImmediate(task);
  };
  setImmediate(task);
  const onProgress = (done: number) => {
    if (done < 1) expect(kernels.usedBytes).toBe(usedBytes + scratch);
    progress.push(done);
    linear(layer, x.subarray(512, 9 * 512));
  };
  const y = await linearAsync(layer, x, { sliceMs: SHORT, onProgress });
  running = false;
  expectSame(y, want, "async");
  expect(kernels.usedBytes).toBe(usedBytes);
  expect(tasks).toBeGreaterThan(5);
  expect(progress.length).toBeGreaterThan(5);
  expect(progress.every((done, i) => done > (progress[i - 1] ?? 0))).toBe(true);
  expect(progress.filter((done) => done === 1)).toEqual([progress.at(-1)]);
});

test("linearAsync that is aborted, or whose onProgress throws, leaves out and memory as they were", async () => {
  const kernels = await hold(kernelsOf("simd"));
  const { layer, x } = largeLayer(kernels, createRandom(8));
  const want = linear(layer, x);
  const before = x.slice();
  const { usedBytes } = kernels;
  const aborted = AbortSignal.abort();
  await expect(linearAsync(layer, x, { signal: aborted })).rejects.toBe(aborted.reason);
  for (const at of [0, 0.5, 1]) {
    const stop = new AbortController();
    const abort = (done: number) => {
      if (done >= at) stop.abort(new Error("enough"));
    };
    const options = { out: x, sliceMs: SHORT };
    await expect(linearAsync(layer, x, { ...options, signal: stop.signal, onProgress: abort })).rejects.toThrow(
      "enough",
    );
    const fail = (done: number) => {
      if (done >= at) throw new Error("failed");
    };
    await expect(linearAsync(layer, x, { ...options, onProgress: fail })).rejects.toThrow("failed");
    expectSame(x, before, `at ${at}`);
    expect(kernels.usedBytes).toBe(usedBytes);
  }
  expectSame(await linearAsync(layer, x, { out: x }), want, "at last");
});

test.each(["layer", "layer.kernels"])("releasing %s meanwhile ends linearAsync with RELEASED", async (name) => {
  const kernels = await hold(kernelsOf("simd"));
  for (const at of [0, 1]) {
    if (kernels.released) break;
    const { layer, x } = largeLayer(kernels, createRandom(8));
    const out = new Float32Array(x.length).fill(7);
    const onProgress = (done: number) => {
      if (done >= at) (name === "layer" ? layer : kernels).release();
    };
    const error = await linearAsync(layer, x, { out, sliceMs: SHORT, onProgress }).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: "RELEASED", message: `linearAsync: ${name} was released` });
    expect(out.every((value) => value === 7)).toBe(true);
  }
});

test("linearAsync names x or out where it is detached before the end", async () => {
  const kernels = await hold(kernelsOf("simd"));
  const { layer, x } = largeLayer(kernels, createRandom(8));
  const { usedBytes } = kernels;
  for (const name of ["x", "out"] as const) {
    const arrays = { x: x.slice(), out: new Float32Array(x.length) };
    const onProgress = () => {
      if (arrays[name].length > 0) structuredClone(arrays[name], { transfer: [arrays[name].buffer] });
    };
    const running = linearAsync(layer, arrays.x, { out: arrays.out, sliceMs: SHORT, onProgress });
    await expect(running).rejects.toThrow(new RegExp(`^linearAsync: ${name} expected `));
    expect(kernels.usedBytes).toBe(usedBytes);
  }
});

test("arguments are read once, and what their getters release is refused", async () => {
  const kernels = await hold(kernelsOf("simd"));
  const weight = matrix(createRandom(1), 3, 3);
  /** An object that counts how often each field is read, and runs `then` at each. */
  const counting = <T extends object>(fields: T, then = () => {}) => {
    const reads: Record<string, number> = {};
    const get = (target: T, name: string) => {
      reads[name] = (reads[name] ?? 0) + 1;
      then();
      return target[name as keyof T];
    };
    return { reads, given: new Proxy(fields, { get: get as never }) };
  };
  const weights = counting({ weight, bias: new Float32Array(3), layout: "out-in" as const });
  const options = counting({ weights: "f32" as const, activations: "exact" as const });
  const layer = createLinear(kernels, weights.given, options.given);
  expect(weights.reads).toEqual({ weight: 1, bias: 1, layout: 1 });
  expect(options.reads).toEqual({ weights: 1, activations: 1 });
  const call = counting({ out: new Float32Array(3) });
  linear(layer, new Float32Array(3), call.given);
  expect(call.reads).toEqual({ out: 1 });
  const async = counting({ out: new Float32Array(3), signal: undefined, onProgress: undefined, sliceMs: 3 });
  await linearAsync(layer, new Float32Array(3), async.given);
  expect(async.reads).toEqual({ out: 1, signal: 1, onProgress: 1, sliceMs: 1 });

  const releasing = counting({ out: new Float32Array(3) }, () => layer.release());
  expect(() => linear(layer, new Float32Array(3), releasing.given)).toThrow("linear: layer was released");
  for (const field of ["weights", "options"]) {
    const other = await hold(kernelsOf("simd"));
    const release = () => other.release();
    const given = field === "weights" ? counting({ weight }, release).given : { weight };
    const options = field === "options" ? counting({ weights: undefined }, release).given : {};
    expect(() => createLinear(other, given, options), field).toThrow("createLinear: kernels was released");
  }
});
