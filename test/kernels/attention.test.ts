import { describe, expect, test } from "vitest";
import { FORMAT_F16, PAGE } from "../../assembly/layout.ts";
import { attention_f32 } from "../../src/reference/attention.ts";
import { narrowF16, widenF16 } from "../../src/reference/numbers.ts";
import { checkAttention } from "../support/attention-properties.ts";
import {
  attendAll,
  attends,
  attendTokens,
  createPages,
  createTrial,
  inRandomFormats,
  kernelOf,
  scratchFloats,
  type Trial,
  tolerance,
} from "../support/attention-trial.ts";
import {
  type Arguments,
  builds,
  copyArguments,
  createRandom,
  floats,
  load,
  runKernel,
  worst,
} from "../support/harness.ts";
import { calls, sampled, sampledSeeds } from "../support/sampled.ts";

const UNBOUNDED = 1 << 30;

/** A plain causal trial, on which a test changes what it is about. */
function plain(
  seed: number,
  qLen: number,
  headDim: number,
  valueDim: number,
  change: Partial<Trial["shape"]> = {},
): Trial {
  const random = createRandom(seed);
  const numHeads = change.numHeads ?? 1;
  const numKvHeads = change.numKvHeads ?? 1;
  const kvLen = change.kvLen ?? qLen;
  return {
    q: floats(random, qLen * numHeads * headDim),
    k: floats(random, kvLen * numKvHeads * headDim),
    v: floats(random, kvLen * numKvHeads * valueDim),
    shape: {
      qLen,
      kvLen,
      qStart: kvLen - qLen,
      left: UNBOUNDED,
      right: 0,
      numHeads,
      numKvHeads,
      headDim,
      valueDim,
      qStride: numHeads * headDim,
      qHeadStride: headDim,
      outStride: numHeads * valueDim,
      outHeadStride: valueDim,
      scale: 1 / Math.sqrt(headDim),
      softcap: 0,
      slopes: null,
      sinks: null,
      extraKey: null,
      extraValue: null,
      zeroKey: 0,
      keep: null,
      keepHeadStride: 0,
      keepRowStride: kvLen,
      bias: null,
      biasHeadStride: 0,
      biasRowStride: kvLen,
      lse: new Float32Array(numHeads * qLen),
      formats: 0,
      ...change,
    },
  };
}

function argumentsOf(trial: Trial): Arguments<"attention_f32"> {
  const { shape } = trial;
  const out = new Float32Array(shape.qLen * shape.outStride).fill(7);
  const scratch = new Float32Array(scratchFloats(shape.headDim, shape.valueDim, shape.formats)).fill(Number.NaN);
  const pages = createPages(trial, shape.kvLen, 0x7fc12345);
  return [out, trial.q, pages, scratch, shape, 0, shape.qLen * shape.numHeads];
}

/** Pages whose keys and values are f16. */
const F16 = FORMAT_F16 | (FORMAT_F16 << 2);
const HALVES = { formats: [F16, F16, F16], shape: { formats: (1 << FORMAT_F16) | (16 << FORMAT_F16) } };

const KINDS = ["normal", "infinity", "NaN", "negative infinity", "subnormal", "large", "large queries"] as const;
type Halves = (typeof KINDS)[number];
const SPECIAL: Partial<Record<Halves, number>> = {
  infinity: Number.POSITIVE_INFINITY,
  NaN: Number.NaN,
  "negative infinity": Number.NEGATIVE_INFINITY,
};

