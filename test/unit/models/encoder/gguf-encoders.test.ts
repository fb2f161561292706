// Encoders in GGUF: each architecture against its form of Hugging Face, and the files that are refused.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Tensor } from "../../../../src/base/tensor/tensor.ts";
import type { Kernels } from "../../../../src/entries/core.ts";
import type { ModelSource } from "../../../../src/entries/models.ts";
import { loadTokenizer } from "../../../../src/entries/text.ts";
import { embed, encode, maskedLogits } from "../../../../src/models/encoder/encode.ts";
import { loadEncoder, readEncoder } from "../../../../src/models/encoder/load.ts";
import { GGUF_ENCODERS } from "../../../../src/models/families/index.ts";
import { gguf } from "../../../../src/models/spec/read-gguf.ts";
import { text, u32, type Written, writeGguf } from "../../../support/gguf-writer.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { ggufModel, realTensors, tinyGguf, wordPieceKeys } from "../../../support/tiny-gguf.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
});
afterAll(() => kernels.release());

const SMALL = {
  ...{ vocab_size: 67, hidden_size: 64, num_hidden_layers: 3, num_attention_heads: 4, intermediate_size: 96 },
  layer_norm_eps: 2 ** -14,
};
const CASES = {
  bert: { model_type: "bert", ...SMALL, max_position_embeddings: 320, type_vocab_size: 3 },
  "bert of RoBERTa": {
    model_type: "roberta",
    ...SMALL,
    max_position_embeddings: 322,
    type_vocab_size: 1,
    pad_token_id: 1,
  },
  "bert of XLM-RoBERTa": {
    ...{ model_type: "xlm-roberta", ...SMALL, max_position_embeddings: 514, type_vocab_size: 1, pad_token_id: 1 },
  },
  "nomic-bert": {
    model_type: "nomic_bert",
    ...SMALL,
    type_vocab_size: 2,
    rotary_emb_base: 1000,
    max_position_embeddings: 512,
  },
  "jina-bert-v3": { model_type: "jina_embeddings_v3", ...SMALL, max_position_embeddings: 512, rope_theta: 20_000 },
  eurobert: { ...TINY.llama, model_type: "eurobert", rms_norm_eps: 2 ** -14, tie_word_embeddings: false },
  "gemma-embedding": {
    ...{ ...TINY.llama, model_type: "gemma3_text", rms_norm_eps: 2 ** -14, num_hidden_layers: 7, sliding_window: 9 },
    ...{ use_bidirectional_attention: true, rope_theta: 1_000_000 },
  },
  "qwen3, a decoder": { ...TINY.llama, model_type: "qwen3", rms_norm_eps: 2 ** -14 },
} as const;
type Case = keyof typeof CASES;
const NAMES = Object.keys(CASES) as Case[];

/** Heads for masked tokens. */
const HEADS = /^(cls|lm_head)\./;
const familyOf = ({ model_type: type }: { readonly model_type: string }) =>
  ({ "xlm-roberta": "roberta", gemma3_text: "gemma-embedding" })[type] ?? type;
/** Without tensors that no GGUF file has. */
const tensorsOf = (config: (typeof CASES)[Case]): Map<string, Tensor> => {
  const tensors = [...tinyTensors(config, 1, readEncoder)].filter(([name]) => !HEADS.test(name));
  return new Map(realTensors(config, new Map(tensors), familyOf(config)));
};
const ggufOf = (name: Case) => tinyGguf(CASES[name], tensorsOf(CASES[name]), familyOf(CASES[name]));

/** Without the id of padding, which takes no position of RoBERTa: GGUF files do not say it. */
const BATCH = [1, 40, 7, 300].map((length) => Array.from({ length }, (_, i) => 2 + ((i * 29 + length) % 65)));

async function statesOf(source: ModelSource, options: object = {}) {
  using model = await loadEncoder(kernels, source, { ...options, gguf });
  return { states: encode(model, BATCH), facts: [model.layers, model.dModel, model.vocabSize] };
}

test.each(NAMES)("%s: the states of a GGUF are those of its safetensors form, to the bit", async (name) => {
  const want = await statesOf(tinyFolder(CASES[name], tensorsOf(CASES[name])));
  expect(await statesOf(ggufOf(name))).toEqual(want);
});

test("a table of one type, which some programs store as a vector, is read the same", async () => {
  const name = "bert of RoBERTa";
  const model = ggufModel(CASES[name], tensorsOf(CASES[name]));
  const tensors = model.tensors.map((each) =>
    each.name === "token_types.weight" ? { ...each, shape: each.shape.slice(1) } : each,
  );
  expect(await statesOf(writeGguf({ ...model, tensors }))).toEqual(await statesOf(ggufOf(name)));
});

test("every architecture is among them", () => {
  const found = new Set(NAMES.map((name) => name.split(/[ ,]/)[0] as string));
  expect([...found].filter((name) => GGUF_ENCODERS.has(name)).sort()).toEqual([...GGUF_ENCODERS.keys()].sort());
});

