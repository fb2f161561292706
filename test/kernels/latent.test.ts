import { describe, expect, test } from "vitest";
import { FORMAT_F16, FORMAT_F32, FORMAT_Q8, PAGE } from "../../assembly/layout.ts";
import { append_latents, attention_latents, gather_latents } from "../../src/reference/latent.ts";
import type { Page } from "../../src/wasm/abi.ts";
import { checkAttention } from "../support/attention-properties.ts";
import {
  attendAll,
  attendTokens,
  createLatentTrial,
  createPages,
  inLatentFormat,
  latentFormats,
  scratchFloats,
  type Trial,
  tolerance,
  valuesIn,
} from "../support/attention-trial.ts";
import {
  type Arguments,
  builds,
  copyArguments,
  createRandom,
  floats,
  load,
  pieces,
  runKernel,
  worst,
} from "../support/harness.ts";
import { calls, sampled, sampledSeeds } from "../support/sampled.ts";

const UNBOUNDED = 1 << 30;

/** Any 32 bits, signalling NaNs included. The twins see them as integers, because a float may not survive a copy. */
const asWords = (data: Float32Array) => new Uint32Array(data.buffer, data.byteOffset, data.length);
const cheat = (data: Float32Array) => asWords(data) as unknown as Float32Array;
const wordsOf = (pages: readonly Page[]) => (pages as readonly Float32Array[]).map(asWords);

const random = createRandom(21);
const words = (length: number) => new Float32Array(Uint32Array.from({ length }, () => random.next() * 2 ** 32).buffer);

interface Case {
  readonly rank: number;
  readonly ropeDim: number;
  readonly past: number;
  readonly tokens: number;
}

const cases: readonly Case[] = [
  { rank: 8, ropeDim: 8, past: 0, tokens: 8 },
  { rank: 512, ropeDim: 64, past: 0, tokens: 3 },
  { rank: 1, ropeDim: 0, past: 0, tokens: 1 },
  { rank: 3, ropeDim: 2, past: 1, tokens: 13 },
  { rank: 4, ropeDim: 4, past: 2, tokens: 126 },
  { rank: 5, ropeDim: 6, past: 127, tokens: 1 },
  { rank: 7, ropeDim: 10, past: 126, tokens: 5 },
  { rank: 12, ropeDim: 0, past: 128, tokens: 129 },
  { rank: 17, ropeDim: 14, past: 255, tokens: 2 },
  { rank: 31, ropeDim: 8, past: 5, tokens: 256 },
];

const whole = (components: number) => 8 * Math.ceil(components / 8);

/** Tokens between strides wider than they are, and pages full of other bits. */
function make({ rank, ropeDim, past, tokens }: Case) {
  const shape = {
    ...{ numKvHeads: 1, headDim: rank, valueDim: ropeDim },
    ...{ kStride: rank + 3, kHeadStride: 0, vStride: ropeDim + 1, vHeadStride: 0 },
  };
  const [k, v] = [words(tokens * shape.kStride), words(tokens * shape.vStride)];
  for (const [i, poison] of [0x7fc12345, 0xffc00001, 0x7f800001, 0x7f800000, 0x80000000].entries()) {
    asWords(k)[(i * 5) % k.length] = poison;
    asWords(v)[(i * 3) % v.length] = poison;
  }
  const pageFloats = PAGE * (whole(rank) + whole(ropeDim));
  const pages = Array.from({ length: Math.ceil((past + tokens) / PAGE) }, () => words(pageFloats));
  return { shape, k, v, pages };
}

