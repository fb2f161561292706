// Arguments that run code while they are read: getters and Proxies that release a handle, or detach or shrink an array that
// was read before. A call reads each field once, and either gives the right result or a named error that changes nothing.

import { describe, expect, test } from "vitest";
import type { Attention, Cache, Kernels } from "../../src/entries/core.ts";
import * as core from "../../src/entries/core.ts";
import { createLatentAttention, planLatent } from "../../src/entries/latent.ts";
import * as sessions from "../../src/entries/models.ts";
import { quantizeReport } from "../../src/entries/quantized.ts";
import * as files from "../../src/entries/weights.ts";
import { quantizeTensor, toFloats, writeSafetensors } from "../../src/entries/weights.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { deepseekTensors, V3 } from "../support/deepseek-layers.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf } from "../support/layers.ts";
import { wasmOf } from "../support/modules.ts";
import { calls, sampled } from "../support/sampled.ts";

const headwise = { ...core, ...sessions, ...files };

/** Handles of one trial, which it may release. */
interface World {
  readonly kernels: Kernels;
  readonly attention: Attention;
  /** Holds three tokens. */
  readonly cache: Cache;
  readonly empty: Cache;
}

type Arguments = Readonly<Record<string, unknown>>;

interface Case {
  readonly name: string;
  /** Fresh arguments. */
  readonly make: (world: World) => Arguments;
  /** Calls the function; gives all floats of the result. */
  readonly run: (args: never, world: World) => Promise<Float32Array> | Float32Array;
}

const random = createRandom(5);

/** Numbers in memory that can shrink. */
function resizable(length: number, numbers = floats(random, length)): Float32Array {
  const bytes = 4 * length;
  const Resizable = ArrayBuffer as unknown as new (bytes: number, options: { maxByteLength: number }) => ArrayBuffer;
  const array = new Float32Array(new Resizable(bytes, { maxByteLength: bytes }));
  array.set(numbers);
  return array;
}

function shrink({ buffer }: ArrayBufferView): void {
  (buffer as unknown as { resize(bytes: number): void }).resize(4);
}

const detach = ({ buffer }: ArrayBufferView): void =>
  void structuredClone(buffer, { transfer: [buffer as ArrayBuffer] });

const tensor = (...shape: number[]) => ({ data: resizable(shape.reduce((a, b) => a * b, 1)), shape });
const bytesOf = (length: number) => new Uint8Array(resizable(length / 4).buffer);

const config = () => ({
  dModel: 12,
  numHeads: 4,
  numKvHeads: 2,
  headDim: 4,
  causal: true,
  window: { left: 8 },
  alibi: resizable(4, Float32Array.of(0.1, 0.2, 0.3, 0.4)),
  rope: rope(),
  qkNorm: { kind: "per-head" as const },
});

const rope = () => ({
  ...{ theta: 100, pairing: "half" as const, dim: 4 },
  scaling: { kind: "factors" as const, factors: resizable(2, Float32Array.of(1, 2)) },
});

const weights = () => ({
  wq: tensor(16, 12),
  wk: tensor(8, 12),
  wv: { name: "v", dtype: "F16", shape: [8, 12], bytes: bytesOf(192).fill(1) },
  wo: tensor(12, 16),
  bq: resizable(16),
  qNorm: resizable(4),
  kNorm: resizable(4),
  sinkLogits: resizable(4),
});

function makeWorld(kernels: Kernels): World {
  const matrix = (rows: number, columns: number) => ({
    data: FIXED.subarray(0, rows * columns),
    shape: [rows, columns],
  });
  const parts = { wq: matrix(16, 12), wk: matrix(8, 12), wv: matrix(8, 12), wo: matrix(12, 16) };
  const norms = { qNorm: FIXED.subarray(0, 4), kNorm: FIXED.subarray(4, 8) };
  const attention = headwise.createAttention(kernels, config(), { ...parts, ...norms });
  const cache = headwise.createCache(attention, { maxSeqLen: 9 });
  headwise.attend(attention, FIXED.subarray(0, 36), { cache });
  return { kernels, attention, cache, empty: headwise.createCache(attention, { maxSeqLen: 9 }) };
}

