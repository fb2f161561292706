import { describe, expect, test } from "vitest";
import { type AttentionConfig, plan } from "../../../../src/entries/core.ts";
import { type LatentConfig, planLatent } from "../../../../src/entries/latent.ts";
import { countParameters } from "../../../../src/entries/weights.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { randomWeights } from "../../../support/layers.ts";

describe("parameters", () => {
  test("are the numbers of the weights, matrix by matrix", () => {
    const config: AttentionConfig = {
      ...{ dModel: 24, numHeads: 6, numKvHeads: 2, headDim: 5, valueDim: 3, kdim: 7, vdim: 9 },
      qkNorm: { kind: "full" },
    };
    const weights = randomWeights(createRandom(1), config, { biases: true });
    const sizes = Object.entries(weights).map(([name, of]) => [name, "data" in of ? of.data.length : of.length]);
    const { parts, total } = countParameters(config, { biases: true });
    expect(parts).toEqual(Object.fromEntries(sizes));
    expect(total).toBe(sizes.reduce((sum, [, size]) => sum + (size as number), 0));
    const { bq, bk, bv, bo, ...rest } = parts;
    expect(countParameters(config).parts).toEqual(rest);
    expect(countParameters(config, { biases: ["bv", "bq", "bv"] }).parts).toEqual({ ...rest, bq, bv });
    const perHead = countParameters({ ...config, qkNorm: { kind: "per-head" } }).parts;
    expect([perHead.qNorm, perHead.kNorm]).toEqual([5, 5]);
  });

  test("of latent attention are those of its projections down and up, and the gains of its norms", () => {
    const lite: LatentConfig = {
      ...{ dModel: 2048, numHeads: 16, kvLoraRank: 512, nopeDim: 128, ropeDim: 64 },
      rope: { theta: 10_000, pairing: "interleaved" },
    };
    const parts = {
      ...{ wq: 2048 * 16 * 192, wkvDown: 2048 * 576, wkvUp: 512 * 16 * 256, wo: 2048 * 16 * 128 },
      kvNorm: 512,
    };
    expect(countParameters(lite)).toEqual({ parts, total: 13_763_072 });
    expect(countParameters({ ...lite, latentNorm: false }).total).toBe(13_763_072 - 512);
    const { wq, ...others } = parts;
    const low = { wqDown: 2048 * 1536, wqUp: 1536 * 16 * 192, qNorm: 1536 };
    const biases = { bq: 16 * 192, bqDown: 1536, bkvDown: 576, bo: 2048 };
    expect(countParameters({ ...lite, qLoraRank: 1536 }, { biases: true }).parts).toEqual({
      ...others,
      ...low,
      ...biases,
    });
    expect(countParameters(lite, { biases: true }).parts).toEqual({ ...parts, bq: 3072, bkvDown: 576, bo: 2048 });
  });

  test.each<[config: unknown, options: unknown, message: string]>([
    [null, {}, "config expected an object, got null"],
    [{ dModel: 8 }, {}, "numHeads expected an integer from 1 to 65536, got undefined"],
    [
      { dModel: 8, numHeads: 2, kvLoraRank: 0, nopeDim: 1, ropeDim: 0 },
      {},
      "kvLoraRank expected an integer >= 1, got 0",
    ],
    [
      { dModel: 8, numHeads: 2 },
      { biases: "all" },
      'options.biases expected true, false or an array of names, got "all"',
    ],
    [
      { dModel: 8, numHeads: 2 },
      { biases: ["bq", "bkvDown"] },
      'options.biases[1] expected "bq" or "bk" or "bv" or "bo", got "bkvDown"',
    ],
    [{ dModel: 8, numHeads: 2 }, { bias: true }, 'options expected only biases, got "bias"'],
  ])("%j with %j is refused", (config, options, message) => {
    expect(() => countParameters(config as AttentionConfig, options as object)).toThrow(`countParameters: ${message}`);
  });
});

/** Bytes of a cache without its page table: 4 bytes for each page of 128 tokens, in whole blocks of 64 bytes. */
function tokenBytes(config: AttentionConfig, maxSeqLen: number, format: "f32" | "f16" = "f32"): number {
  const table = Math.ceil((4 * Math.ceil(maxSeqLen / 128)) / 64) * 64;
  return plan(config, { maxSeqLen, format }).cache - table;
}

