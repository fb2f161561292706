import { describe, expect, test } from "vitest";
import { STATE_STRIP } from "../../assembly/layout.ts";
import { stateAt } from "../../src/reference/pages.ts";
import { causal_conv_f32, channel_scan_f32, decay_f32, linear_attention_f32 } from "../../src/reference/recurrent.ts";
import {
  type Arguments,
  builds,
  copyArguments,
  createRandom,
  floats,
  load,
  type Random,
  runKernel,
  worst,
} from "../support/harness.ts";

const U = 2 ** -24;

/** Every array, in shapes too, with NaN where a row ends before its stride. */
const rowsOf = (random: Random, rows: number, n: number, stride: number): Float32Array => {
  const data = floats(random, rows * stride);
  for (let r = 0; r < rows; r++) data.fill(Number.NaN, r * stride + n, (r + 1) * stride);
  return data;
};

/** A random convolution; `extras` are a bias, factors before and after, and SiLU. */
function convolution(random: Random, rows: number, channels: number, taps: number, extras: boolean) {
  const xStride = channels + (extras ? 4 : 0);
  const state = floats(random, (taps - 1) * channels);
  const shape = {
    rows,
    channels,
    taps,
    xStride,
    outStride: channels + 4,
    silu: extras ? 1 : 0,
    // With extras, the state before is apart from the one behind.
    from: extras ? floats(random, state.length) : state,
    before: extras ? rowsOf(random, rows, channels, xStride) : null,
    after: extras ? rowsOf(random, rows, channels, xStride) : null,
  };
  const args: Arguments<"causal_conv_f32"> = [
    new Float32Array(rows * shape.outStride),
    rowsOf(random, rows, channels, xStride),
    state,
    floats(random, taps * channels),
    extras ? floats(random, channels) : null,
    shape,
    0,
    channels,
  ];
  return args;
}

describe.each(builds)("causal_conv_f32 in the %s build", (build) => {
  const instance = load(build);

  test.each([1, 2, 3, 4, 7])("is within its bound of float64 with %i taps, and leaves the exact state", (taps) => {
    const random = createRandom(taps);
    for (const rows of [1, 2, 5, 9])
      for (const extras of [false, true]) {
        const args = convolution(random, rows, 12, taps, extras);
        const twin = copyArguments<"causal_conv_f32">(args);
        runKernel(instance, "causal_conv_f32", args);
        causal_conv_f32(...twin);
        // The largest terms are some 4^3, of a bias, factors and a weight.
        const { excess, at } = worst(args[0], twin[0], () => (taps + 8) * 64 * U);
        expect(excess, `${rows} rows, extras ${extras}, element ${at}`).toBeLessThanOrEqual(0);
        expect(args[2]).toEqual(twin[2]);
      }
  });

  test("gives the same bits for any chunks of rows and any pieces of channels", () => {
    const random = createRandom(8);
    const [rows, channels, taps] = [11, 16, 4];
    const whole = convolution(random, rows, channels, taps, true);
    const [out, x, state, weights, bias, shape] = copyArguments<"causal_conv_f32">(whole);
    runKernel(instance, "causal_conv_f32", whole);
    const rowsFrom = (rows: Float32Array, from: number, stride: number) => rows.slice(from * stride);
    for (const [from, to] of [
      [0, 1],
      [1, 2],
      [2, 4],
      [4, 9],
      [9, rows],
    ] as const) {
      const part = new Float32Array((to - from) * shape.outStride);
      const chunk = {
        ...shape,
        rows: to - from,
        from: from === 0 ? shape.from : state,
        before: rowsFrom(shape.before!, from, shape.xStride),
        after: rowsFrom(shape.after!, from, shape.xStride),
      };
      for (const [begin, end] of [
        [8, 16],
        [0, 8],
      ] as const)
        runKernel(instance, "causal_conv_f32", [
          part,
          rowsFrom(x, from, shape.xStride),
          state,
          weights,
          bias,
          chunk,
          begin,
          end,
        ]);
      out.set(part, from * shape.outStride);
    }
    expect(out).toEqual(whole[0]);
    expect(state).toEqual(whole[2]);
  });
});

