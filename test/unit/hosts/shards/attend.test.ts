// How sharded calls read their arguments: once, and never from memory that was taken away meanwhile.

import { Worker } from "node:worker_threads";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import {
  type AttendOptions,
  type AttentionConfig,
  type AttentionWeights,
  attend,
  createAttention,
  createCache,
  type Kernels,
  loadKernels,
} from "../../../../src/entries/index.ts";
import {
  type AttendShardedOptions,
  attendSharded,
  createShardedAttention,
  createShardedCache,
  type ShardedAttention,
  type ShardedCache,
} from "../../../../src/entries/shards.ts";
import { createSharded } from "../../../../src/hosts/shards/attention.ts";
import { arraysIn } from "../../../../src/hosts/shards/partition.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { firstDifference, randomWeights } from "../../../support/layers.ts";
import { errorOf, shardBuilds, small, withShards } from "../../../support/shards.ts";

const random = createRandom(2026);
let kernels: Kernels;
beforeAll(async () => {
  kernels = await loadKernels();
});
afterAll(() => kernels.release());

const row = small.dModel;
const config: AttentionConfig = { ...small, causal: true };
const weights = randomWeights(random, config, { biases: true });

/** What one engine gives for calls that follow each other on a cache. */
function outputsOf(
  layer: AttentionConfig,
  w: AttentionWeights,
  calls: readonly (readonly [x: Float32Array, options?: AttendOptions])[],
): Float32Array[] {
  const attention = createAttention(kernels, layer, w);
  const cache = createCache(attention, { maxSeqLen: 100 });
  const ys = calls.map(([x, options]) => attend(attention, x, { ...options, cache: options ? options.cache : cache }));
  attention.release();
  return ys;
}

/** An ArrayBuffer that can shrink: the types of this target do not know it yet. */
type Resizable = ArrayBuffer & { resize(bytes: number): void };
const resizable = (bytes: number): Resizable =>
  Reflect.construct(ArrayBuffer, [bytes, { maxByteLength: bytes }]) as Resizable;

const detach = (array: Float32Array | Uint8Array) => void structuredClone(array, { transfer: [array.buffer] });

/** Four rows of each sequence of two, and every option that a call without cache can have. */
const sizes = { batch: 2, rows: 4 };
const sample = () => ({
  x: floats(random, sizes.batch * sizes.rows * row),
  options: {
    batch: sizes.batch,
    keys: floats(random, sizes.batch * 5 * row),
    values: floats(random, sizes.batch * 5 * row),
    kvLengths: [5, 3],
    align: "end",
    keep: { data: Uint8Array.of(1, 1, 0, 1, 1), shape: [5] },
    drop: { data: Array.from({ length: 6 * 5 }, (_, i) => i % 7 === 0), shape: [6, 1, 5] },
    bias: { data: floats(random, 6 * 4 * 5), shape: [6, 4, 5] },
    positions: [7, 8, 9, 11],
    out: new Float32Array(sizes.batch * sizes.rows * row),
  } as const,
});
const rope: AttentionConfig = { ...config, rope: { theta: 100, pairing: "half" } };

test("a mask for each head is that of a share which has as many heads as there are sequences", () =>
  withShards(config, weights, { shards: 3 }, async (attention) => {
    const x = floats(random, 2 * 4 * row);
    const options = {
      batch: 2,
      drop: { data: Array.from({ length: 6 * 4 }, (_, i) => i % 5 === 0), shape: [6, 1, 4] },
    };
    const [want] = outputsOf(config, weights, [[x, options]]) as [Float32Array];
    expect(firstDifference(await attendSharded(attention, x, options), want)).toBe(-1);
  }));

