// Caches of scaledDotProductAttention: the bits of the same keys and values as `past`, however they were appended.

import { describe, expect, test, vi } from "vitest";
import {
  type CacheOptions,
  createKvCache,
  HeadwiseError,
  type Kernels,
  type KvCache,
  type SdpaOptions,
  type SdpaResult,
  scaledDotProductAttention,
  type Tensor,
} from "../../src/entries/core.ts";
import { type CachePage, exportPages, importPages } from "../../src/entries/models.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { failKernels } from "../support/failing-kernels.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, shippedBuilds } from "../support/layers.ts";

type Format = NonNullable<CacheOptions["format"]>;

const AGING: Format = [
  { keys: "f32", values: "f32", tokens: 128 },
  { keys: "q8", values: "q8", tokens: 128 },
  { keys: "q8", values: "q4" },
];
const FORMATS: readonly Format[] = ["f32", AGING, "f16", "q8", { keys: "q4", values: "f32" }];
const SIZES = { numKvHeads: 2, headDim: 6, valueDim: 5 };

/** Queries, keys and values of `tokens` tokens, [batch, heads, len, dim] in either layout. */
interface Heads {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
}

function headsOf(random: Random, batch: number, tokens: number, bshd: boolean): Heads {
  const tensor = (heads: number, dim: number): Tensor => ({
    data: floats(random, batch * tokens * heads * dim),
    shape: bshd ? [batch, tokens, heads, dim] : [batch, heads, tokens, dim],
  });
  return { q: tensor(4, 6), k: tensor(2, 6), v: tensor(2, 5) };
}

/** Tokens begin..end of a tensor. */
function part({ data, shape }: Tensor, axis: 1 | 2, begin: number, end: number): Tensor {
  const outer = shape.slice(0, axis).reduce((a, b) => a * b, 1);
  const inner = shape.slice(axis + 1).reduce((a, b) => a * b, 1);
  const len = shape[axis] as number;
  const piece = new Float32Array(outer * (end - begin) * inner);
  for (let i = 0; i < outer; i++)
    piece.set(data.subarray((i * len + begin) * inner, (i * len + end) * inner), i * (end - begin) * inner);
  return { data: piece, shape: shape.map((length, i) => (i === axis ? end - begin : length)) };
}

function rulesOf(random: Random, left: number | undefined): SdpaOptions {
  const some = (probability: number) => random.next() < probability;
  return {
    ...(left === undefined ? { causal: true } : { window: { left, right: 0 } }),
    ...(some(0.3) && { softcap: 2 }),
    ...(some(0.3) && { alibi: "geometric" as const }),
    ...(some(0.3) && { sinkLogits: floats(random, 4) }),
  };
}

/** Attends with tokens begin..end. */
function step(kernels: Kernels, { q, k, v }: Heads, begin: number, end: number, options: SdpaOptions): SdpaResult {
  const axis = options.layout === "bshd" ? 1 : 2;
  const [a, b, c] = [q, k, v].map((tensor) => part(tensor, axis, begin, end)) as [Tensor, Tensor, Tensor];
  return scaledDotProductAttention(kernels, a, b, c, options);
}

