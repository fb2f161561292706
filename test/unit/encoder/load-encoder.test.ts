import { beforeAll, describe, expect, test } from "vitest";
import { bucketOf } from "../../../src/decoder/relative.ts";
import { embed } from "../../../src/encoder/embed.ts";
import { encode } from "../../../src/encoder/encode.ts";
import { type Encoder, loadEncoder, readEncoder } from "../../../src/encoder/load-encoder.ts";
import { maskedLogits } from "../../../src/encoder/masked-logits.ts";
import type { Kernels } from "../../../src/entries/core.ts";
import { kernelsOf } from "../../support/layers.ts";
import { encoderFolder, encoderTensors, TINY_ENCODERS } from "../../support/tiny-encoders.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";

let kernels: Kernels;
let model: Encoder;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
  model = await loadEncoder(kernels, encoderFolder("bert"));
});

describe("errors of calls", () => {
  const tokenizer = { encode: (text: string) => Array.from(text, (letter) => letter.charCodeAt(0) - 97) };

  test.each<[call: () => unknown, message: string]>([
    [() => encode(model, [[1], []]), "encode: batch[1] expected 1 or more tokens, got none"],
    [() => encode(model, [[1, 67]]), "encode: batch[0][1] expected an integer from 0 to 66, got 67"],
    [
      () => encode(model, [new Int32Array(321)]),
      "encode: batch[0] expected at most 320 tokens, the positions of the model, got 321",
    ],
    [
      () => embed(model, ["text"]),
      'embed: batch[0] expected token ids, or a tokenizer with encode(text) in the options, got "text"',
    ],
    [() => embed(model, "text" as never), 'embed: batch expected an array of lists, got "text"'],
    [() => embed(model, ["aé"], { tokenizer }), "embed: batch[0][1] expected an integer from 0 to 66, got 136"],
    [
      () => embed(model, [[1]], { pooling: "max" as never }),
      'embed: pooling expected "mean" or "cls" or "last", got "max"',
    ],
    [() => embed(model, [[1]], { normalize: 1 as never }), "embed: normalize expected true or false, got 1"],
    [
      () => encode(model, [[1], [2]], { tokenTypes: [[0]] }),
      "encode: tokenTypes expected a list for each of 2 sequences, got 1",
    ],
    [
      () => encode(model, [[1]], { tokenTypes: [[3]] }),
      "encode: tokenTypes[0][0] expected an integer from 0 to 2, got 3",
    ],
    [
      () => encode(model, [[1]], { tokenTypes: [[0, 0]] }),
      "encode: tokenTypes[0] expected 1 types, one for each id, got 2",
    ],
    [
      () => maskedLogits(model, [[1]], { positions: [[1]] }),
      "maskedLogits: positions[0][0] expected an integer from 0 to 0, got 1",
    ],
    [() => maskedLogits(model, [[1]], { top: 68 }), "maskedLogits: top expected an integer from 1 to 67, got 68"],
    [
      () => encode({ ...model } as Encoder, [[1]]),
      "encode: model expected what loadEncoder or loadSeq2Seq gives, got a copy",
    ],
  ])("%o", (call, message) => {
    expect(call).toThrow(message);
  });

  test("texts are encoded, and token types refused by models without", async () => {
    expect(embed(model, ["abc", [3]], { tokenizer })).toEqual(embed(model, [[0, 1, 2], [3]]));
    using other = await loadEncoder(kernels, encoderFolder("distilbert"));
    expect(() => encode(other, [[1]], { tokenTypes: [[0]] })).toThrow("the model has no token types");
  });
});

