// What holds for whole encoders: states are near float64, their bits depend on the sequence alone, and a call that fails
// leaves nothing behind.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Tensor } from "../../src/base/tensor/tensor.ts";
import type { Kernels } from "../../src/entries/core.ts";
import type { WeightFormat } from "../../src/layers/linear/formats.ts";
import { forward } from "../../src/models/decoder/forward.ts";
import { createSession } from "../../src/models/decoder/session.ts";
import { embed, embedAsync, encode, encodeAsync, maskedLogits } from "../../src/models/encoder/encode.ts";
import { type Encoder, loadEncoder, planEncoder } from "../../src/models/encoder/load.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { runOracle } from "../support/encoder-oracle.ts";
import { kernelsOf, shippedBuilds, threadedKernels } from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";
import { encoderFolder, encoderTensors, TINY_ENCODERS, type TinyEncoder } from "../support/tiny-encoders.ts";
import { TINY, tinyFolder, tinyTensors } from "../support/tiny-models.ts";

const NAMES = Object.keys(TINY_ENCODERS) as TinyEncoder[];
const sequence = (length: number, seed = 1) => Array.from({ length }, (_, i) => (i * 29 + 7 * seed) % 67);
/** One of a page and a chunk more, and more than share products. */
const LENGTHS = [1, 300, 2, 31, 128, 257, 5, ...Array<number>(20).fill(3), 17];
const BATCH = LENGTHS.map((length, i) => sequence(length, i));

