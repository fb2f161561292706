// Every argument and every option of every public function, replaced by what does not belong there: what is thrown names
// the function and the argument, and nothing has changed.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import * as core from "../../src/entries/core.ts";
import { HeadwiseError, type Kernels, type Tensor } from "../../src/entries/core.ts";
import * as latents from "../../src/entries/latent.ts";
import * as sessions from "../../src/entries/models.ts";
import * as shards from "../../src/entries/shards.ts";
import * as weightsapi from "../../src/entries/weights.ts";
import { createSharded } from "../../src/hosts/shards/attention.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { deepseekTensors, under, V2 } from "../support/deepseek-layers.ts";
import { bytesOf, text, u32, writeGguf } from "../support/gguf-writer.ts";
import { floats } from "../support/harness.ts";
import { latentWeights } from "../support/latent-layers.ts";
import { firstDifference, kernelsOf, matrix } from "../support/layers.ts";
import { shardBuilds } from "../support/shards.ts";

const headwise = { ...core, ...latents, ...sessions, ...shards, ...weightsapi };

const HOSTILE: readonly unknown[] = [
  undefined,
  null,
  "",
  "x",
  0,
  -0,
  -1,
  1.5,
  1e-50,
  1e9,
  1e300,
  2 ** 31 - 1,
  2 ** 31,
  2 ** 53,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  Number.NEGATIVE_INFINITY,
  7n,
  Symbol("s"),
  true,
  false,
  [],
  [1],
  ["x"],
  [undefined],
  {},
  Object.create(null),
  { length: -1 },
  { length: 1e9 },
  { data: [1], shape: [1] },
  { data: Float32Array.of(1), shape: [1e9, 1e9] },
  { data: new Float32Array(0), shape: [0, 1e9, 1e9, 1e9] },
  { data: new Float32Array(0), shape: [1e9, 1, 0, 2] },
  { data: new Float32Array(0), shape: [1, 1e9, 0, 2] },
  { data: new Uint8Array(0), shape: [0] },
  new Map(),
  new Date(0),
  new Uint8Array(3),
  new Float64Array(1),
  Float32Array.of(Number.NaN),
  new DataView(new ArrayBuffer(8)),
  () => 1,
];

interface Call {
  readonly name: string;
  readonly run: (args: readonly unknown[]) => unknown;
  /** What it takes, each argument with its name. */
  readonly args: Readonly<Record<string, unknown>>;
  /** path=value that may pass: what is handed on as it is, and null where a file says so. */
  readonly unread: RegExp;
}

type Kind = "number" | "string" | "boolean" | "floats" | "list" | "record" | "function" | "other";

function kindOf(value: unknown): Kind {
  if (value instanceof Float32Array) return "floats";
  if (Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView))) return "list";
  if (typeof value === "object" && value !== null) return "record";
  const kind = typeof value;
  return kind === "number" || kind === "string" || kind === "boolean" || kind === "function" ? kind : "other";
}

const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;

/** The paths of everything in the arguments that can be replaced. */
function pathsOf(value: unknown, path: readonly string[] = []): (readonly string[])[] {
  const inside = isPlain(value) && !("release" in value) ? Object.keys(value) : [];
  const deeper = inside.flatMap((key) => pathsOf((value as Record<string, unknown>)[key], [...path, key]));
  return path.length === 0 ? deeper : [path, ...deeper];
}

const at = (value: unknown, path: readonly string[]): unknown =>
  path.reduce((inner, key) => (inner as Record<string, unknown>)[key], value);

function replaced(value: unknown, [key, ...rest]: readonly string[], by: unknown): unknown {
  if (key === undefined) return by;
  const record = value as Record<string, unknown>;
  return { ...record, [key]: replaced(record[key], rest, by) };
}

/** Records that may have other fields: files, sources, tensors of files, and what is handed on. */
const OPEN =
  /^(fromHf(Latent)?Config json|readSafetensorsIndex index|writeSafetensors|(toFloats|permuteRope|convertToGqa|open\w+) (tensor|weight|config|source|index))\b/;