describe("files", () => {
  test("a missing, an unexpected and a misshapen tensor are named together", async () => {
    const tensors = encoderTensors("bert");
    tensors.delete("bert.encoder.layer.1.output.dense.weight");
    tensors.set("bert.embeddings.more.weight", { data: new Float32Array(1), shape: [1] });
    tensors.set("bert.embeddings.LayerNorm.weight", { data: new Float32Array(41), shape: [41] });
    const used = kernels.usedBytes;
    await expect(loadEncoder(kernels, encoderFolder("bert", tensors))).rejects.toMatchObject({
      code: "BAD_FILE",
      message:
        'loadEncoder: tensors expected those of "bert" with 3 layers, got 1 missing: bert.encoder.layer.1.output.dense.weight; ' +
        "1 unexpected: bert.embeddings.more.weight; 1 of another shape: bert.embeddings.LayerNorm.weight expected [40], got [41]",
    });
    expect(kernels.usedBytes).toBe(used);
  });

  test.each<[config: object, message: string]>([
    [{ ...TINY_ENCODERS.bert, is_decoder: true }, "is_decoder expected false"],
    [{ ...TINY_ENCODERS.albert, inner_group_num: 2 }, "inner_group_num expected 1"],
    [{ ...TINY_ENCODERS.bert, position_embedding_type: "relative_key" }, 'position_embedding_type expected "absolute"'],
    [{ ...TINY_ENCODERS.nomic_bert, rotary_scaling_factor: 2 }, "rotary_scaling_factor expected null"],
    [{ ...TINY_ENCODERS.bert, new_field: 1 }, "new_field expected a field that this package knows, or none, got 1"],
    [{ ...TINY_ENCODERS.bert, model_type: "bart" }, "model_type expected a supported one (nearest: "],
    [TINY.deepseek_v3, 'model_type expected one without latent attention, got "deepseek_v3"'],
  ])("%o is refused", (config, message) => {
    expect(() => readEncoder("loadEncoder", config)).toThrow(`loadEncoder: ${message}`);
  });

  test("a head that the file lacks is not read, and layers of a group share their weights", async () => {
    const tensors = encoderTensors("albert");
    for (const name of [...tensors.keys()]) if (name.startsWith("predictions.")) tensors.delete(name);
    using without = await loadEncoder(kernels, encoderFolder("albert", tensors));
    using whole = await loadEncoder(kernels, encoderFolder("albert"));
    expect(without.bytes).toBeLessThan(whole.bytes);
    expect([whole.layers, whole.spec.blocks.length]).toEqual([5, 2]);
    expect(encode(without, [[1, 2]])).toEqual(encode(whole, [[1, 2]]));
    expect(() => maskedLogits(without, [[1]])).toThrow("got one without");
  });

  test("a model's bytes are those that memory grows by, and its positions limit its texts", async () => {
    const used = kernels.usedBytes;
    const other = await loadEncoder(kernels, encoderFolder("roberta"));
    expect(kernels.usedBytes - used).toBe(other.bytes);
    expect([other.maxSeqLen, model.maxSeqLen]).toEqual([320, 320]);
    other.release();
    expect(kernels.usedBytes).toBe(used);
  });

  test("a model with latent attention is refused by name", async () => {
    await expect(loadEncoder(kernels, tinyFolder(TINY.deepseek_v3))).rejects.toThrow("without latent attention");
  });
});

test("distances share buckets as in T5: near ones alone, far ones in growing groups, the last without end", () => {
  const both = { buckets: 32, maxDistance: 128, bothWays: true };
  const buckets = (distances: readonly number[], spec = both) => distances.map((distance) => bucketOf(spec, distance));
  expect(buckets([0, -1, -7, -8, -11, -12, -15, -16, -22, -23, -127, -128, -5000])).toEqual([
    ...[0, 1, 7, 8, 8, 9, 9, 10, 10, 11, 15, 15, 15],
  ]);
  expect(buckets([1, 7, 8, 12, 16, 5000])).toEqual([17, 23, 24, 25, 26, 31]);
  const past = { ...both, bothWays: false };
  expect(buckets([3, 0, -15, -16, -18, -19, -32, -64, -5000], past)).toEqual([0, 0, 15, 16, 16, 17, 21, 26, 31]);
});