describe.each(builds)("decay_f32 in the %s build", (build) => {
  const instance = load(build);

  test.each([1, 3, 4, 5, 8, 31])("is within its bound of float64 at n = %i, with and without limits and steps", (n) => {
    const random = createRandom(n);
    const rows = 4;
    for (const [low, high] of [
      [0, Number.POSITIVE_INFINITY],
      [0.25, 1.5],
    ] as const)
      for (const steps of [true, false]) {
        const shape = { n, xStride: n + 2, outStride: n + 1, low, high };
        const args: Arguments<"decay_f32"> = [
          new Float32Array(rows * (n + 1)),
          steps ? new Float32Array(rows * (n + 1)) : null,
          rowsOf(random, rows, n, n + 2),
          floats(random, n),
          floats(random, n).map((v) => Math.abs(v) * 8),
          shape,
          0,
          rows,
        ];
        const twin = copyArguments<"decay_f32">(args);
        runKernel(instance, "decay_f32", args);
        decay_f32(...twin);
        // A step is within some roundings, which the decay's exponent multiplies.
        expect(worst(args[0], twin[0], () => 16 * U).excess).toBeLessThanOrEqual(0);
        if (steps)
          expect(worst(args[1]!, twin[1]!, (i) => 6 * U * (1 + Math.abs(twin[1]![i]!))).excess).toBeLessThanOrEqual(0);
      }
  });
});

interface Heads {
  readonly rows: number;
  readonly heads: number;
  readonly group: number;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly delta: boolean;
  readonly perChannel: boolean;
  readonly plain?: boolean;
}

/** Random heads, with unit keys as the delta rule has them, so that states stay small. */
function linearAttention(random: Random, sizes: Heads): Arguments<"linear_attention_f32"> {
  const { rows, heads, group, keyDim, valueDim, delta, perChannel, plain } = sizes;
  const keys = (heads / group) * keyDim;
  const unit = () => {
    const data = rowsOf(random, rows, keys, keys + 3);
    for (let r = 0; r < rows; r++)
      for (let at = r * (keys + 3); at < r * (keys + 3) + keys; at += keyDim) {
        const size = Math.hypot(...data.subarray(at, at + keyDim));
        for (let i = 0; i < keyDim; i++) data[at + i]! /= size;
      }
    return data;
  };
  const states = () => {
    const data = new Float32Array(heads * keyDim * 4 * Math.ceil(valueDim / 4));
    for (let head = 0; head < heads; head++)
      for (let i = 0; i < keyDim; i++)
        for (let c = 0; c < valueDim; c++) data[stateAt(keyDim, valueDim, head, i, c)] = random.normal() / 4;
    return data;
  };
  const state = plain ? states() : new Float32Array(heads * keyDim * 4 * Math.ceil(valueDim / 4));
  const decays = perChannel ? heads * keyDim : heads;
  const between = (data: Float32Array) => data.map((v) => 1 / (1 + Math.exp(-v)));
  const shape = {
    rows,
    keyDim,
    valueDim,
    // By turns without other extras.
    group: plain ? 0 : group,
    keyHeads: heads / group,
    keyStride: keys + 3,
    valueStride: heads * valueDim + 2,
    outStride: heads * valueDim + 1,
    delta: delta ? 1 : 0,
    scale: 0.25,
    // Else the states before are apart from those behind.
    from: plain ? state : states(),
    decay: between(floats(random, plain ? decays : rows * (decays + 1))),
    decayStride: plain ? 0 : decays + 1,
    perChannel: perChannel ? 1 : 0,
    beta: plain ? null : between(floats(random, rows * (heads + 2))),
    betaStride: plain ? 0 : heads + 2,
    skip: plain ? null : floats(random, heads),
  };
  return [
    new Float32Array(rows * shape.outStride),
    state,
    unit(),
    unit(),
    rowsOf(random, rows, heads * valueDim, shape.valueStride),
    shape,
    0,
    heads,
  ];
}