/** A causal trial of latents, on which a test changes what it is about. */
function plain(
  seed: number,
  qLen: number,
  headDim: number,
  valueDim: number,
  change: Partial<Trial["shape"]> = {},
): Trial {
  const drawn = createRandom(seed);
  const { numHeads = 1, kvLen = qLen } = change;
  const k = floats(drawn, kvLen * headDim);
  return {
    q: floats(drawn, qLen * numHeads * headDim),
    k,
    v: valuesIn(k, headDim, valueDim),
    shape: {
      ...{ qLen, kvLen, qStart: kvLen - qLen, left: UNBOUNDED, right: 0 },
      ...{ numHeads, numKvHeads: 1, headDim, valueDim },
      ...{ qStride: numHeads * headDim, qHeadStride: headDim },
      ...{ outStride: numHeads * valueDim, outHeadStride: valueDim },
      ...{ scale: 1 / Math.sqrt(headDim), softcap: 0, slopes: null, sinks: null },
      ...{ extraKey: null, extraValue: null, zeroKey: 0 },
      ...{ keep: null, keepHeadStride: 0, keepRowStride: kvLen, bias: null, biasHeadStride: 0, biasRowStride: kvLen },
      lse: new Float32Array(numHeads * qLen),
      formats: latentFormats(FORMAT_F32),
      ...change,
    },
  };
}

function argumentsOf(trial: Trial): Arguments<"attention_latents"> {
  const { shape } = trial;
  const out = new Float32Array(shape.qLen * shape.outStride).fill(7);
  const scratch = new Float32Array(scratchFloats(shape.headDim, shape.valueDim, shape.formats)).fill(Number.NaN);
  const pages = createPages(trial, shape.kvLen, 0x7fc12345);
  return [out, trial.q, pages, scratch, shape, 0, shape.qLen * shape.numHeads];
}

describe.each(builds)("the cache of latents in the %s build", (build) => {
  const instance = load(build);

  test.each(cases)("append_latents leaves the bits of its twin, whole and split, for %o", (dims) => {
    const { shape, k, v, pages } = make(dims);
    const args: Arguments<"append_latents"> = [pages, k, v, shape, dims.past, 0, dims.tokens];
    const split = copyArguments<"append_latents">(args);
    const twin = copyArguments<"append_latents">(args);
    append_latents((twin[0] as Float32Array[]).map(cheat), cheat(k), cheat(v), shape, dims.past, 0, dims.tokens);
    runKernel(instance, "append_latents", args);
    expect(wordsOf(args[0])).toEqual(wordsOf(twin[0]));
    for (const [begin, end] of pieces(random, dims.tokens)) {
      split[5] = begin;
      split[6] = end;
      runKernel(instance, "append_latents", split);
    }
    expect(wordsOf(split[0])).toEqual(wordsOf(twin[0]));
  });

  test.each(cases)("gather_latents leaves the bits of its twin and gives back what was appended, for %o", (dims) => {
    const { rank, ropeDim, past, tokens } = dims;
    const { shape, k, v, pages } = make(dims);
    runKernel(instance, "append_latents", [pages, k, v, shape, past, 0, tokens]);
    const blank = [k.slice().fill(7), v.slice().fill(7)] as const;
    const args: Arguments<"gather_latents"> = [...blank, pages, shape, past, 0, tokens];
    const split = copyArguments<"gather_latents">(args);
    const twin = copyArguments<"gather_latents">(args);
    gather_latents(cheat(twin[0]), cheat(twin[1]), (twin[2] as Float32Array[]).map(cheat), shape, past, 0, tokens);
    runKernel(instance, "gather_latents", args);
    expect([asWords(args[0]), asWords(args[1])]).toEqual([asWords(twin[0]), asWords(twin[1])]);
    for (const [begin, end] of pieces(random, tokens)) {
      split[5] = begin;
      split[6] = end;
      runKernel(instance, "gather_latents", split);
    }
    expect([asWords(split[0]), asWords(split[1])]).toEqual([asWords(twin[0]), asWords(twin[1])]);
    for (let t = 0; t < tokens; t++) {
      const [kAt, vAt] = [t * shape.kStride, t * shape.vStride];
      expect(asWords(args[0]).subarray(kAt, kAt + rank)).toEqual(asWords(k).subarray(kAt, kAt + rank));
      expect(asWords(args[1]).subarray(vAt, vAt + ropeDim)).toEqual(asWords(v).subarray(vAt, vAt + ropeDim));
    }
  });
});