test("every option of attend has the effect that it has there", () =>
  withShards(rope, weights, { shards: 2 }, async (attention) => {
    const { x, options: all } = sample();
    const given: Record<Exclude<keyof AttendOptions, "cache" | "append" | "path">, unknown> = all;
    const rest = { batch: sizes.batch, keys: all.keys, align: all.align };
    const run = async (options: AttendOptions): Promise<Float32Array> => {
      const [want] = outputsOf(rope, weights, [[x, { ...options, out: undefined }]]) as [Float32Array];
      const y = await attendSharded(attention, x, options as AttendShardedOptions);
      expect(firstDifference(y, want)).toBe(-1);
      return y.slice();
    };
    const plain = await run(rest);
    await run(all);
    for (const [name, value] of Object.entries(given)) {
      const y = await run({ ...rest, [name]: value });
      expect([name, firstDifference(y, plain) === -1]).toEqual([name, name in rest || name === "out"]);
    }
    expect(await errorOf(attendSharded(attention, x.subarray(0, 5 * row), { keys: all.keys.subarray(0, row) }))).toBe(
      'RangeError attendSharded: align expected "start" or "end" because qLen (5) and kvLen (1) differ, got undefined',
    );
    expect(await errorOf(attendSharded(attention, x, { ...rest, align: "start", keys: x }))).toBe("no error");
    // append and cache.
    const calls = [
      [x.subarray(0, 3 * row), undefined],
      [x.subarray(0, 2 * row), { append: false, positions: [1, 2], align: "end" }],
    ] as const;
    const cache = await createShardedCache(attention, { maxSeqLen: 100 });
    const layer = createAttention(kernels, rope, weights);
    const own = createCache(layer, { maxSeqLen: 100 });
    for (const [rows, options] of calls) {
      const y = await attendSharded(attention, rows, { ...options, cache });
      expect(firstDifference(y, attend(layer, rows, { ...options, cache: own }))).toBe(-1);
    }
    expect(cache.length).toBe(3);
    layer.release();
    for (const name of ["sliceMs", "onProgress", "maps", "format"])
      expect(await errorOf(attendSharded(attention, x, { [name]: 1 }))).toBe(
        `TypeError attendSharded: options expected only signal, batch, cache, append, keys, values, kvLengths, align, keep, drop, bias, positions, out, got "${name}"`,
      );
  }));

test("every option is read once, also from a prototype", () =>
  withShards(rope, weights, { shards: 2 }, async (attention) => {
    const { x, options } = sample();
    const [want] = outputsOf(rope, weights, [[x, { ...options, out: undefined, cache: undefined }]]) as [Float32Array];
    const reads: Record<string, number> = {};
    /** The same values behind getters that give nothing the second time. */
    const once = (value: object, path: string): object => {
      const fields = Object.entries(value).map(([name, inner]) => {
        const nested = ["keep", "drop", "bias"].includes(name) ? once(inner, `${name}.`) : inner;
        const key = path + name;
        const get = () => {
          reads[key] = (reads[key] ?? 0) + 1;
          return reads[key] === 1 ? nested : undefined;
        };
        return [name, { get, enumerable: true }] as const;
      });
      return Object.defineProperties({}, Object.fromEntries(fields));
    };
    // Its own length is another one each time it is read.
    let length = 0;
    Object.defineProperty(x, "length", { get: () => ++length });
    const y = await attendSharded(attention, x, Object.create(once(options, "")));
    expect(firstDifference(y, want)).toBe(-1);
    expect(y).toBe(options.out);
    const names = [...Object.keys(options), ...["keep", "drop", "bias"].flatMap((m) => [`${m}.data`, `${m}.shape`])];
    expect(reads).toEqual(Object.fromEntries(names.map((name) => [name, 1])));
  }));

test("lists are read once: what they give later has no effect", () =>
  withShards(rope, weights, { shards: 2 }, async (attention) => {
    const x = floats(random, 4 * row);
    /** A list that gives its values once, and then others that are valid, too. */
    const changing = (values: readonly number[], later: number): number[] => {
      const read = new Set<string | symbol>();
      return new Proxy([...values], {
        get(list, key) {
          if (typeof key !== "string" || !/^\d+$/.test(key) || !read.has(key)) {
            read.add(key);
            return Reflect.get(list, key);
          }
          return later;
        },
      });
    };
    const bias = { data: floats(random, 16), shape: [4, 4] };
    const [want] = outputsOf(rope, weights, [[x, { bias, kvLengths: [3], positions: [1, 2, 3, 4] }]]);
    const lists = { kvLengths: changing([3], 4), positions: changing([1, 2, 3, 4], 7) };
    const y = await attendSharded(attention, x, { bias: { ...bias, shape: changing([4, 4], 1) }, ...lists });
    expect(firstDifference(y, want as Float32Array)).toBe(-1);
    const cache = await createShardedCache(attention, { maxSeqLen: 9 });
    const cached = await attendSharded(attention, x, { cache, kvLengths: changing([4], 3) });
    expect(firstDifference(cached, outputsOf(rope, weights, [[x]])[0] as Float32Array)).toBe(-1);
  }));