describe.each(shippedBuilds)("whole encoders in the %s build", (build) => {
  let kernels: Kernels;
  const models = new Map<TinyEncoder, Encoder>();
  beforeAll(async () => {
    kernels = await kernelsOf(build);
    for (const name of NAMES) models.set(name, await loadEncoder(kernels, encoderFolder(name)));
  });
  afterAll(() => kernels.release());
  const modelOf = (name: TinyEncoder) => models.get(name) as Encoder;

  test.each(NAMES)("%s: states and logits of masked tokens are within 1e-5 of the largest of float64", (name) => {
    const model = modelOf(name);
    const ids = sequence(40);
    const types = ids.map((_, i) => (i > 20 ? 1 : 0));
    const typed = (model.spec.embed.types ?? 0) > 1;
    const options = typed ? { tokenTypes: [types] } : {};
    const { states, logits } = runOracle(name, encoderTensors(name), ids, typed ? types : undefined);
    const [got] = encode(model, [ids], options);
    expectNear(got, states.flat());
    if (logits) expectNear(maskedLogits(model, [ids], options)[0]?.logits, logits.flat());
    else expect(() => maskedLogits(model, [ids])).toThrow("maskedLogits: model expected one whose file has a head");
  });

  test.each(sampled(NAMES, 4, undefined, build.length))(
    "%s: a sequence has the same bits alone, in any batch and in slices",
    async (name) => {
      const model = modelOf(name);
      const all = encode(model, BATCH);
      for (const [i, ids] of BATCH.entries()) {
        expect(all[i]?.length).toBe(ids.length * model.dModel);
        expect(all[i]?.every(Number.isFinite)).toBe(true);
        expect(encode(model, [ids]), `sequence ${i}`).toEqual([all[i]]);
      }
      expect(encode(model, [...BATCH].reverse())).toEqual([...all].reverse());
      expect(await encodeAsync(model, BATCH, { sliceMs: 1e-3 })).toEqual(all);
    },
  );

  test.each(["f16", "q8", "q4"] as const)("the same with weights in %s", async (weights: WeightFormat) => {
    for (const name of ["bert", "modernbert"] as const) {
      using model = await loadEncoder(kernels, encoderFolder(name), { weights });
      const all = encode(model, BATCH);
      for (const [i, ids] of BATCH.entries()) expect(encode(model, [ids])).toEqual([all[i]]);
      expectNear(all[3], [...(encode(modelOf(name), [BATCH[3] as number[]])[0] as Float32Array)], 0.5);
    }
  });

  test("vectors are the mean, the first and the last state, and of length 1 if normalized", async () => {
    const model = modelOf("mpnet");
    const { dModel } = model;
    const states = encode(model, BATCH);
    const rowOf = (i: number, row: number) => states[i]?.subarray(row * dModel, (row + 1) * dModel);
    const mean = embed(model, BATCH);
    for (const [i, ids] of BATCH.entries())
      for (let at = 0; at < dModel; at++) {
        const own = ids.reduce((sum, _, row) => sum + (rowOf(i, row)?.[at] as number), 0) / ids.length;
        expect(mean[i]?.[at]).toBe(Math.fround(own));
      }
    expect(embed(model, BATCH, { pooling: "cls" })).toEqual(BATCH.map((_, i) => rowOf(i, 0)));
    expect(embed(model, BATCH, { pooling: "last" })).toEqual(BATCH.map((ids, i) => rowOf(i, ids.length - 1)));
    const unit = embed(model, BATCH, { normalize: true });
    for (const [i, vector] of unit.entries()) {
      expect(Math.hypot(...vector)).toBeCloseTo(1, 6);
      expectNear(
        vector,
        [...(mean[i] as Float32Array)].map((x) => x / Math.hypot(...(mean[i] as Float32Array))),
      );
    }
    expect(await embedAsync(model, BATCH, { normalize: true })).toEqual(unit);
    expect(embed(model, [])).toEqual([]);
  });

  test("logits of some places and the largest of them are those of all", () => {
    const model = modelOf("bert");
    const batch = [sequence(9), sequence(280, 2)];
    const positions = [
      [3, 0],
      [279, 5, 5],
    ];
    const all = maskedLogits(model, batch);
    const some = maskedLogits(model, batch, { positions });
    const top = maskedLogits(model, batch, { positions, top: 4 });
    for (const [i, places] of positions.entries())
      for (const [j, place] of places.entries()) {
        const row = (all[i] as (typeof all)[number]).logits.subarray(place * 67, (place + 1) * 67);
        expect((some[i] as (typeof some)[number]).logits.subarray(j * 67, (j + 1) * 67)).toEqual(row);
        const order = [...row.keys()].sort((a, b) => (row[b] as number) - (row[a] as number) || a - b).slice(0, 4);
        const { logits, ids } = top[i] as (typeof top)[number];
        expect([...(ids as Int32Array).subarray(4 * j, 4 * j + 4)]).toEqual(order);
        expect([...logits.subarray(4 * j, 4 * j + 4)]).toEqual(order.map((id) => row[id]));
      }
  });

  test.each(["llama", "gemma2", "qwen3_moe"] as const)(
    "%s as an encoder has the states of the decoder",
    async (name) => {
      using model = await loadEncoder(kernels, tinyFolder(TINY[name]));
      using decoder = await loadModel(kernels, tinyFolder(TINY[name]));
      using session = createSession(decoder, { maxSeqLen: 300 });
      const ids = sequence(270);
      const [states] = encode(model, [ids]);
      // A causal model's states do not depend on later tokens.
      expect(encode(model, [ids.slice(0, 40)])[0]).toEqual(states?.subarray(0, 40 * model.dModel));
      // Its head is the table of tokens in float32: their products with the states are the logits.
      if (name !== "llama") return;
      const { logits } = forward(session, ids);
      const table = tinyTensors(TINY.llama).get("model.embed_tokens.weight")?.data as Float32Array;
      const last = states?.subarray(269 * model.dModel) as Float32Array;
      expectNear(
        logits,
        Array.from({ length: 67 }, (_, id) =>
          last.reduce((sum, x, i) => sum + x * (table[id * model.dModel + i] as number), 0),
        ),
      );
    },
  );

  test("files with gamma and beta, a pooler and a prefix are read as others", async () => {
    const old = new Map<string, Tensor>();
    for (const [name, tensor] of encoderTensors("bert"))
      old.set(
        name
          .replace(/^bert\./, "")
          .replace("LayerNorm.weight", "LayerNorm.gamma")
          .replace("LayerNorm.bias", "LayerNorm.beta"),
        tensor,
      );
    old.set("pooler.dense.weight", { data: new Float32Array(4), shape: [2, 2] });
    old.set("embeddings.position_ids", { data: new Float32Array(4), shape: [1, 4] });
    old.set("cls.predictions.decoder.weight", { data: new Float32Array(4), shape: [2, 2] });
    old.set("cls.seq_relationship.weight", { data: new Float32Array(4), shape: [2, 2] });
    using model = await loadEncoder(kernels, encoderFolder("bert", old));
    expect(encode(model, BATCH)).toEqual(encode(modelOf("bert"), BATCH));
  });

  test.each(sampled(NAMES, 4, undefined, build.length))(
    "%s: planEncoder gives the bytes of the weights, and not less than calls share",
    async (name) => {
      const own = await kernelsOf(build);
      const heads = /^(cls|lm_head|vocab_transform|vocab_layer_norm|vocab_projector|predictions|head|decoder)\./;
      const tensors = new Map([...encoderTensors(name)].filter(([tensor]) => !heads.test(tensor)));
      const used = own.usedBytes;
      const model = await loadEncoder(own, encoderFolder(name, tensors), { weights: "f32" });
      const plan = planEncoder(TINY_ENCODERS[name], { tokens: 300 });
      expect([model.bytes, own.usedBytes - used]).toEqual([plan.weights, plan.weights]);
      const short = Array.from({ length: 16 }, (_, i) => sequence(i === 3 ? 129 : 8, i));
      for (const batch of [BATCH, short]) encode(model, batch);
      const share = (own.usedBytes - used - plan.weights) / plan.scratch;
      expect(share).toBeGreaterThan(0.5);
      expect(share).toBeLessThanOrEqual(1);
      own.release();
    },
  );

  test("a call that is aborted, or whose model is released, frees its memory", async () => {
    using model = await loadEncoder(kernels, encoderFolder("bert"));
    encode(model, BATCH);
    const used = kernels.usedBytes;
    const abort = new AbortController();
    const stopped = encodeAsync(model, BATCH, {
      sliceMs: 1e-3,
      signal: abort.signal,
      onProgress: () => abort.abort("enough"),
    });
    await expect(stopped).rejects.toBe("enough");
    expect(kernels.usedBytes).toBe(used);
    const other = await loadEncoder(kernels, encoderFolder("bert"));
    await expect(embedAsync(other, BATCH, { sliceMs: 1e-3, onProgress: () => other.release() })).rejects.toMatchObject({
      code: "RELEASED",
    });
    expect(kernels.usedBytes).toBe(used);
  });
});

test("threads give the bits of one", async () => {
  const one = await kernelsOf("simd");
  const three = await threadedKernels("simd", 3);
  for (const name of NAMES) {
    using alone = await loadEncoder(one, encoderFolder(name));
    using shared = await loadEncoder(three, encoderFolder(name));
    expect(encode(shared, BATCH)).toEqual(encode(alone, BATCH));
  }
  one.release();
  three.release();
});

function expectNear(got: ArrayLike<number> | undefined, want: readonly number[], share = 1e-5): void {
  expect(got?.length).toBe(want.length);
  const most = want.reduce((largest, x) => Math.max(largest, Math.abs(x)), 0);
  const worst = want.reduce((largest, x, i) => Math.max(largest, Math.abs(x - (got?.[i] ?? Number.NaN))), 0);
  expect(worst).toBeLessThanOrEqual(share * most);
}