const FORMATS = [
  ["f32", FORMAT_F32],
  ["f16", FORMAT_F16],
  ["q8", FORMAT_Q8],
] as const;

/** Fills rows with numbers of all sizes; some are not finite, some all zeros, some too small for integers. */
function numbers(data: Float32Array, stride: number): void {
  for (let at = 0; at < data.length; at += stride) {
    const size = [1, 1, 1, 1000, 1e-36, 0][random.int(0, 5)] as number;
    const row = data.subarray(at, at + stride);
    for (let i = 0; i < row.length; i++) row[i] = random.normal() * size;
    if (random.next() < 0.1) row[random.int(0, row.length - 1)] = [Number.NaN, Infinity, -Infinity][random.int(0, 2)]!;
  }
}

describe.each(builds)("the cache of latents in other formats in the %s build", (build) => {
  const instance = load(build);

  test.each(FORMATS)("append_latents and gather_latents leave the bytes of their twins on pages of %s", (_, format) => {
    for (const { rank, ropeDim, past, tokens } of cases) {
      const { shape, k, v } = make({ rank, ropeDim, past, tokens });
      numbers(k, shape.kStride);
      numbers(v, shape.vStride);
      const components = PAGE * (whole(rank) + whole(ropeDim));
      const length = [4, 2, 1][format]! * components + (format === FORMAT_Q8 ? 8 * PAGE : 0);
      const pages = Array.from({ length: Math.ceil((past + tokens) / PAGE) }, () => ({
        formats: format | (format << 2),
        bytes: new Uint8Array(words(length / 4).buffer),
      }));
      const what = `rank ${rank}, ropeDim ${ropeDim}, past ${past}, ${tokens} tokens`;
      const args: Arguments<"append_latents"> = [pages, k, v, shape, past, 0, tokens];
      const split = copyArguments<"append_latents">(args);
      const twin = copyArguments<"append_latents">(args);
      append_latents(...twin);
      runKernel(instance, "append_latents", args);
      expect(args[0], what).toEqual(twin[0]);
      for (const [begin, end] of pieces(random, tokens)) {
        split[5] = begin;
        split[6] = end;
        runKernel(instance, "append_latents", split);
      }
      expect(split[0], `${what}, split`).toEqual(twin[0]);
      const blank = [k.slice().fill(7), v.slice().fill(7)] as const;
      const given: Arguments<"gather_latents"> = [...blank, args[0], shape, past, 0, tokens];
      const read = copyArguments<"gather_latents">(given);
      runKernel(instance, "gather_latents", given);
      gather_latents(...read);
      expect([given[0], given[1]], `${what}, read`).toEqual([read[0], read[1]]);
    }
  });
});