describe("arrays that are taken away", () => {
  type Named = "x" | "keys" | "values" | "keep" | "bias" | "out";
  const NAMES: readonly Named[] = ["x", "keys", "values", "keep", "bias", "out"];

  /** A call, and one of its arrays. */
  const callOf = (name: Named) => {
    const { x, options } = sample();
    const arrays = { x, ...options, keep: options.keep.data, bias: options.bias.data };
    return { x, options, array: arrays[name], length: arrays[name].length };
  };

  const refusal = (name: Named, length: number) =>
    `RangeError attendSharded: ${name} expected to keep its ${length} elements until the promise settles, got 0`;

  test("before the turn of their call: it is refused, and the next is served", () =>
    withShards(rope, weights, { shards: 2 }, async (attention) => {
      for (const name of NAMES) {
        const first = attendSharded(attention, floats(random, 40 * row));
        const { x, options, array, length } = callOf(name);
        const call = errorOf(attendSharded(attention, x, options));
        detach(array);
        expect(await call).toBe(refusal(name, length));
        expect((await first).length).toBe(40 * row);
      }
      const { x, options } = sample();
      const [want] = outputsOf(rope, weights, [[x, { ...options, out: undefined, cache: undefined }]]);
      expect(firstDifference(await attendSharded(attention, x, options), want as Float32Array)).toBe(-1);
    }));

  test("by a getter in another argument: the call is refused", () =>
    withShards(rope, weights, { shards: 2 }, async (attention) => {
      for (const name of NAMES) {
        const { x, options, array } = callOf(name);
        const kvLengths = {
          length: 2,
          get 0() {
            if (array.length > 0) detach(array);
            return 5;
          },
          1: 3,
        };
        const call = attendSharded(attention, x, { ...options, kvLengths });
        const [argument, rule] = {
          ...{ x: ["x", "Float32Array"], keys: ["keys", "Float32Array"], values: ["values", "Float32Array"] },
          ...{ keep: ["keep.data", "Uint8Array or an array of booleans"], bias: ["bias.data", "Float32Array"] },
          out: ["out", "Float32Array"],
        }[name] as [string, string];
        expect(await errorOf(call)).toBe(`TypeError attendSharded: ${argument} expected ${rule}, got a detached one`);
      }
    }));

  const takeAway: readonly (readonly [string, (buffer: Resizable) => void])[] = [
    ["detached", (buffer) => void structuredClone(buffer, { transfer: [buffer] })],
    ["shrunk", (buffer) => buffer.resize(8)],
  ];
  test.each(takeAway)("out that is %s while the workers run: an error, and the cache is as it was", (_, take) =>
    withShards(config, weights, { shards: 2 }, async (attention) => {
      const cache = await createShardedCache(attention, { maxSeqLen: 100 });
      const [x, token] = [floats(random, 9 * row), floats(random, row)];
      const [want, wantToken] = outputsOf(config, weights, [[x], [token]]) as [Float32Array, Float32Array];
      const buffer = resizable(x.byteLength);
      const out = new Float32Array(buffer);
      const call = errorOf(attendSharded(attention, x, { cache, out }));
      // The requests are posted by now.
      await Promise.resolve();
      await Promise.resolve();
      take(buffer);
      expect(await call).toBe(refusal("out", x.length));
      expect(cache.length).toBe(0);
      expect(firstDifference(await attendSharded(attention, x, { cache }), want)).toBe(-1);
      expect(firstDifference(await attendSharded(attention, token, { cache }), wantToken)).toBe(-1);
      expect(cache.length).toBe(10);
    }),
  );

  test("x may be taken away once its call has begun", () =>
    withShards(config, weights, { shards: 2 }, async (attention) => {
      const x = floats(random, 9 * row);
      const [want] = outputsOf(config, weights, [[x]]) as [Float32Array];
      const call = attendSharded(attention, x);
      await Promise.resolve();
      await Promise.resolve();
      detach(x);
      expect(firstDifference(await call, want)).toBe(-1);
    }));

  test("an engine without memory for copies of them is reported by name, and nothing has changed", () =>
    withShards(config, weights, { shards: 2 }, async (attention) => {
      const cache = await createShardedCache(attention, { maxSeqLen: 100 });
      const x = floats(random, 9 * row);
      const [want] = outputsOf(config, weights, [[x]]) as [Float32Array];
      const refuse = (): never => {
        throw new RangeError("Array buffer allocation failed");
      };
      const construct = (target: Float32ArrayConstructor, args: readonly unknown[]) =>
        ArrayBuffer.isView(args[0]) ? refuse() : Reflect.construct(target, args);
      vi.stubGlobal("Float32Array", new Proxy(Float32Array, { construct }));
      const slice = vi.spyOn(Float32Array.prototype, "slice").mockImplementation(refuse);
      const call = errorOf(attendSharded(attention, x, { cache }));
      await Promise.resolve();
      await Promise.resolve();
      vi.unstubAllGlobals();
      slice.mockRestore();
      expect(await call).toBe(
        "OUT_OF_MEMORY attendSharded: a copy of x and the options for each shard does not fit, the engine refused",
      );
      expect(cache.length).toBe(0);
      expect(firstDifference(await attendSharded(attention, x, { cache }), want)).toBe(-1);
    }));

  test.each(["attention", "cache"])("a getter that releases the %s ends the call", async (name) => {
    const attention: ShardedAttention = await createShardedAttention(config, weights, { shards: 2 });
    const cache: ShardedCache = await createShardedCache(attention, { maxSeqLen: 9 });
    const kvLengths = {
      length: 1,
      get 0() {
        (name === "cache" ? cache : attention).release();
        return 3;
      },
    };
    const options = { cache, keys: floats(random, 3 * row), kvLengths, align: "start" } as const;
    expect(await errorOf(attendSharded(attention, floats(random, 3 * row), options))).toBe(
      `RELEASED attendSharded: ${name} was released`,
    );
    attention.release();
  });
});