describe.each(shippedBuilds)("in the %s build", (build) => {
  test("a prefill, chunks and tokens have the bits of one call, with every format, batch, layout and window", async () => {
    using kernels = await kernelsOf(build);
    for (let seed = 0; seed < 24; seed++) {
      const random = createRandom(seed);
      const batch = random.int(1, 3);
      const layout = random.int(0, 1) ? "bshd" : "bhsd";
      const axis = layout === "bshd" ? 1 : 2;
      const format = FORMATS[seed % FORMATS.length] as Format;
      const tokens = random.int(900, 1100);
      const heads = headsOf(random, batch, tokens, layout === "bshd");
      const left = random.int(0, 2) === 0 ? undefined : random.int(0, 300);
      const rules = { ...rulesOf(random, left), layout } as const;
      using whole = createKvCache(kernels, { ...SIZES, maxSeqLen: tokens, batch, format });
      using cache = createKvCache(kernels, {
        ...{ ...SIZES, maxSeqLen: 50_000, batch, format },
        ...(left !== undefined && { window: { left: left + random.int(0, 20) } }),
      });
      const once = step(kernels, heads, 0, tokens, { ...rules, cache: whole, lse: true });
      if (format === "f32") {
        const plain = step(kernels, heads, 0, tokens, { ...rules, lse: true });
        expect(firstDifference(once.output.data, plain.output.data), `seed ${seed}`).toBe(-1);
      }
      for (let past = 0; past < tokens; ) {
        const end = Math.min(
          tokens,
          past + ([1, 1, random.int(1, 60), random.int(1, 500)][random.int(0, 3)] as number),
        );
        const { output, lse } = step(kernels, heads, past, end, { ...rules, cache, lse: true });
        const name = `seed ${seed}, ${past} to ${end}`;
        expect(firstDifference(output.data, part(once.output, axis, past, end).data), name).toBe(-1);
        expect(firstDifference((lse as Tensor).data, part(once.lse as Tensor, 2, past, end).data), name).toBe(-1);
        past = end;
        if (format !== AGING && random.int(0, 3) === 0) {
          past = Math.max(0, cache.start > 0 ? cache.start + (left ?? 0) + 20 : 0, past - random.int(0, 128));
          past = Math.min(past, end);
          cache.truncate(past);
        }
      }
      expect(cache.length).toBe(tokens);
      expect(cache.start > 0).toBe(left !== undefined);
    }
  });

  test("a cache has the bits of `past`, with scores at every stage, masks, and other numbers of keys", async () => {
    using kernels = await kernelsOf(build);
    for (let seed = 50; seed < 70; seed++) {
      const random = createRandom(seed);
      const [batch, held, added] = [random.int(1, 2), random.int(1, 300), random.int(0, 70)];
      const all = headsOf(random, batch, held + added, false);
      const q = headsOf(random, batch, random.int(1, 40), false).q;
      const [k, v] = [part(all.k, 2, held, held + added), part(all.v, 2, held, held + added)];
      using cache = createKvCache(kernels, { ...SIZES, maxSeqLen: 400, batch });
      step(kernels, all, 0, held, { cache });
      const kvLen = held + added;
      const options: SdpaOptions = {
        ...rulesOf(random, [undefined, 30][random.int(0, 1)]),
        ...(random.int(0, 1) === 1 && { causal: false }),
        ...(random.int(0, 1) === 1 && { bias: { data: floats(random, kvLen), shape: [kvLen] } }),
        ...(random.int(0, 1) === 1 && { kvLengths: Array<number>(batch).fill(kvLen - 1) }),
        scores: (["raw", "softcapped", "masked", "weights"] as const)[random.int(0, 3)],
        lse: true,
      };
      const past = { key: part(all.k, 2, 0, held), value: part(all.v, 2, 0, held) };
      const want = scaledDotProductAttention(kernels, q, k, v, { ...options, past });
      const got = scaledDotProductAttention(kernels, q, k, v, { ...options, cache });
      for (const name of ["output", "scores", "lse"] as const) {
        expect(got[name]?.shape).toEqual(want[name]?.shape);
        expect(firstDifference((got[name] as Tensor).data, (want[name] as Tensor).data), `seed ${seed} ${name}`).toBe(
          -1,
        );
      }
      expect(cache.length).toBe(kvLen);
      expect(cache.read()).toEqual({ key: all.k, value: all.v });
    }
  });
});

test("tensors of rank 3 are one sequence: the bits of rank 4, and all results of rank 3", async () => {
  using kernels = await kernelsOf("simd");
  const random = createRandom(1);
  for (const layout of ["bhsd", "bshd"] as const) {
    const heads = headsOf(random, 1, 40, layout === "bshd");
    const axis = layout === "bshd" ? 1 : 2;
    const flat = ({ data, shape }: Tensor): Tensor => ({ data, shape: shape.slice(1) });
    const options = { causal: true, layout, present: true, lse: true, scores: "weights" } as const;
    const [q, k, v] = [heads.q, heads.k, heads.v].map((tensor) => part(tensor, axis, 10, 40)) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    const past = { key: part(heads.k, axis, 0, 10), value: part(heads.v, axis, 0, 10) };
    for (const given of [undefined, past]) {
      const flatPast = given && { key: flat(given.key), value: flat(given.value) };
      const want = scaledDotProductAttention(kernels, q, k, v, { ...options, ...(given && { past: given }) });
      const got = scaledDotProductAttention(kernels, flat(q), flat(k), flat(v), {
        ...options,
        ...(flatPast && { past: flatPast }),
      });
      expect(got.output).toEqual(flat(want.output));
      expect(got.scores).toEqual(flat(want.scores as Tensor));
      expect(got.lse).toEqual(flat(want.lse as Tensor));
      expect(got.present?.key).toEqual(flat(want.present?.key as Tensor));
      expect(got.present?.value).toEqual(flat(want.present?.value as Tensor));
      const kvLen = given ? 40 : 30;
      expect(got.output.shape).toEqual(layout === "bshd" ? [30, 4, 5] : [4, 30, 5]);
      expect([got.scores?.shape, got.lse?.shape]).toEqual([
        [4, 30, kvLen],
        [4, 30],
      ]);
      expect(got.present?.value.shape).toEqual(layout === "bshd" ? [kvLen, 2, 5] : [2, kvLen, 5]);
    }
    using cache = createKvCache(kernels, { ...SIZES, maxSeqLen: 40 });
    scaledDotProductAttention(kernels, flat(q), flat(past.key), flat(past.value), { layout, cache });
    const cached = scaledDotProductAttention(kernels, flat(q), flat(k), flat(v), { causal: true, layout, cache });
    const whole = scaledDotProductAttention(kernels, q, k, v, { causal: true, layout, past });
    expect(cached.output).toEqual(flat(whole.output));
  }
});