/** A trial whose keys and values f16 can hold: of one kind, or one of each page's keys and values of one head is special. */
function asHalves(trial: Trial, kind: Halves, masked: boolean): Trial {
  const { shape } = trial;
  const size = { subnormal: 2 ** -20, large: 15000 }[kind as string] ?? 1;
  const [k, v] = [trial.k, trial.v].map((x) => x.map((y) => widenF16(narrowF16(y * size))));
  const special = SPECIAL[kind];
  const head = shape.numKvHeads >> 2;
  if (special !== undefined)
    for (let page = 0; page < shape.kvLen; page += PAGE) {
      k![((page + 37) * shape.numKvHeads + head) * shape.headDim + 5] = special;
      v![((page + 38) * shape.numKvHeads + head) * shape.valueDim + 41] = special;
    }
  const q = trial.q.map((x) => x * (kind === "large queries" ? 1e6 : 1));
  // In rows that do not attend the special key or value, nothing of it may be seen.
  const cells = shape.qLen * shape.kvLen;
  const keep = masked ? Uint8Array.from({ length: cells }, (_, i) => (i % 3 === 0 ? 0 : 1)) : null;
  return { ...trial, q, k: k!, v: v!, shape: { ...shape, keep } };
}

describe.each(builds)("attention_f32 in the %s build", (build) => {
  const instance = load(build);

  function compareWithTwin(trial: Trial, what: string): void {
    const args = argumentsOf(trial);
    const twin = copyArguments<"attention_f32">(args);
    runKernel(instance, kernelOf(trial.shape), args);
    attention_f32(...twin);
    const allowed = tolerance(trial);
    expect(worst(args[0], twin[0], () => allowed.out).excess, `${what}: out`).toBeLessThanOrEqual(0);
    const { lse } = trial.shape;
    if (lse) expect(worst(lse, twin[4].lse!, () => allowed.lse).excess, `${what}: lse`).toBeLessThanOrEqual(0);
  }

  test("is as near to float64 as its roundings allow, for any size and any rules", () => {
    for (const seed of sampledSeeds(1, 150, 10)) compareWithTwin(createTrial(createRandom(seed)), `seed ${seed}`);
  });

  test("is as near to its twin on pages of any formats", () => {
    for (const seed of sampledSeeds(1, 60, 7)) {
      const random = createRandom(seed + 500);
      compareWithTwin(inRandomFormats(createTrial(random), random), `seed ${seed}`);
    }
  });

  test.each([
    [1, 1],
    [5, 3],
    [16, 16],
    [20, 9],
    [64, 64],
    [80, 80],
    [96, 33],
    [128, 128],
    [192, 128],
    [256, 7],
  ])("takes headDim %i with valueDim %i", (headDim, valueDim) => {
    // A strip has eight rows.
    const groupOf = (each: number) => ([1, 8, 9].includes(each) ? each : 0);
    for (const numHeads of sampled([1, 2, 3, 4, 5, 6, 7, 8, 9, 11], 1, groupOf, headDim + build.length))
      compareWithTwin(plain(numHeads, 3, headDim, valueDim, { numHeads, kvLen: 150 }), `group ${numHeads}`);
  });

  const dims: [headDim: number, valueDim: number][] = [
    [5, 3],
    [40, 24],
    [64, 64],
    [128, 72],
    [200, 136],
  ];
  test.each(sampled(dims, 1, ([headDim]) => Number(headDim > 100), build.length))(
    "one token of nine heads with keys of their own, four at a time, has the bits of each alone: %i with %i",
    (headDim, valueDim) => {
      const heads = { numHeads: 9, numKvHeads: 9, kvLen: 300 };
      const random = createRandom(headDim);
      const special = {
        ...{ slopes: floats(random, 9), sinks: floats(random, 9), softcap: 20, left: 200 },
        ...{ extraKey: floats(random, 9 * headDim), extraValue: floats(random, 9 * valueDim), zeroKey: 1 },
      };
      const keep = { keep: Uint8Array.from({ length: 300 }, (_, j) => (j % 3 === 0 ? 0 : 1)) };
      for (const change of [{}, special, keep]) {
        const trial = plain(headDim, 1, headDim, valueDim, { ...heads, ...change });
        compareWithTwin(trial, Object.keys(change).join());
        // A value that is not finite is that of head 2 alone, and in its first column.
        trial.v[(250 * 9 + 2) * valueDim] = Number.NaN;
        const alone = Array.from({ length: 9 }, (_, r): [number, number] => [r, r + 1]);
        const all = attendAll(instance, trial);
        for (const cuts of [
          alone,
          [
            [0, 3],
            [3, 9],
          ] as const,
          [
            [0, 1],
            [1, 6],
            [6, 9],
          ] as const,
        ])
          expect(attendTokens(instance, trial, 0, 1, 300, 0x7fc12345, cuts)).toEqual(all);
        const finite = Array.from(new Float32Array(all.out.buffer), (x, i) => Number.isFinite(x) || i === 2 * valueDim);
        expect(finite.includes(false)).toBe(false);
      }
    },
  );

  test("scores to the thousands stay within their roundings", () => {
    const trial = plain(3, 40, 64, 16);
    compareWithTwin({ ...trial, q: trial.q.map((x) => x * 1000) }, "large scores");
  });

  test("no call boundary, no order, no tile and nothing masked can be seen in the bits, and each is the contract's", () => {
    expect(checkAttention(instance, 1000, calls(75, 8), build === "relaxed")).toBeUndefined();
  });

  test("the same holds for pages of any formats and mixtures of them", () => {
    expect(checkAttention(instance, 5000, calls(75, 8), build === "relaxed", "coded")).toBeUndefined();
  });

  test("attention_pages has the bits of attention_f32 on pages of float32", () => {
    for (const seed of sampledSeeds(1, 60, 7)) {
      const args = argumentsOf(createTrial(createRandom(seed)));
      const pages = copyArguments<"attention_f32">(args);
      runKernel(instance, "attention_f32", args);
      runKernel(instance, "attention_pages", pages);
      expect([pages[0], pages[4].lse], `seed ${seed}`).toEqual([args[0], args[4].lse]);
    }
  });

  test("pages of f16 have the bits of pages of float32 that hold the same numbers", () => {
    const cases = KINDS.flatMap((kind) =>
      [1, 2, 3, 4, 5, 6, 7, 8, 9].flatMap((numHeads) =>
        [false, true].map((masked) => ({ kind, numHeads, masked, name: `${kind}, group ${numHeads}, ${masked}` })),
      ),
    );
    const isEdge = ({ kind, numHeads }: (typeof cases)[number]) => kind === "normal" && [1, 8, 9].includes(numHeads);
    const groupOf = (each: (typeof cases)[number]) => `${isEdge(each) ? each.numHeads : each.kind} ${each.masked}`;
    for (const { kind, numHeads, masked, name } of sampled(cases, 1, groupOf, build.length)) {
      const sizes = { numHeads, kvLen: calls(300, 170) };
      const trial = asHalves(plain(numHeads, masked ? 3 : 1, 68, 44, sizes), kind, masked);
      const halves = { ...trial, ...HALVES, shape: { ...trial.shape, ...HALVES.shape } };
      expect(attendAll(instance, halves), name).toEqual(attendAll(instance, trial));
    }
  });

  test("and so they have for one token whose heads have keys of their own, whatever unused slots hold", () => {
    const cases = KINDS.flatMap((kind) =>
      [68, 200].flatMap((headDim) => [4, 9].map((numHeads) => ({ kind, headDim, numHeads }))),
    );
    for (const { kind, headDim, numHeads } of sampled(
      cases,
      2,
      (each) => Number(each.kind === "normal"),
      build.length,
    )) {
      const sizes = { numHeads, numKvHeads: numHeads, kvLen: calls(300, 170) };
      const trial = asHalves(plain(headDim, 1, headDim, 44, sizes), kind, false);
      const halves = { ...trial, ...HALVES, shape: { ...trial.shape, ...HALVES.shape } };
      const want = attendAll(instance, trial);
      for (const fill of [0, 0x7fc12345])
        expect(attendAll(instance, halves, fill), `${kind}, ${numHeads} heads of ${headDim}`).toEqual(want);
    }
  });

  test("writes valueDim floats a head and no more", () => {
    const trial = plain(1, 5, 8, 5, { numHeads: 2, outStride: 20, outHeadStride: 7 });
    const args = argumentsOf(trial);
    runKernel(instance, "attention_f32", args);
    for (let i = 0; i < args[0].length; i++) {
      const written = i % 20 < 14 && (i % 20) % 7 < 5;
      expect(args[0][i] === 7, `float ${i}`).toBe(!written);
    }
  });

  test("an empty range writes nothing", () => {
    const args = argumentsOf(plain(1, 5, 8, 5));
    args[5] = 3;
    args[6] = 3;
    runKernel(instance, "attention_f32", args);
    expect(args[0].every((x) => x === 7)).toBe(true);
  });

  test("a row that attends nothing is zeros and its log-sum-exp -Infinity", () => {
    const none = { qStart: -3, lse: new Float32Array(5) };
    for (const change of [none, { ...none, kvLen: 0, qStart: 0 }, { ...none, qStart: 0, keep: new Uint8Array(25) }]) {
      const trial = plain(2, 5, 16, 8, change);
      const left = attendAll(instance, trial);
      const lse = new Float32Array(left.lse.buffer);
      for (let t = 0; t < 5; t++) {
        const empty = !Array.from({ length: trial.shape.kvLen }, (_, j) => j).some((j) => attends(trial, t, 0, j));
        expect(lse[t] === Number.NEGATIVE_INFINITY, `row ${t}`).toBe(empty);
        expect(
          left.out.subarray(t * 8, t * 8 + 8).every((word) => word === 0),
          `row ${t}`,
        ).toBe(empty);
      }
    }
  });

  test("a sink of -Infinity is no sink, and alone a sink gives zeros and itself", () => {
    const trial = plain(3, 9, 16, 8);
    const sinks = Float32Array.of(Number.NEGATIVE_INFINITY);
    expect(attendAll(instance, { ...trial, shape: { ...trial.shape, sinks } })).toEqual(attendAll(instance, trial));
    const alone = plain(3, 1, 16, 8, { kvLen: 0, sinks: Float32Array.of(1.25) });
    const left = attendAll(instance, alone);
    expect(left.out.every((word) => word === 0)).toBe(true);
    expect(new Float32Array(left.lse.buffer)[0]).toBeCloseTo(1.25, 6);
  });

  test("a zero key is an extra key and value of zeros", () => {
    const trial = plain(4, 9, 16, 8);
    const zeroKey = attendAll(instance, { ...trial, shape: { ...trial.shape, zeroKey: 1 } });
    const [extraKey, extraValue] = [new Float32Array(16), new Float32Array(8)];
    expect(attendAll(instance, { ...trial, shape: { ...trial.shape, extraKey, extraValue } })).toEqual(zeroKey);
  });

  test("an infinite score, bias or sink makes its row NaN and no other", () => {
    const trial = plain(5, 9, 16, 8);
    const clean = attendAll(instance, trial);
    const bias = new Float32Array(81);
    bias[4 * 9 + 2] = Number.POSITIVE_INFINITY;
    bias[7 * 9 + 7] = Number.NaN;
    const left = attendAll(instance, { ...trial, shape: { ...trial.shape, bias } });
    for (let t = 0; t < 9; t++) {
      const row = left.out.subarray(t * 8, t * 8 + 8);
      if (t === 4 || t === 7) expect([...row], `row ${t}`).toEqual(new Array(8).fill(0x7fc00000));
      else expect(row, `row ${t}`).toEqual(clean.out.subarray(t * 8, t * 8 + 8));
    }
    const sinks = Float32Array.of(Number.POSITIVE_INFINITY);
    const sunk = attendAll(instance, { ...trial, shape: { ...trial.shape, sinks } });
    expect(sunk.out.every((word) => word === 0x7fc00000)).toBe(true);
  });

  test("an attended value that is not finite reaches its column even when its weight is 0", () => {
    const trial = plain(6, 30, 4, 9, { scale: 1 });
    trial.q.fill(1);
    trial.k.fill(60);
    trial.k.fill(-60, 12, 16);
    trial.v[3 * 9 + 8] = Number.POSITIVE_INFINITY;
    const out = new Float32Array(attendAll(instance, trial).out.buffer);
    for (let t = 0; t < 30; t++)
      for (let d = 0; d < 9; d++) expect(Number.isNaN(out[t * 9 + d]), `out[${t}, ${d}]`).toBe(t >= 3 && d === 8);
  });
});