describe.each(builds)("linear_attention_f32 in the %s build", (build) => {
  const instance = load(build);

  test.each([1, 3, 4, 15, 16, 17, 24, 36])("is within its bound of float64 with values of %i", (valueDim) => {
    const random = createRandom(valueDim);
    for (const delta of [false, true])
      for (const perChannel of [false, true])
        for (const plain of [false, true]) {
          const sizes = { rows: 5, heads: 4, group: 2, keyDim: 7, valueDim, delta, perChannel, plain };
          const args = linearAttention(random, sizes);
          const twin = copyArguments<"linear_attention_f32">(args);
          runKernel(instance, "linear_attention_f32", args);
          linear_attention_f32(...twin);
          const named = JSON.stringify(sizes);
          // Rows of some 10 products of numbers below 8, each row upon the state of the last one.
          expect(worst(args[0], twin[0], () => 400 * U).excess, named).toBeLessThanOrEqual(0);
          expect(worst(args[1], twin[1], () => 400 * U).excess, named).toBeLessThanOrEqual(0);
        }
  });

  test("gives the same bits for any chunks of rows and any order of heads", () => {
    const random = createRandom(9);
    const sizes = { rows: 9, heads: 6, group: 3, keyDim: 8, valueDim: STATE_STRIP + 6, delta: true, perChannel: false };
    const whole = linearAttention(random, sizes);
    const [out, state, q, k, v, shape] = copyArguments<"linear_attention_f32">(whole);
    runKernel(instance, "linear_attention_f32", whole);
    for (const [from, to] of [
      [0, 1],
      [1, 4],
      [4, 9],
    ] as const) {
      const part = new Float32Array((to - from) * shape.outStride);
      const chunk = {
        ...shape,
        rows: to - from,
        from: from === 0 ? shape.from : state,
        decay: shape.decay.slice(from * shape.decayStride),
        beta: shape.beta!.slice(from * shape.betaStride),
      };
      for (const [begin, end] of [
        [4, 6],
        [0, 1],
        [1, 4],
      ] as const)
        runKernel(instance, "linear_attention_f32", [
          part,
          state,
          q.slice(from * shape.keyStride),
          k.slice(from * shape.keyStride),
          v.slice(from * shape.valueStride),
          chunk,
          begin,
          end,
        ]);
      out.set(part, from * shape.outStride);
    }
    expect(out).toEqual(whole[0]);
    expect(state).toEqual(whole[1]);
  });

  test("a NaN stays in the column of its value, and in the heads of its key", () => {
    const random = createRandom(10);
    const sizes = { rows: 3, heads: 2, group: 1, keyDim: 4, valueDim: 20, delta: true, perChannel: false };
    const args = linearAttention(random, sizes);
    const clean = copyArguments<"linear_attention_f32">(args);
    args[4][0] = Number.NaN;
    runKernel(instance, "linear_attention_f32", args);
    runKernel(instance, "linear_attention_f32", clean);
    for (let t = 0; t < sizes.rows; t++)
      for (let i = 0; i < 40; i++) {
        const at = t * args[5].outStride + i;
        if (i === 0) expect(args[0][at]).toBeNaN();
        else expect(args[0][at]).toBe(clean[0][at]);
      }
  });
});