test("pages move to another cache, and a call that fails leaves the cache as it was", async () => {
  using kernels = await kernelsOf("simd");
  for (const format of ["f32", AGING] as const) {
    const random = createRandom(3);
    const heads = headsOf(random, 2, 900, false);
    const window = { left: 140 };
    const make = (): KvCache => createKvCache(kernels, { ...SIZES, maxSeqLen: 5000, batch: 2, format, window });
    const options = { window: { left: 140, right: 0 } };
    const [cache, copy] = [make(), make()];
    step(kernels, heads, 0, 600, { ...options, cache });
    const pages = exportPages(cache);
    for (const count of [1, 2, 7]) {
      const restore = failKernels(kernels, ["attention_f32", "attention_pages"], count);
      expect(() => step(kernels, heads, 600, 900, { ...options, cache })).toThrow("failed");
      restore();
      expect(exportPages(cache)).toEqual(pages);
    }
    importPages(copy, pages, 600);
    const [got, want] = [copy, cache].map((each) => step(kernels, heads, 600, 900, { ...options, cache: each })) as [
      SdpaResult,
      SdpaResult,
    ];
    expect(firstDifference(got.output.data, want.output.data)).toBe(-1);
    expect(exportPages(copy)).toEqual(exportPages(cache));
    cache.release();
    copy.release();
  }
});

test("queries behind 2^30 tokens attend all keys after their own position", async () => {
  using kernels = await kernelsOf("simd");
  const random = createRandom(4);
  const heads = headsOf(random, 1, 700, false);
  const options = { window: { left: 100 } };
  const [near, far] = [700, 2 ** 30 + 5000].map((maxSeqLen) =>
    createKvCache(kernels, { ...SIZES, maxSeqLen, window: { left: 100 }, truncatable: 200 }),
  ) as [KvCache, KvCache];
  step(kernels, heads, 0, 640, { window: { left: 100, right: 0 }, cache: near });
  const pages = exportPages(near).slice(2);
  const ahead = 2 ** 23;
  importPages(
    far,
    pages.map(({ index, bytes }) => ({ index: index + ahead, bytes })),
    ahead * 128 + 640,
  );
  const [want, got] = [near, far].map((cache) => step(kernels, heads, 640, 700, { ...options, cache })) as [
    SdpaResult,
    SdpaResult,
  ];
  expect(firstDifference(got.output.data, want.output.data)).toBe(-1);
});

test("importPages takes no page beyond the last, also for a window that needs none of its tokens", async () => {
  using kernels = await kernelsOf("simd");
  const options = { ...SIZES, maxSeqLen: 1280, window: { left: 0 } };
  const [cache, other] = [createKvCache(kernels, options), createKvCache(kernels, options)];
  step(kernels, headsOf(createRandom(5), 1, 1280, false), 0, 1280, { window: { left: 0, right: 0 }, cache });
  const [page] = exportPages(cache).slice(-1) as [CachePage];
  expect(() => importPages(other, [{ ...page, index: 10 }], 1280)).toThrow(
    /^importPages: pages\[9\].index expected 9, got 10$/,
  );
  expect(other.length).toBe(0);
});

test("an engine that has no memory for `present` is reported by name", async () => {
  using kernels = await kernelsOf("simd");
  const { q, k, v } = headsOf(createRandom(5), 1, 300, false);
  const refusing = new Proxy(Float32Array, {
    construct(target, args) {
      if (args[0] === k.data.length) throw new RangeError("Array buffer allocation failed");
      return Reflect.construct(target, args);
    },
  });
  const one = part(q, 2, 0, 1);
  const past = { key: part(k, 2, 0, 100), value: part(v, 2, 0, 100) };
  const [rest, values] = [part(k, 2, 100, 300), part(v, 2, 100, 300)];
  for (const run of [
    () => scaledDotProductAttention(kernels, one, k, v, { present: true }),
    () => scaledDotProductAttention(kernels, one, rest, values, { past, present: true }),
  ]) {
    vi.stubGlobal("Float32Array", refusing);
    let error: unknown;
    try {
      run();
    } catch (thrown) {
      error = thrown;
    }
    vi.unstubAllGlobals();
    const text = "scaledDotProductAttention: present of 3600 floats does not fit, the engine refused";
    const cause = new RangeError("Array buffer allocation failed");
    expect(error).toEqual(new HeadwiseError("OUT_OF_MEMORY", text, { cause }));
  }
});

test("kernels that are released while the options of a cache are read are refused by name, and nothing is allocated", async () => {
  const kernels = await kernelsOf("simd");
  const options = {
    ...SIZES,
    get maxSeqLen() {
      kernels.release();
      return 128;
    },
  };
  expect(() => createKvCache(kernels, options)).toThrow(
    new HeadwiseError("RELEASED", "createKvCache: kernels was released"),
  );
});