describe("what a layer is made of", () => {
  const factors = Float32Array.of(1, 1.5, 2, 8);
  const layer: AttentionConfig = {
    ...config,
    alibi: Float32Array.of(0.5, 0.25, 0.125, 1, 2, 3),
    rope: { theta: 100, pairing: "half", scaling: { kind: "factors", factors } },
    qkNorm: { kind: "per-head" },
  };
  /** As a Buffer does, `slice` gives a view. */
  class Views extends Float32Array {
    override slice(begin?: number, end?: number): Float32Array<ArrayBuffer> {
      return this.subarray(begin, end) as Float32Array<ArrayBuffer>;
    }
  }
  const parts = randomWeights(random, layer, { biases: true, sinks: true, extraKey: true });
  const gain = new Views(parts.qNorm as Float32Array);
  const own: AttentionWeights = {
    ...parts,
    ...{ qNorm: gain, kNorm: gain, bq: new Views(parts.bq as Float32Array) },
  };
  const x = floats(random, 9 * row);

  test.each([1, 2, 3])("is neither transferred nor shared: %i shards have the bits of one engine", async (shards) => {
    const before = structuredClone([own, layer]);
    const [want] = outputsOf(layer, own, [[x]]) as [Float32Array];
    await withShards(layer, own, { shards }, async (attention) => {
      expect(attention.shards.used).toBe(shards);
      expect(firstDifference(await attendSharded(attention, x), want)).toBe(-1);
      expect(attention.config.rope?.scaling).toEqual({ kind: "factors", factors });
      expect(arraysIn(attention.config).every(({ byteLength }) => byteLength > 0)).toBe(true);
    });
    expect([own, layer].map((each) => arraysIn(each).length)).toEqual(before.map((each) => arraysIn(each).length));
    for (const [i, array] of arraysIn([own, layer]).entries())
      expect(firstDifference(array as Float32Array, arraysIn(before)[i] as Float32Array)).toBe(-1);
  });

  test.each([
    [
      "cannot be made",
      () => {
        throw new Error("policy");
      },
    ],
    ["do not answer", () => new Worker("setInterval(() => {}, 1000)", { eval: true })],
  ])("is whole where workers %s", async (_, createWorker) => {
    const hostFor = () => ({ processors: 2, sharing: { possible: false, reason: "" }, createWorker });
    const attention = await createSharded(shardBuilds, hostFor, layer, own, { shards: 2 }, 300);
    const [want] = outputsOf(layer, own, [[x]]) as [Float32Array];
    expect(attention.shards.used).toBe(1);
    expect(firstDifference(await attendSharded(attention, x), want)).toBe(-1);
    attention.release();
  });

  test("is refused if an array of the weights is taken away while the workers start", async () => {
    const taken: AttentionWeights = { ...own, wk: { data: floats(random, 24 * row), shape: [24, row] } };
    const creating = errorOf(createShardedAttention(layer, taken, { shards: 2 }));
    detach((taken.wk as { data: Float32Array }).data);
    expect(await creating).toBe(
      "RangeError createShardedAttention: weights expected to keep their arrays until the promise settles, got one that was detached or resized",
    );
  });
});