/** Floats of a token in the float32 cache of a layer of latent attention, without the page table. */
const latentFloats = (config: LatentConfig) => (planLatent(config, { maxSeqLen: 128 }).cache - 64) / (4 * 128);

describe("the figures of lessons about attention variants", () => {
  test("Llama 3 70B: 8 instead of 64 key-value heads divide the cache by 8, from 20 GiB to 2.5 GiB at 8192 tokens in f16", () => {
    const mha = { dModel: 8192, numHeads: 64 };
    const gqa = { ...mha, numKvHeads: 8 };
    const [before, after] = [tokenBytes(mha, 8192, "f16"), tokenBytes(gqa, 8192, "f16")];
    // Bytes a token in one layer, and in all 80.
    expect([before / 8192, after / 8192]).toEqual([32_768, 4096]);
    expect([(80 * before) / 8192, (80 * after) / 8192]).toEqual([2_621_440, 327_680]);
    expect([(80 * before) / 2 ** 30, (80 * after) / 2 ** 30]).toEqual([20, 2.5]);
    // With the page table: 64 pages of 4 bytes.
    expect(plan(gqa, { maxSeqLen: 8192, format: "f16" }).cache).toBe(8192 * 4096 + 256);
  });

  test("MHA, MQA and biases: parameters of width 512 and 64", () => {
    expect(countParameters({ dModel: 512, numHeads: 8 }, { biases: true }).total).toBe(1_050_624);
    const totals = (dModel: number) => {
      const [mha, mqa] = [
        { dModel, numHeads: 8 },
        { dModel, numHeads: 8, numKvHeads: 1 },
      ];
      return [countParameters(mha).total, countParameters(mqa).total] as const;
    };
    expect(totals(512)).toEqual([1_048_576, 589_824]);
    expect(totals(64)).toEqual([16_384, 9216]);
    for (const [mha, mqa] of [totals(512), totals(64)]) expect(1 - mqa / mha).toBe(0.4375);
  });

  test("MQA at 2048 tokens in float32: the cache takes as many times fewer bytes as there are heads", () => {
    const bytes = (dModel: number, numHeads: number) =>
      [undefined, 1].map((numKvHeads) => tokenBytes({ dModel, numHeads, ...(numKvHeads && { numKvHeads }) }, 2048));
    expect(bytes(512, 8)).toEqual([8_388_608, 1_048_576]);
    expect(bytes(64, 8)).toEqual([1_048_576, 131_072]);
    expect(bytes(768, 12)).toEqual([12_582_912, 1_048_576]);
  });

  test("a latent takes less than an eighth of MHA's cache if its floats are fewer than a quarter of dModel", () => {
    const eighth = (dModel: number) => tokenBytes({ dModel, numHeads: 8 }, 128) / (4 * 128) / 8;
    // In whole panels of 8 floats, so that 15 floats take the room of 16, the eighth itself.
    for (const [dModel, rank] of [
      [64, 15],
      [512, 127],
    ] as const) {
      const latent = (kvLoraRank: number) => ({ dModel, numHeads: 8, kvLoraRank, nopeDim: dModel / 8, ropeDim: 0 });
      expect(eighth(dModel)).toBe(rank + 1);
      expect([latentFloats(latent(rank)), latentFloats(latent(rank + 1))]).toEqual([rank + 1, rank + 1]);
      expect(latentFloats(latent(rank - 7))).toBe(rank - 7);
      expect(latentFloats(latent(rank - 7))).toBeLessThan(eighth(dModel));
    }
  });

  test("DeepSeek-V2-Lite holds 576 floats a token where MHA of its heads holds 5120, 8.9 times as many", () => {
    const lite: LatentConfig = {
      ...{ dModel: 2048, numHeads: 16, kvLoraRank: 512, nopeDim: 128, ropeDim: 64 },
      rope: { theta: 10_000, pairing: "interleaved" },
    };
    const heads = { dModel: 2048, numHeads: 16, headDim: 192, valueDim: 128 };
    const [latent, mha] = [latentFloats(lite), tokenBytes(heads, 128) / (4 * 128)];
    expect([latent, mha, (mha / latent).toFixed(1)]).toEqual([576, 5120, "8.9"]);
    // At 8192 tokens, with the page table: 64 pages of 4 bytes.
    expect(planLatent(lite, { maxSeqLen: 8192 }).cache).toBe(8192 * 4 * 576 + 256);
    expect(plan(heads, { maxSeqLen: 8192 }).cache).toBe(8192 * 4 * 5120 + 256);
  });
});