const FIXED = floats(random, 200);

const masks = () => ({
  keep: { data: [true, true, false], shape: [3] },
  drop: { data: bytesOf(12).fill(0).subarray(0, 9), shape: [3, 3] },
  bias: tensor(4, 3, 3),
});

const CASES: readonly Case[] = [
  {
    name: "createAttention",
    make: () => ({
      config: config(),
      weights: weights(),
      options: { weights: { q: "q8" } },
    }),
    run({ config, weights, options }: never, { kernels }) {
      using attention = headwise.createAttention(kernels, config, weights, options);
      return headwise.attend(attention, FIXED.subarray(0, 36));
    },
  },
  {
    name: "createLatentAttention",
    make: () => ({
      config: {
        ...{ dModel: 12, numHeads: 2, kvLoraRank: 5, nopeDim: 3, ropeDim: 4, causal: true },
        rope: { theta: 100, pairing: "half", scaling: rope().scaling },
      },
      weights: {
        ...{ wq: tensor(14, 12), kvNorm: resizable(5), wkvUp: tensor(12, 5), wo: tensor(12, 6) },
        wkvDown: { name: "kv", dtype: "F16", shape: [9, 12], bytes: bytesOf(216).fill(1) },
      },
      options: { weights: { q: "q8" }, expanded: true },
    }),
    run({ config, weights, options }: never, { kernels }) {
      using attention = createLatentAttention(kernels, config, weights, options);
      return headwise.attend(attention, FIXED.subarray(0, 36), { path: "expanded" });
    },
  },
  {
    name: "planLatent",
    make: () => ({
      config: {
        ...{ dModel: 12, numHeads: 2, kvLoraRank: 5, nopeDim: 3, ropeDim: 4, causal: true },
        rope: { theta: 100, pairing: "half", scaling: rope().scaling },
      },
      sizes: {
        ...{ batch: 1, qLen: 3, maxSeqLen: 300, maps: true, path: "expanded", expanded: true, format: "q8" },
        keep: { data: [true, true, false], shape: [3] },
        bias: tensor(2, 3, 3),
        weights: { q: "q8" },
      },
    }),
    run({ config, sizes }: never) {
      const { weights, cache, scratch, call, total } = planLatent(config, sizes);
      return Float32Array.of(weights, cache, scratch, call, total);
    },
  },
  {
    name: "createCache",
    make: () => ({
      options: {
        maxSeqLen: 5,
        batch: 1,
        format: [
          { keys: "f16", values: "f32", tokens: 128 },
          { keys: "q8", values: "q8" },
        ],
      },
    }),
    run({ options }: never, { attention }) {
      using cache = headwise.createCache(attention, options);
      return Float32Array.of(cache.bytes);
    },
  },
  ...(["attend", "attendWithMaps", "attendAsync", "attendMany"] as const).flatMap((name): Case[] => {
    const run: Case["run"] = ({ x, options }: { x: Float32Array; options: core.AttendOptions }, { attention }) => {
      if (name === "attend") return headwise.attend(attention, x, options);
      if (name === "attendWithMaps") return headwise.attendWithMaps(attention, x, options).y;
      if (name === "attendAsync") return headwise.attendAsync(attention, x, options);
      return headwise.attendMany(attention, [options as core.AttendManyCall])[0] as Float32Array;
    };
    // The calls of attendMany hold x.
    const args = (x: Float32Array, options: object): Arguments =>
      name === "attendMany" ? { options: { ...options, x } } : { x, options };
    return [
      { name, run, make: () => args(resizable(36), { ...masks(), kvLengths: [3], positions: [2, 3, 4] }) },
      { name, run, make: () => args(resizable(36), { keys: resizable(24), values: resizable(24), align: "end" }) },
      {
        name,
        run,
        make: ({ cache }) => args(resizable(12), { cache, out: resizable(12), positions: { 0: 3, length: 1 } }),
      },
    ];
  }),
  {
    name: "scaledDotProductAttention",
    make: () => ({
      ...{ q: tensor(1, 4, 3, 4), k: tensor(1, 2, 3, 4), v: tensor(1, 2, 3, 4) },
      options: {
        ...masks(),
        kvLengths: [3],
        sinkLogits: resizable(4),
        alibi: resizable(4, Float32Array.of(0.1, 0.2, 0.3, 0.4)),
        window: { left: 1 },
        align: "start",
      },
    }),
    run: ({ q, k, v, options }: never, { kernels }) =>
      headwise.scaledDotProductAttention(kernels, q, k, v, options).output.data,
  },
  {
    name: "scaledDotProductAttention",
    make: () => ({
      ...{ q: tensor(1, 4, 2, 4), k: tensor(1, 2, 2, 4), v: tensor(1, 2, 2, 4) },
      options: { past: { key: tensor(1, 2, 1, 4), value: tensor(1, 2, 1, 4) }, causal: true },
    }),
    run: ({ q, k, v, options }: never, { kernels }) =>
      headwise.scaledDotProductAttention(kernels, q, k, v, options).output.data,
  },
  {
    name: "applyRope",
    make: () => ({
      x: tensor(1, 3, 2, 6),
      options: { cos: tensor(3, 2), sin: tensor(3, 2), pairing: "half", positions: [2, 1, 0].slice(0, 2) },
    }),
    run: ({ x, options }: never, { kernels }) => headwise.applyRope(kernels, x, options).data,
  },
  {
    name: "splitHeads",
    make: () => ({ x: tensor(3, 4) }),
    run: ({ x }: never, { kernels }) => headwise.splitHeads(kernels, x, 2).data,
  },
  {
    name: "mergeHeads",
    make: () => ({ x: tensor(3, 4, 2) }),
    run: ({ x }: never, { kernels }) => headwise.mergeHeads(kernels, x).data,
  },
  {
    name: "ropeTables",
    make: () => ({ rope: rope(), positions: [1, 2] }),
    run: ({ rope, positions }: never) => headwise.ropeTables(rope, positions).cos.data,
  },
  {
    name: "createKvCache",
    make: () => ({ options: { numKvHeads: 2, headDim: 4, valueDim: 8, maxSeqLen: 300, window: { left: 5 } } }),
    run({ options }: never, { kernels }) {
      using cache = headwise.createKvCache(kernels, options);
      return Float32Array.of(cache.bytes);
    },
  },
  {
    name: "createLinear",
    make: () => ({
      weights: { weight: tensor(5, 12), bias: resizable(5), layout: "out-in" },
      options: { weights: "q8", activations: "fast" },
    }),
    run({ weights, options }: never, { kernels }) {
      using layer = headwise.createLinear(kernels, weights, options);
      return headwise.linear(layer, FIXED.subarray(0, 36));
    },
  },
  ...(["linear", "linearAsync"] as const).map(
    (name): Case => ({
      name,
      make: () => ({ x: resizable(24), options: { out: resizable(10) } }),
      async run({ x, options }: { x: Float32Array; options: core.LinearOptions }, { kernels }) {
        using layer = headwise.createLinear(kernels, { weight: { data: FIXED.subarray(0, 60), shape: [5, 12] } });
        const y = await headwise[name](layer, x, options);
        // Only that of `out` can.
        expect((y.buffer as { readonly resizable?: boolean }).resizable).toBe(true);
        return y;
      },
    }),
  ),
  {
    name: "plan",
    make: () => ({
      config: config(),
      sizes: {
        ...{ batch: 1, qLen: 3, maxSeqLen: 300, truncatable: 128, maps: true, extraKey: true },
        keep: { data: [true, true, false], shape: [3] },
        bias: tensor(4, 3, 3),
        format: [
          { keys: "f16", values: "f32", tokens: 128 },
          { keys: "q8", values: "q8" },
        ],
        weights: { q: "q8" },
      },
    }),
    run({ config, sizes }: never) {
      const { weights, cache, scratch, total } = headwise.plan(config, sizes);
      return Float32Array.of(weights, cache, scratch, total);
    },
  },
  {
    name: "planLinear",
    make: () => ({ sizes: { outputs: 100, inputs: 50 }, options: { rows: 3, weights: "q4" } }),
    run({ sizes, options }: never) {
      const { weights, scratch, total } = headwise.planLinear(sizes, options);
      return Float32Array.of(weights, scratch, total);
    },
  },
  {
    name: "quantizeReport",
    make: () => ({
      samples: [resizable(24), resizable(12)],
      options: {
        trials: [
          { weights: { q: "q8", k: "f16" }, activations: "fast" },
          { weights: "q4", cache: { keys: "f16", values: "q4" } },
        ],
      },
    }),
    run({ samples, options }: never, { attention }) {
      const results = quantizeReport(attention, samples, options);
      return Float32Array.from(results.flatMap(({ output, cacheBytes }) => [output.relative, cacheBytes]));
    },
  },
  {
    name: "toFloats",
    make: () => ({ tensor: { name: "w", dtype: "F16", shape: [2, 12], bytes: bytesOf(48).fill(1) } }),
    run: ({ tensor }: never) => toFloats(tensor),
  },
  ...[() => tensor(2, 32), () => ({ name: "w", dtype: "BF16", shape: [2, 32], bytes: bytesOf(128).fill(1) })].map(
    (tensor): Case => ({
      name: "quantizeTensor",
      make: () => ({ tensor: tensor() }),
      run: ({ tensor }: never) => Float32Array.from(quantizeTensor(tensor, "Q8_0").bytes),
    }),
  ),
  {
    name: "writeSafetensors",
    make: () => ({
      tensors: {
        a: tensor(2, 3),
        b: { dtype: "F16", shape: [2, 2], bytes: bytesOf(8) },
        c: { dtype: "Q8_0", shape: [2, 32], bytes: bytesOf(68) },
      },
      metadata: { made: "here" },
    }),
    run: ({ tensors, metadata }: never) => Float32Array.from(writeSafetensors(tensors, metadata)),
  },
  {
    name: "importPages",
    make: ({ cache }) => {
      const [page] = headwise.exportPages(cache) as [sessions.CachePage];
      const bytes = bytesOf(page.bytes.length);
      bytes.set(page.bytes);
      const pages = {
        page: { index: 0, bytes },
        *[Symbol.iterator]() {
          yield this.page;
        },
      };
      return { pages };
    },
    run({ pages }: { pages: Iterable<sessions.CachePage> }, { empty }) {
      headwise.importPages(empty, pages, 3);
      return empty.read().value.data;
    },
  },
  ...[
    {
      ...{ model_type: "gemma3", model_name: "any" },
      text_config: {
        ...{ hidden_size: 24, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 6, num_hidden_layers: 2 },
        ...{ layer_types: ["full_attention", "sliding_attention"], sliding_window: 5, rope_local_base_freq: 100 },
        ...{ rope_scaling: { rope_type: "linear", factor: 8 }, query_pre_attn_scalar: 9 },
      },
    },
    {
      ...{ model_type: "llama", hidden_size: 24, num_attention_heads: 4, num_hidden_layers: 2 },
      ...{ rope_parameters: { rope_type: "yarn", rope_theta: 500, factor: 4, original_max_position_embeddings: 64 } },
      ...{ max_position_embeddings: 256, kv_lora_rank: null, no_rope_layers: [1, 1], v_head_dim: 6 },
    },
  ].map(
    (json): Case => ({
      name: "fromHfConfig",
      make: () => structuredClone({ json, options: { layer: 1, prefix: "model.", relativeBias: false } }),
      run: ({ json, options }: never) => lettersOf(JSON.stringify(headwise.fromHfConfig(json, options))),
    }),
  ),
  {
    name: "fromHfLatentConfig",
    make: () => structuredClone({ json: { model_type: "kimi_vl", text_config: V3 }, options: { layer: 1 } }),
    run: ({ json, options }: never) => lettersOf(JSON.stringify(headwise.fromHfLatentConfig(json, options))),
  },
  {
    name: "permuteRope",
    make: () => ({ weight: tensor(8, 3) }),
    run: ({ weight }: never) => headwise.permuteRope(weight as core.Tensor, 2, "half").data,
  },
  {
    name: "permuteRope",
    make: () => ({ weight: { name: "w", dtype: "F16", shape: [8, 6], bytes: bytesOf(96) } }),
    run: ({ weight }: never) =>
      Float32Array.from(headwise.permuteRope(weight as files.StoredTensor, 2, "interleaved").bytes),
  },
];