/** What an engine says when a check is missing. */
const UNCHECKED =
  /Cannot |is not |not iterable|unreachable|out of bounds|typed array|allocation failed|Invalid |\[object|Maximum call/;

async function check(
  { name, run, args, unread }: Call,
  path: readonly string[],
  hostile: unknown,
  kernels: Kernels,
): Promise<void> {
  const place = `${path.join(".")}=${typeof hostile === "object" ? JSON.stringify(hostile) : String(hostile)}`;
  const what = `${name}, ${place}`;
  const before = kernels.usedBytes;
  let thrown: unknown;
  try {
    const result = (await run(Object.values(replaced(args, path, hostile) as typeof args))) as {
      release?: unknown;
    } | null;
    if (typeof result?.release === "function") result.release();
  } catch (error) {
    thrown = error;
  }
  const [wanted, given] = [kindOf(at(args, path)), kindOf(hostile)];
  // Of latents, false is a value of its own.
  const isOther = place === "config.rope=false" && /Latent|countParameters/.test(name);
  const mustThrow = wanted !== given && hostile !== undefined && !unread.test(place) && !isOther;
  if (thrown === undefined) {
    expect(mustThrow, `${what} was accepted`).toBe(false);
    return;
  }
  expect(kernels.usedBytes, `${what} kept memory`).toBe(before);
  const { message } = thrown as Error;
  const kind = (thrown as Error).constructor;
  expect([TypeError, RangeError, HeadwiseError].includes(kind as never), `${what}: ${kind.name} ${message}`).toBe(true);
  expect(message, what).toMatch(new RegExp(`^${name}(, call 0)?: `));
  expect(message, what).not.toMatch(UNCHECKED);
  if (mustThrow) expect(message, what).toContain(path.filter((key) => !/^(data|shape|\d+)$/.test(key)).at(-1));
}

const functions: Readonly<Record<string, unknown>> = headwise;
const random = createRandom(77);
const tensor = (...shape: number[]): Tensor => ({
  data: floats(
    random,
    shape.reduce((a, b) => a * b, 1),
  ),
  shape,
});

test("every hostile argument of every function is refused by name, and nothing has changed after an error", async () => {
  using kernels = await kernelsOf("simd");
  const config = {
    dModel: 12,
    numHeads: 4,
    numKvHeads: 2,
    headDim: 4,
    valueDim: 3,
    kdim: 12,
    vdim: 12,
    causal: true,
    window: { left: 2, right: 1 },
    scale: 0.5,
    softcap: 5,
    alibi: "geometric" as const,
    rope: {
      theta: 100,
      pairing: "half" as const,
      dim: 4,
      scaling: {
        kind: "yarn" as const,
        factor: 2,
        originalMaxSeqLen: 8,
        betaFast: 3,
        betaSlow: 1,
        mscale: 1,
        mscaleAllDim: 1,
      },
    },
    qkNorm: { kind: "per-head" as const, eps: 1e-6, onePlus: true },
    addZeroAttn: true,
  };
  const vectors = { qNorm: floats(random, 4), kNorm: floats(random, 4), sinkLogits: floats(random, 4) };
  const extras = { biasK: floats(random, 8), biasV: floats(random, 6), bo: floats(random, 12) };
  const weights = {
    wq: matrix(random, 16, 12),
    wk: matrix(random, 8, 12),
    wv: matrix(random, 6, 12),
    wo: matrix(random, 12, 12),
    ...{ bq: floats(random, 16), bk: floats(random, 8), bv: floats(random, 6) },
    ...vectors,
    ...extras,
    layout: "out-in" as const,
  };
  const fused = { wqkv: matrix(random, 30, 12), bqkv: floats(random, 30), wo: weights.wo, ...vectors };
  const attention = headwise.createAttention(kernels, config, weights);
  const cache = headwise.createCache(attention, { maxSeqLen: 8, batch: 2 });
  const x = floats(random, 2 * 3 * 12);
  headwise.attend(attention, x, { cache });
  const pages = headwise.exportPages(cache);
  const empty = headwise.createCache(attention, { maxSeqLen: 8, batch: 2 });
  const importing = (args: Call["args"]): Call => ({
    ...call("importPages", args),
    run([into, given, length]) {
      headwise.importPages(into as never, ("page" in args ? [given] : given) as never, length as never);
      empty.truncate(0);
    },
  });
  const noWorkers = { processors: 1, sharing: { possible: false, reason: "" }, createWorker: undefined };
  const sharded = await createSharded(shardBuilds, () => noWorkers, config, weights, {});
  const shardedCache = await headwise.createShardedCache(sharded, { maxSeqLen: 8, batch: 2 });
  await headwise.attendSharded(sharded, x, { cache: shardedCache });
  const latentConfig = {
    ...{ dModel: 12, numHeads: 4, kvLoraRank: 5, nopeDim: 3, ropeDim: 2, valueDim: 3, latentNorm: true, normEps: 1e-6 },
    ...{
      causal: true,
      scale: 0.5,
      softcap: 5,
      rope: { theta: 100, pairing: "half" as const, scaling: config.rope.scaling },
    },
  };
  const latentAttention = headwise.createLatentAttention(kernels, latentConfig, latentWeights(random, latentConfig), {
    expanded: true,
  });
  const layer = headwise.createLinear(kernels, { weight: matrix(random, 3, 4) });
  const masks = {
    keep: { data: new Uint8Array(3).fill(1), shape: [3] },
    drop: { data: [false, true, false], shape: [1, 3] },
    bias: tensor(4, 3, 3),
  };
  const self = { batch: 2, ...masks, kvLengths: [3, 2], align: "start", positions: Int32Array.of(4, 5, 6) };
  const cross = { batch: 2, keys: floats(random, 2 * 2 * 12), values: floats(random, 2 * 2 * 12), align: "end" };
  const cached = { cache, append: false, align: "end", positions: [3, 4, 5], out: new Float32Array(72) };
  const heads = { q: tensor(2, 4, 3, 4), k: tensor(2, 2, 3, 4), v: tensor(2, 2, 3, 5) };
  const sdpa = {
    ...{ layout: "bhsd", causal: true, align: "start", window: { left: 1, right: 0 }, scale: 0.3, softcap: 4 },
    ...{ ...masks, kvLengths: [3, 1], alibi: floats(random, 4), sinkLogits: floats(random, 4) },
    ...{ present: true, scores: "weights", lse: true },
  };
  const none = tensor(2, 2, 0, 4);
  const kvCache = headwise.createKvCache(kernels, { numKvHeads: 2, headDim: 4, maxSeqLen: 9, batch: 2 });
  const past = { key: tensor(2, 2, 1, 4), value: tensor(2, 2, 1, 5) };
  const tables = headwise.ropeTables({ theta: 100, pairing: "half", dim: 4 }, [0, 1, 2]);
  const rope = { ...tables, pairing: "half", positions: [2, 1, 0], layout: "bshd" };
  const hf = { model_type: "llama", hidden_size: 16, num_attention_heads: 4, num_key_value_heads: 2, rope_theta: 100 };
  const stored = Object.fromEntries(
    ["q", "k", "v", "o"].map((part) => [`a.${part}_proj.weight`, matrix(random, 4, 4)] as const),
  );
  const bytes = headwise.writeSafetensors(stored);
  const latentTensors = deepseekTensors(random, V2);
  const latentBytes = headwise.writeSafetensors(under("a.", latentTensors));
  const { rope_scaling: _scaling, rms_norm_eps: _eps, ...latentSizes } = V2;
  const latentGguf = writeGguf({
    metadata: {
      ...{ "general.architecture": text("deepseek2"), "deepseek2.block_count": u32(1) },
      ...{ "deepseek2.embedding_length": u32(24), "deepseek2.attention.head_count": u32(3) },
      ...{ "deepseek2.attention.kv_lora_rank": u32(10), "deepseek2.attention.key_length": u32(15) },
      ...{ "deepseek2.attention.value_length": u32(5), "deepseek2.rope.dimension_count": u32(8) },
    },
    tensors: Object.entries({
      ...{ q: "q_proj", kv_a_mqa: "kv_a_proj_with_mqa", kv_a_norm: "kv_a_layernorm", kv_b: "kv_b_proj" },
      output: "o_proj",
    }).map(([name, theirs]) => {
      const { data, shape } = latentTensors[`${theirs}.weight`] as Tensor;
      return { name: `blk.0.attn_${name}.weight`, type: 0, shape, bytes: bytesOf(data) };
    }),
  });
  const gguf = writeGguf({
    metadata: {
      ...{ "general.architecture": text("new"), "new.block_count": u32(1), "new.embedding_length": u32(4) },
      "new.attention.head_count": u32(2),
    },
    tensors: ["q", "k", "v", "output"].map((part) => ({
      name: `blk.0.attn_${part}.weight`,
      type: 0,
      shape: [4, 4],
      bytes: new Uint8Array(64),
    })),
  });
  const { qNorm: _q, kNorm: _k, ...free } = weights;
  const sizes = { numHeads: 4, numKvHeads: 2, headDim: 4, valueDim: 3, rope: config.rope };
  const one = { wk: matrix(random, 4, 12), wv: matrix(random, 3, 12), bk: floats(random, 4), bv: floats(random, 3) };
  const index = { weight_map: { w: "a.safetensors" } };
  const simd = readFileSync(new URL("../../build/simd.wasm", import.meta.url));
  const toFloats = { name: "w", dtype: "F16", shape: [2], bytes: new Uint8Array(4) };

  const call = (name: keyof typeof headwise, args: Call["args"], unread = /^$/): Call => ({
    name,
    args,
    unread,
    run: (values) => (functions[name] as (...values: readonly unknown[]) => unknown)(...values),
  });
  const calls: readonly Call[] = [
    call("createAttention", { kernels, config, weights }),
    call("createAttention", { kernels, config: { ...config, valueDim: 3 }, weights: fused }),
    call("createCache", { attention, options: { maxSeqLen: 4, batch: 2, truncatable: 3 } }),
    call("createLatentAttention", {
      kernels,
      config: { ...latentConfig, qLoraRank: 3 },
      weights: latentWeights(random, { ...latentConfig, qLoraRank: 3 }, true),
      options: { weights: { q: "q8" }, activations: "fast", expanded: true },
    }),
    call("createLatentAttention", {
      kernels,
      config: latentConfig,
      weights: { ...latentWeights(random, latentConfig, true), layout: "out-in" },
      options: { weights: { k: "f16", o: "q8-row" } },
    }),
    call("createCache", { attention: latentAttention, options: { maxSeqLen: 4, batch: 2, format: "f16" } }),
    ...(["attend", "attendWithMaps", "attendAsync"] as const).map((name) =>
      call(name, { attention: latentAttention, x, options: { ...self, path: "expanded" } }),
    ),
    call("planLatent", {
      config: latentConfig,
      sizes: {
        ...{ batch: 2, qLen: 3, maxSeqLen: 8, path: "expanded", maps: true, expanded: true, format: "f16" },
        weights: { q: "q8" },
      },
    }),
    call("createKvCache", {
      kernels,
      options: { numKvHeads: 2, headDim: 4, valueDim: 3, maxSeqLen: 9, batch: 2, window: { left: 2 }, truncatable: 3 },
    }),
    ...(["attend", "attendWithMaps"] as const).flatMap((name) => [
      call(name, { attention, x, options: self }),
      call(name, { attention, x, options: cross }),
      call(name, { attention, x, options: cached }),
    ]),
    ...[self, cross, cached].flatMap((options) => [
      call("attendAsync", { attention, x, options: { ...options, sliceMs: 5, onProgress() {} } }),
      {
        ...call("attendMany", { attention, calls: { x, ...options } }),
        run: ([of, one]: readonly unknown[]) => headwise.attendMany(of as never, [one as never]),
      },
    ]),
    call("exportPages", { cache, since: 2 }),
    importing({ cache: empty, pages, length: 3 }),
    importing({ cache: empty, page: { ...pages[0] }, length: 3 }),
    call("createShardedCache", { attention: sharded, options: { maxSeqLen: 4, batch: 2, truncatable: 3 } }),
    ...[self, cross, { ...cached, cache: shardedCache }].map((options) =>
      call("attendSharded", { attention: sharded, x, options: { ...options, signal: new AbortController().signal } }),
    ),
    call("scaledDotProductAttention", { kernels, ...heads, options: sdpa }),
    call("scaledDotProductAttention", { kernels, ...heads, options: { past, causal: true } }),
    call("scaledDotProductAttention", {
      kernels,
      q: tensor(2, 3, 4),
      k: tensor(1, 3, 4),
      v: tensor(1, 3, 5),
      options: {},
    }),
    call("scaledDotProductAttention", { kernels, q: heads.q, k: none, v: none, options: { cache: kvCache } }),
    call("applyRope", { kernels, x: tensor(1, 3, 2, 6), options: rope }),
    call("splitHeads", { kernels, x: tensor(3, 4), numHeads: 2 }),
    call("mergeHeads", { kernels, x: tensor(2, 3, 2) }),
    call("createLinear", {
      kernels,
      weights: { weight: matrix(random, 3, 4), bias: floats(random, 3), layout: "out-in" },
      options: { weights: "q8", activations: "fast" },
    }),
    call("linear", { layer, x: floats(random, 8), options: { out: new Float32Array(6) } }),
    call("linearAsync", {
      layer,
      x: floats(random, 8),
      options: { out: new Float32Array(6), sliceMs: 5, onProgress() {} },
    }),
    call("planLinear", { sizes: { outputs: 3, inputs: 4 }, options: { rows: 2, weights: "q4" } }),
    call("plan", {
      config,
      sizes: { batch: 2, qLen: 3, maxSeqLen: 8, truncatable: 3, keyLen: 4, maps: true, extraKey: true },
    }),
    call("alibiSlopes", { numHeads: 3 }),
    call("ropeTables", { rope: config.rope, positions: [1, 2] }),
    call("permuteRope", { weight: tensor(8, 2), numHeads: 2, from: "half", ropeDim: 2 }),
    call("convertToGqa", { weights, config, numKvHeads: 1 }, /config\.(?!num|headDim|valueDim)/),
    call(
      "convertToGqa",
      { weights: free, config: sizes, numKvHeads: 1, options: { method: "svd" } },
      /config\.(?!num|headDim|valueDim|rope)/,
    ),
    call("convertToMla", {
      weights: { ...free, ...one, sinkLogits: undefined, biasK: undefined, biasV: undefined },
      config: { ...sizes, dModel: 12, numKvHeads: 1, causal: true, scale: 0.5, softcap: 5 },
      options: { rank: 2 },
    }),
    call("countParameters", { config, options: { biases: ["bq", "bo"] } }, /options\.biases=(true|false)/),
    call("countParameters", {
      config: {
        ...{ dModel: 8, numHeads: 2, kvLoraRank: 3, nopeDim: 2, ropeDim: 2, valueDim: 3 },
        rope: { theta: 100, pairing: "half" },
      },
      options: {},
    }),
    call("fromHfConfig", { json: hf, layer: 0, part: "decoder" }, /^json\..*=null$|^layer=\{/),
    // A number is the index of the layer; objects are options, which errors name by that word.
    call(
      "fromHfConfig",
      { json: hf, layer: { layer: 0, part: "decoder", prefix: "model.layers.0.", relativeBias: false } },
      /^json\..*=null$|^layer=\d/,
    ),
    call("fromHfLatentConfig", { json: { ...latentSizes, q_lora_rank: 12 }, options: { layer: 0 } }, /^json\..*=null$/),
    call("readLatentWeights", { bytes: latentBytes, prefix: "a" }),
    call("readAttentionWeights", { bytes, prefix: "a", config: { numHeads: 2, numKvHeads: 2, headDim: 2 } }),
    call(
      "permuteRope",
      {
        weight: { name: "w", dtype: "Q8_0", shape: [2, 32], bytes: new Uint8Array(68) },
        numHeads: 1,
        from: "half",
        ropeDim: 2,
      },
      /name/,
    ),
    // Bytes are a source too.
    call(
      "openSafetensors",
      { source: { size: bytes.length, read: async (at: number, length: number) => bytes.subarray(at, at + length) } },
      /^source=\{"0":0/,
    ),
    call("openGguf", { source: gguf }),
    // An opened file is one thing, like an attention: its parts are not replaced.
    call("readGgufLayer", {
      file: Object.create(await headwise.openGguf(gguf)),
      layer: 0,
      options: { pairing: "half" },
    }),
    call("readGgufLatentLayer", { file: Object.create(await headwise.openGguf(latentGguf)), layer: 0 }),
    call("listLayers", { file: Object.create(headwise.readSafetensors(bytes)) }),
    call("readLayerTensors", {
      file: Object.create(await headwise.openSafetensors(bytes)),
      place: { prefix: "a.", kind: "heads" },
    }),
    call("readPrefix", { prefix: "a." }),
    // Which fields there are, is up to the file.
    call("hfAttentionKind", { json: JSON.stringify(hf) }, /^json=/),
    call("quantizeSafetensors", {
      source: bytes,
      options: { format: "F16", include: /q/, keep: /v/, onProgress: () => {} },
    }),
    call("readSafetensors", { bytes }),
    call("readSafetensorsIndex", { index, shard: () => bytes }),
    call("openSafetensorsIndex", { index, shard: () => bytes }),
    call("writeSafetensors", { tensors: { w: tensor(2, 2) }, metadata: { format: "pt" } }),
    call("toFloats", { tensor: toFloats }, /name/),
  ];

  const again = { cache, append: false, align: "start", positions: [0, 1, 2] } as const;
  const before = headwise.attend(attention, x, again);
  const sdpaBefore = headwise.scaledDotProductAttention(kernels, heads.q, heads.k, heads.v, { causal: true }).output;
  let count = 0;
  for (const each of calls) {
    // The arguments as they are must pass, or every replacement would fail for another reason.
    const result = (await each.run(Object.values(each.args))) as { release?: () => void } | null;
    result?.release?.();
  }
  for (const each of calls)
    for (const path of pathsOf(each.args))
      for (const hostile of HOSTILE) {
        await check(each, path, hostile, kernels);
        count++;
      }
  expect(count).toBeGreaterThan(10_000);

  let records = 0;
  for (const { name, args, run } of calls)
    for (const path of pathsOf(args)) {
      const record = at(args, path);
      if (!isPlain(record) || "release" in record || "data" in record || OPEN.test(`${name} ${path.join(".")}`))
        continue;
      const values = Object.values(replaced(args, path, { ...record, unheard: undefined }) as typeof args);
      const thrown = (async () => run(values))();
      await expect(thrown, `${name}, ${path.join(".")}`).rejects.toThrow(/: \S+ expected only .*, got "unheard"$/);
      records++;
    }
  expect(records).toBeGreaterThan(20);
  expect(cache.length).toBe(3);
  expect(firstDifference(headwise.attend(attention, x, again), before)).toBe(-1);
  const sdpaAfter = headwise.scaledDotProductAttention(kernels, heads.q, heads.k, heads.v, { causal: true }).output;
  expect(firstDifference(sdpaAfter.data, sdpaBefore.data)).toBe(-1);

  for (const [name, method] of [
    ["truncate", (value: unknown) => cache.truncate(value as number)],
    ["loadKernels", undefined],
  ] as const)
    for (const hostile of HOSTILE) {
      if (method) {
        if (hostile !== 0 && !Object.is(hostile, -0))
          expect(() => method(hostile)).toThrow(/^truncate: length expected/);
      } else {
        const options = { module: hostile } as unknown as { module: WebAssembly.Module };
        await expect(headwise.loadKernels(options), name).rejects.toThrow(/^loadKernels: module expected/);
        if (kindOf(hostile) !== "record")
          await expect(headwise.loadKernels(hostile as never), name).rejects.toThrow(/^loadKernels: options expected/);
      }
    }
  expect(cache.length).toBe(3);
  expect(shardedCache.length).toBe(3);
  sharded.release();
  (await headwise.loadKernels({ module: simd })).release();
});