describe.each(builds)("attention_latents in the %s build", (build) => {
  const instance = load(build);

  function compareWithTwin(trial: Trial, what: string): void {
    const args = argumentsOf(trial);
    const twin = copyArguments<"attention_latents">(args);
    runKernel(instance, "attention_latents", args);
    attention_latents(...twin);
    const allowed = tolerance(trial);
    expect(worst(args[0], twin[0], () => allowed.out).excess, `${what}: out`).toBeLessThanOrEqual(0);
    expect(worst(trial.shape.lse!, twin[4].lse!, () => allowed.lse).excess, `${what}: lse`).toBeLessThanOrEqual(0);
  }

  test("is as near to float64 as its roundings allow, for any size and any rules", () => {
    for (const seed of sampledSeeds(1, 100, 9)) compareWithTwin(createLatentTrial(createRandom(seed)), `seed ${seed}`);
  });

  test.each([
    [8, 1],
    [8, 8],
    [16, 9],
    [24, 16],
    [64, 60],
    [72, 64],
    [136, 128],
    [576, 512],
  ])("takes headDim %i with valueDim %i, and 1 to 13 and 96 heads", (headDim, valueDim) => {
    const cases = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 96].flatMap((numHeads) =>
      FORMATS.slice(0, headDim > 100 && numHeads > 13 ? 1 : 3).map(([name, format]) => ({ numHeads, name, format })),
    );
    // The largest tile is of 12 rows.
    const edges = headDim > 500 ? [96] : [1, 12, 13, 96];
    const groupOf = ({ numHeads }: (typeof cases)[number]) => (edges.includes(numHeads) ? numHeads : 0);
    for (const { numHeads, name, format } of sampled(cases, 1, groupOf, headDim + valueDim)) {
      const trial = inLatentFormat(plain(numHeads, 1, headDim, valueDim, { numHeads, kvLen: 150 }), format);
      compareWithTwin(trial, `${numHeads} heads, ${name}`);
    }
  });

  test.each([1, 2, 3, 127, 128, 129, 130, 255, 256, 257])("takes %i keys, from any first one", (kvLen) => {
    const cases = [1, 2, 5, 13, 100].flatMap((qLen) => [UNBOUNDED, 0, 1, 2, 126].map((left) => ({ qLen, left })));
    for (const { qLen, left } of sampled(cases, 1, (each) => each.qLen, kvLen))
      compareWithTwin(plain(kvLen, qLen, 24, 13, { kvLen, left, numHeads: 2 }), `${qLen} queries, left ${left}`);
    // A window on both sides, and queries that begin before the keys or behind them.
    for (const qStart of [-3, 0, kvLen - 1, kvLen + 2])
      compareWithTwin(plain(kvLen, 7, 24, 13, { kvLen, left: 3, right: 2, qStart }), `from ${qStart}`);
  });

  test("no call boundary, no order, no tile and nothing masked can be seen in the bits, and each is the contract's", () => {
    expect(checkAttention(instance, 9000, calls(75, 8), build === "relaxed", "latents")).toBeUndefined();
  });

  test.each(FORMATS)("rows have the same bits however the heads of a token are cut, on pages of %s", (_, format) => {
    for (const numHeads of [5, 13, 96, 128]) {
      const trial = inLatentFormat(plain(numHeads, 3, 40, 30, { numHeads, kvLen: 131 }), format);
      const want = attendAll(instance, trial);
      const rows = 3 * numHeads;
      for (const size of sampled(
        [1, 2, 3, 4, 5, 6, 7, 8, 97],
        1,
        (each) => ([1, 8, 97].includes(each) ? each : 0),
        numHeads,
      )) {
        const cuts = Array.from({ length: Math.ceil(rows / size) }, (_, i): [number, number] => [
          i * size,
          Math.min(rows, (i + 1) * size),
        ]);
        expect(attendTokens(instance, trial, 0, 3, 131, 0xffffffff, cuts), `${numHeads} heads by ${size}`).toEqual(
          want,
        );
      }
    }
  });

  test("a row without keys is zeros with lse -Infinity, and nothing but its valueDim floats is written", () => {
    const trial = plain(1, 5, 16, 5, { numHeads: 2, outStride: 20, outHeadStride: 7, qStart: -3, kvLen: 4 });
    const args = argumentsOf(trial);
    runKernel(instance, "attention_latents", args);
    for (let i = 0; i < args[0].length; i++) {
      const written = i % 20 < 14 && (i % 20) % 7 < 5;
      if (!written) expect(args[0][i], `float ${i}`).toBe(7);
      else if (i < 60) expect(args[0][i], `float ${i}`).toBe(0);
      else expect(args[0][i], `float ${i}`).not.toBe(0);
    }
    const none = Number.NEGATIVE_INFINITY;
    expect([...trial.shape.lse!].map((lse) => lse === none)).toEqual([...Array(10).keys()].map((i) => i % 5 < 3));
  });
});