const lettersOf = (text: string) => Float32Array.from(text, (letter) => letter.charCodeAt(0));

const isOpen = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !ArrayBuffer.isView(value) && !("released" in value);

/** A value whose records and lists report each field that is read, by its path. */
function watched<T>(value: T, seen: (path: string) => void, path = ""): T {
  if (!isOpen(value)) return value;
  return new Proxy(value, {
    get(target, key) {
      const field = Reflect.get(target, key);
      const isMethod = typeof key === "symbol" || typeof field === "function";
      if (isMethod && key !== Symbol.iterator) return field;
      const inner = path === "" ? String(key) : `${path}.${String(key)}`;
      // The arguments themselves are no fields.
      if (path !== "") seen(inner);
      return watched(field, seen, inner);
    },
  });
}

/** The typed arrays in arguments, with their paths. */
function arraysIn(value: unknown, path = ""): [path: string, array: ArrayBufferView][] {
  if (ArrayBuffer.isView(value)) return [[path, value]];
  return isOpen(value) ? Object.entries(value).flatMap(([key, inner]) => arraysIn(inner, `${path}.${key}`)) : [];
}

/** A value whose records inherit their fields. */
function heir<T>(value: T): T {
  if (Array.isArray(value)) return value.map(heir) as T;
  if (!isOpen(value)) return value;
  const fields = Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, heir(inner)]));
  // Methods with symbols, too.
  return Object.create({ ...value, ...fields });
}