test("types of tokens, and the last of the positions, are those of the file", async () => {
  const types = BATCH.map((ids) => ids.map((_, i) => i % 3));
  const runs = [tinyFolder(CASES.bert, tensorsOf(CASES.bert)), ggufOf("bert")].map(async (source) => {
    using model = await loadEncoder(kernels, source, { gguf });
    expect([model.type, model.maxSeqLen]).toEqual(["bert", 320]);
    expect(() => maskedLogits(model, [[1]])).toThrow("whose file has a head for masked tokens, got one without");
    return embed(model, BATCH, { tokenTypes: types, normalize: true });
  });
  const [want, got] = await Promise.all(runs);
  expect(got).toEqual(want);
});

test("one file has the vocabulary too: texts have the vectors of their ids", async () => {
  const model = ggufModel(CASES.bert, tensorsOf(CASES.bert));
  const file = writeGguf({ ...model, metadata: { ...model.metadata, ...wordPieceKeys(67) } });
  const tokenizer = await loadTokenizer(file);
  using encoder = await loadEncoder(kernels, file, { gguf });
  const got = embed(encoder, ["The cats sat", "the cat"], { tokenizer, normalize: true });
  expect(got).toEqual(
    embed(
      encoder,
      [
        [2, 4, 5, 6, 7, 3],
        [2, 4, 5, 3],
      ],
      { normalize: true },
    ),
  );
});

test("matrices in Q8_0 keep their format, with the vectors of the weights that they stand for", async () => {
  const model = ggufModel(CASES.bert, tensorsOf(CASES.bert));
  const encoded = model.tensors.map((each) => (isMatrix(each) ? toQ8(each) : each));
  const source = writeGguf({ ...model, tensors: encoded });
  using kept = await loadEncoder(kernels, source, { gguf });
  using widened = await loadEncoder(kernels, source, { gguf, weights: "f32" });
  expect(kept.bytes).toBeLessThan(0.5 * widened.bytes);
  const [some, all] = [kept, widened].map((each) => embed(each, BATCH, { normalize: true }));
  for (const [i, vector] of (some as Float32Array[]).entries())
    for (const [j, x] of vector.entries()) expect(Math.abs(x - (all?.[i]?.[j] as number))).toBeLessThan(2e-3);
});

const isMatrix = ({ name, shape }: Written) => shape.length === 2 && !/^(position_embd|token_types)\./.test(name);

/** Blocks of 32 integers with the scale 2^-7, which is that of all values here. */
function toQ8({ name, shape, bytes }: Written): Written {
  const values = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const blocks = new Uint8Array((values.length / 32) * 34);
  const view = new DataView(blocks.buffer);
  for (const [i, x] of values.entries()) {
    const at = Math.floor(i / 32) * 34;
    view.setUint16(at, 0x2000, true);
    view.setInt8(at + 2 + (i % 32), Math.max(-127, Math.min(127, Math.round(x * 128))));
  }
  return { name, shape, type: 8, bytes: blocks };
}

describe("refused with all memory free", () => {
  const bert = () => ggufModel(CASES.bert, tensorsOf(CASES.bert));

  test.each<[string, (model: ReturnType<typeof bert>) => unknown, string]>([
    [
      "an architecture that no reader knows",
      ({ metadata }) => Object.assign(metadata, { "general.architecture": text("berd") }),
      'key "general.architecture" expected a supported one (nearest: "bert"), got "berd"',
    ],
    [
      "an encoder that is not read",
      ({ metadata }) => Object.assign(metadata, { "general.architecture": text("jina-bert-v2") }),
      'expected one that is read whole, got "jina-bert-v2", whose layers readGgufLayer reads',
    ],
    [
      "relative positions",
      ({ metadata }) => Object.assign(metadata, { "general.architecture": text("t5encoder") }),
      'got "t5encoder", which has relative positions inside attention',
    ],
    [
      "no epsilon",
      ({ metadata }) => delete metadata["bert.attention.layer_norm_epsilon"],
      'key "bert.attention.layer_norm_epsilon" expected a finite float32 number > 0, got undefined',
    ],
    [
      "another number of layers",
      ({ metadata }) => Object.assign(metadata, { "bert.block_count": u32(2) }),
      'tensors expected those of "bert" with 2 layers, got 16 unexpected: blk.2.',
    ],
    [
      "no positions",
      ({ tensors }) =>
        void tensors.splice(
          tensors.findIndex(({ name }) => name === "position_embd.weight"),
          1,
        ),
      'tensor "position_embd.weight" expected two dimensions, got no such tensor',
    ],
  ])("%s", async (_, change, message) => {
    const model = bert();
    change(model);
    const used = kernels.usedBytes;
    await expect(loadEncoder(kernels, writeGguf(model), { gguf })).rejects.toMatchObject({
      code: "BAD_FILE",
      message: expect.stringContaining(message),
    });
    expect(kernels.usedBytes).toBe(used);
  });

  test("a classifier is not read", async () => {
    const model = bert();
    model.tensors.push({ name: "cls.weight", type: 0, shape: [1], bytes: new Uint8Array(4) });
    expect(await statesOf(writeGguf(model))).toEqual(await statesOf(ggufOf("bert")));
  });

  test("a GGUF without the reader, with its error", async () => {
    await expect(loadEncoder(kernels, ggufOf("bert"))).rejects.toMatchObject({
      code: "NO_GGUF",
      message: expect.stringContaining("loadEncoder: source expected one of safetensors, or options with { gguf }"),
    });
  });
});