/** Random channels: those of Mamba, or `gated` as those of RG-LRU, whose rates reach down to decays of nearly 1. */
function channelScan(random: Random, rows: number, channels: number, gated: boolean): Arguments<"channel_scan_f32"> {
  const stateDim = gated ? 1 : 5;
  const [stride, stepStride, keyStride] = [channels + 2, channels + 3, stateDim + 1];
  const keys = () => (gated ? null : rowsOf(random, rows, stateDim, keyStride));
  const state = floats(random, stateDim * channels);
  const shape = {
    ...{ rows, channels, stateDim, stride, stepStride, keyStride, first: gated ? 1 : 0 },
    from: gated ? state : floats(random, state.length),
    rate: floats(random, state.length).map((v, i) => Math.abs(v) * (i % 2 ? 1e-4 : 4)),
    q: keys(),
    k: keys(),
    write: gated ? rowsOf(random, rows, channels, stepStride) : null,
    skip: gated ? null : floats(random, channels),
  };
  const steps = rowsOf(random, rows, channels, stepStride).map((v) => 2 * v);
  return [new Float32Array(rows * stride), state, rowsOf(random, rows, channels, stride), steps, shape, 0, channels];
}

describe.each(builds)("channel_scan_f32 in the %s build", (build) => {
  const instance = load(build);

  test.each([4, 12, 20])("is within its bound of float64 with %i channels", (channels) => {
    const random = createRandom(channels);
    for (const rows of [1, 2, 7])
      for (const gated of [false, true]) {
        const args = channelScan(random, rows, channels, gated);
        const twin = copyArguments<"channel_scan_f32">(args);
        runKernel(instance, "channel_scan_f32", args);
        channel_scan_f32(...twin);
        const named = `${rows} rows, gated ${gated}`;
        expect(worst(args[0], twin[0], () => 400 * U).excess, named).toBeLessThanOrEqual(0);
        expect(worst(args[1], twin[1], () => 400 * U).excess, named).toBeLessThanOrEqual(0);
      }
  });

  test("what is added beside a decay of nearly 1 keeps its digits", () => {
    const args = channelScan(createRandom(3), 2, 4, true);
    args[4] = { ...args[4], rate: Float32Array.of(1e-7, 1e-4, 0.2499, 0.2501), from: new Float32Array(4), first: 0 };
    const twin = copyArguments<"channel_scan_f32">(args);
    runKernel(instance, "channel_scan_f32", args);
    channel_scan_f32(...twin);
    const error = (i: number) => Math.abs(args[0][i]! - twin[0][i]!) / Math.abs(twin[0][i]!);
    for (let i = 0; i < 4; i++) expect(error(i), `channel ${i}`).toBeLessThan(20 * U);
  });

  test("gives the same bits for any chunks of rows and any pieces of channels", () => {
    for (const gated of [false, true]) {
      const random = createRandom(11);
      const rows = 9;
      const whole = channelScan(random, rows, 16, gated);
      const [out, state, x, step, shape] = copyArguments<"channel_scan_f32">(whole);
      runKernel(instance, "channel_scan_f32", whole);
      const rowsFrom = (data: Float32Array | null, from: number, stride: number) =>
        data === null ? null : data.slice(from * stride);
      for (const [from, to] of [
        [0, 1],
        [1, 4],
        [4, rows],
      ] as const) {
        const part = new Float32Array((to - from) * shape.stride);
        const chunk = {
          ...shape,
          rows: to - from,
          first: from === 0 ? shape.first : 0,
          from: from === 0 ? shape.from : state,
          q: rowsFrom(shape.q, from, shape.keyStride),
          k: rowsFrom(shape.k, from, shape.keyStride),
          write: rowsFrom(shape.write, from, shape.stepStride),
        };
        for (const [begin, end] of [
          [8, 16],
          [0, 8],
        ] as const)
          runKernel(instance, "channel_scan_f32", [
            part,
            state,
            x.slice(from * shape.stride),
            step.slice(from * shape.stepStride),
            chunk,
            begin,
            end,
          ]);
        out.set(part, from * shape.stride);
      }
      expect(out).toEqual(whole[0]);
      expect(state).toEqual(whole[1]);
    }
  });
});