const UNCHECKED =
  /Cannot |is not |not iterable|unreachable|out of bounds|typed array|allocation failed|Invalid |\[object/;

test("whatever reading an argument does, the result is right or a named error, and nothing has changed after an error", async () => {
  using kernels = await kernelsOf("simd");
  const [module, ofWeights, ofCaches, latents] = await Promise.all(
    ["simd", "weights-simd", "caches-simd", "latents-simd"].map((name) => WebAssembly.compile(wasmOf(name))),
  );
  const quantized = { simd: { weights: ofWeights, caches: ofCaches } };
  const compiled = { module, quantized, latent: { simd: { latents } } } as core.LoadOptions;
  let trials = 0;
  for (const { name, make, run } of CASES) {
    const plain = makeWorld(kernels);
    const first = make(plain);
    const numbers = arraysIn(first).map(([, array]) => (array as Float32Array).slice());
    /** Fresh arguments with the numbers of the first ones. */
    const again = (world: World) => {
      const args = make(world);
      for (const [i, [, array]] of arraysIn(args).entries()) (array as Float32Array).set(numbers[i] as Float32Array);
      return args;
    };
    const want = (await run(again(plain) as never, plain)).slice();
    for (const each of [plain.empty, plain.cache, plain.attention]) each.release();

    const counts = new Map<string, number>();
    const world = makeWorld(kernels);
    const counted = watched(again(world), (path) => counts.set(path, (counts.get(path) ?? 0) + 1));
    expect(firstDifference(await run(counted as never, world), want), name).toBe(-1);
    expect(
      [...counts].filter(([, count]) => count > 1),
      `${name}: fields read more than once`,
    ).toEqual([]);
    for (const each of [world.empty, world.cache, world.attention]) each.release();

    const acts: Record<string, (world: World, args: Arguments) => void> = {
      "release the kernels": (world) => world.kernels.release(),
      "release the attention": (world) => world.attention.release(),
      "release the caches": ({ cache, empty }) => [cache, empty].map((each) => each.release()),
    };
    for (const [i, [path]] of arraysIn(first).entries()) {
      acts[`detach ${path}`] = (_, args) => detach(arraysIn(args)[i]?.[1] as Float32Array);
      acts[`shrink ${path}`] = (_, args) => shrink(arraysIn(args)[i]?.[1] as Float32Array);
    }
    const pairs = [...counts.keys()].flatMap((path) => Object.keys(acts).map((what) => ({ path, what })));
    for (const { path, what } of sampled(pairs, 2, (each) => each.path, pairs.length)) {
      const act = acts[what] as (typeof acts)[string];
      const own = what === "release the kernels" ? await headwise.loadKernels(compiled as never) : kernels;
      const world = makeWorld(own);
      const args = again(world);
      // Scratch is as large as the first call has left it.
      const before = own.usedBytes;
      let done = false;
      const hostile = watched(args, (read) => {
        if (read !== path || done) return;
        done = true;
        act(world, args);
      });
      const title = `${name}: reading ${path} will ${what}`;
      let thrown: unknown;
      let got: Float32Array | undefined;
      try {
        got = await run(hostile as never, world);
      } catch (error) {
        thrown = error;
      }
      if (got) expect(firstDifference(got, want), title).toBe(-1);
      else {
        const { message, constructor: kind } = thrown as Error;
        expect([TypeError, RangeError, core.HeadwiseError], `${title}: ${message}`).toContain(kind);
        expect(message, title).toMatch(new RegExp(`^${name}(, call 0)?: `));
        expect(message, title).not.toMatch(UNCHECKED);
        if (!world.cache.released) expect(world.cache.length, title).toBe(3);
        if (!what.startsWith("release")) expect(own.usedBytes, title).toBe(before);
      }
      for (const each of [world.empty, world.cache, world.attention]) each.release();
      if (own !== kernels) own.release();
      trials++;
    }
  }
  expect(trials).toBeGreaterThan(calls(1000, 300));
});

test("fields that records inherit, such as those of a class, have the effect of own ones", async () => {
  using kernels = await kernelsOf("simd");
  for (const { name, make, run } of CASES) {
    // Their records hold what a file holds, by whatever names: only own ones count.
    if (["writeSafetensors", "fromHfConfig", "fromHfLatentConfig"].includes(name)) continue;
    const [plain, world] = [makeWorld(kernels), makeWorld(kernels)];
    const args = make(plain);
    const numbers = arraysIn(args).map(([, array]) => (array as Float32Array).slice());
    const want = (await run(args as never, plain)).slice();
    const same = make(world);
    for (const [i, [, array]] of arraysIn(same).entries()) (array as Float32Array).set(numbers[i] as Float32Array);
    const inherited = Object.fromEntries(Object.entries(same).map(([key, value]) => [key, heir(value)]));
    expect(firstDifference(await run(inherited as never, world), want), name).toBe(-1);
    for (const each of [plain, world]) for (const handle of [each.empty, each.cache, each.attention]) handle.release();
  }
});

describe("each field is read once by", () => {
  const readOnce = (args: object, run: (args: never) => object) => {
    const counts = new Map<string, number>();
    const seen = (path: string) => counts.set(path, (counts.get(path) ?? 0) + 1);
    const result = run(watched(args, seen) as never);
    // Before the comparison, which reads what the result has of the arguments.
    const twice = [...counts].filter(([, count]) => count > 1);
    expect(twice).toEqual([]);
    expect(counts.size).toBeGreaterThan(20);
    expect(result).toEqual(run(args as never));
  };

  test("readAttentionWeights", () => {
    const parts = ["q", "k", "v"].flatMap((part) => [
      { name: `${part}_proj.weight`, dtype: "F16", shape: [4, 4], bytes: bytesOf(32) },
      { name: `${part}_proj.bias`, dtype: "F32", shape: [4], bytes: bytesOf(16) },
    ]);
    const stored = [...parts, { name: "o_proj.weight", dtype: "F32", shape: [4, 4], bytes: bytesOf(64) }];
    const given = Object.fromEntries(stored.map((each) => [each.name, each]));
    const config = { numHeads: 2, numKvHeads: 2, headDim: 2, fused: "qkv" };
    readOnce({ given, config }, ({ given, config }: never) => {
      const tensors = new Map<string, files.StoredTensor>(Object.entries(given));
      return headwise.readAttentionWeights({ metadata: new Map(), tensors }, "", config);
    });
  });

  test("readLatentWeights", () => {
    const stored = Object.entries(deepseekTensors(createRandom(1), V3)).map(([name, { data, shape }]) => {
      const bytes = bytesOf(4 * data.length);
      bytes.set(new Uint8Array(data.buffer));
      return [name, { name, dtype: "F32", shape, bytes }] as const;
    });
    readOnce({ given: Object.fromEntries(stored) }, ({ given }: never) => {
      const tensors = new Map<string, files.StoredTensor>(Object.entries(given));
      return headwise.readLatentWeights({ metadata: new Map(), tensors });
    });
  });

  test("convertToGqa", () => {
    const matrices = { wq: tensor(8, 8), wk: tensor(8, 8), wv: tensor(8, 8), wo: tensor(8, 8) };
    const weights = { ...matrices, bk: resizable(8), bv: resizable(8), qNorm: resizable(2), layout: "out-in" };
    const config = { numHeads: 4, numKvHeads: 4, headDim: 2, valueDim: 2, qkNorm: { kind: "per-head" }, causal: true };
    readOnce({ weights, config }, ({ weights, config }: never) => headwise.convertToGqa(weights, config, 2));
    const { qkNorm: _, ...free } = config;
    const { qNorm: __, ...some } = weights;
    const given = {
      weights: some,
      config: { ...free, rope: { theta: 10, pairing: "half" } },
      options: { method: "svd" },
    };
    readOnce(given, ({ weights, config, options }: never) => headwise.convertToGqa(weights, config, 2, options));
  });

  test("convertToMla", () => {
    const matrices = { wq: tensor(8, 8), wk: tensor(2, 8), wv: tensor(2, 8), wo: tensor(8, 8) };
    const weights = {
      ...matrices,
      bq: resizable(8),
      bk: resizable(2),
      bv: resizable(2),
      bo: resizable(8),
      layout: "out-in",
    };
    const config = {
      ...{ dModel: 8, numHeads: 4, numKvHeads: 1, headDim: 2, causal: true, scale: 0.5, softcap: 3 },
      rope: { theta: 10, pairing: "half" },
    };
    readOnce({ weights, config, options: { rank: 1 } }, ({ weights, config, options }: never) =>
      headwise.convertToMla(weights, config, options),
    );
  });

  test("countParameters", () => {
    const config = {
      ...{ dModel: 8, numHeads: 4, kvLoraRank: 4, qLoraRank: 3, nopeDim: 2, ropeDim: 2, valueDim: 3, causal: true },
      ...{
        rope: { theta: 10, pairing: "half", scaling: { kind: "linear", factor: 2 } },
        latentNorm: true,
        normEps: 1e-5,
        scale: 0.5,
        softcap: 3,
      },
    };
    readOnce({ config, options: { biases: ["bq", "bo", "bkvDown"] } }, ({ config, options }: never) =>
      headwise.countParameters(config, options),
    );
  });

  test("createLatentAttention", async () => {
    using kernels = await kernelsOf("simd");
    const config = {
      ...{ dModel: 12, numHeads: 2, kvLoraRank: 5, qLoraRank: 3, nopeDim: 3, ropeDim: 4, valueDim: 2, causal: true },
      ...{ rope: { theta: 100, pairing: "half", scaling: rope().scaling }, latentNorm: true, normEps: 1e-5 },
      ...{ scale: 0.3, softcap: 3 },
    };
    const weights = {
      ...{
        wqDown: tensor(3, 12),
        wqUp: tensor(14, 3),
        wkvDown: tensor(9, 12),
        wkvUp: tensor(10, 5),
        wo: tensor(12, 4),
      },
      ...{ qNorm: resizable(3), kvNorm: resizable(5), bq: resizable(14), bqDown: resizable(3), bkvDown: resizable(9) },
      ...{ bo: resizable(12), layout: "out-in" },
    };
    const options = { weights: { q: "q8", v: "f16" }, activations: "exact", expanded: true };
    readOnce({ config, weights, options }, ({ config, weights, options }: never) => {
      using attention = createLatentAttention(kernels, config, weights, options);
      return headwise.attend(attention, FIXED.subarray(0, 36), { path: "expanded" });
    });
  });
});
