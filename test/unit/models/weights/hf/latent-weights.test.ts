import { expect, test } from "vitest";
import { HeadwiseError } from "../../../../../src/base/util/errors.ts";
import { attend, createCache, type Tensor } from "../../../../../src/entries/core.ts";
import { createLatentAttention } from "../../../../../src/entries/latent.ts";
import {
  fromHfLatentConfig,
  openSafetensors,
  quantizeTensor,
  readLatentWeights,
  readSafetensors,
  type StoredTensor,
  writeSafetensors,
} from "../../../../../src/entries/weights.ts";
import { openGguf } from "../../../../../src/files/gguf.ts";
import { deepseekTensors, under, V2, V3 } from "../../../../support/deepseek-layers.ts";
import { deepseekAttention } from "../../../../support/deepseek-oracle.ts";
import { bytesOf, writeGguf } from "../../../../support/gguf-writer.ts";
import { createRandom } from "../../../../support/harness.ts";
import { kernelsOf } from "../../../../support/layers.ts";

const PREFIX = "model.layers.1.self_attn.";

test.each([
  ["V2, without latents of queries", V2],
  ["V3, with biases and a factor on cos and sin", V3],
  ["V3 that pairs halves", { ...V3, rope_interleave: false }],
  ["V3 without scaling", { ...V3, rope_scaling: undefined }],
])("a layer of %s is within 1e-6 of the largest y of float64, by both paths", async (_, json) => {
  const random = createRandom(3);
  const tensors = deepseekTensors(random, json);
  const x = random.floats(130 * json.hidden_size);
  const want = deepseekAttention(json, tensors, x);
  const most = want.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  for (const build of ["simd", "relaxed"] as const) {
    using kernels = await kernelsOf(build);
    const weights = readLatentWeights(writeSafetensors(under(PREFIX, tensors)), PREFIX);
    const attention = createLatentAttention(kernels, fromHfLatentConfig(json), weights, { expanded: true });
    const cache = createCache(attention, { maxSeqLen: 130 });
    const ys = [attend(attention, x), attend(attention, x, { path: "expanded" }), attend(attention, x, { cache })];
    for (const y of ys)
      expect(y.reduce((worst, v, i) => Math.max(worst, Math.abs(v - want[i]!)), 0)).toBeLessThan(1e-6 * most);
  }
});

test("every tensor is read into its field, and no other field is there", () => {
  const random = createRandom(4);
  const fields = {
    ...{ "kv_a_proj_with_mqa.weight": "wkvDown", "kv_a_layernorm.weight": "kvNorm", "kv_b_proj.weight": "wkvUp" },
    ...{ "o_proj.weight": "wo", "o_proj.bias": "bo", "kv_a_proj_with_mqa.bias": "bkvDown" },
    ...{ "q_proj.weight": "wq", "q_proj.bias": "bq", "q_b_proj.weight": "wqUp", "q_b_proj.bias": "bq" },
    ...{ "q_a_proj.weight": "wqDown", "q_a_proj.bias": "bqDown", "q_a_layernorm.weight": "qNorm" },
  } as Readonly<Record<string, string>>;
  const bias = (length: number) => ({ data: random.floats(length), shape: [length] });
  for (const tensors of [
    deepseekTensors(random, V2),
    { ...deepseekTensors(random, V2), "q_proj.bias": bias(45) },
    { ...deepseekTensors(random, V3), "q_b_proj.bias": bias(45) },
  ]) {
    // The table of older files is not a weight, and the next layer is not this one.
    const file = writeSafetensors({
      ...under(PREFIX, tensors),
      ...under(PREFIX, { "rotary_emb.inv_freq": bias(4) }),
      ...under("model.layers.10.self_attn.", tensors),
    });
    for (const source of [file, readSafetensors(file)])
      for (const prefix of [PREFIX, PREFIX.slice(0, -1)]) {
        const weights = readLatentWeights(source, prefix) as unknown as Record<string, Tensor | Float32Array>;
        const want = Object.entries(tensors).map(([name, { data, shape }]) => [
          fields[name] as string,
          shape.length === 1 ? data : { data, shape },
        ]);
        expect(weights).toStrictEqual(Object.fromEntries(want));
      }
  }
});

test("16-bit floats and blocks stay as they are stored", () => {
  const tensors = deepseekTensors(createRandom(5), { ...V2, hidden_size: 64, kv_lora_rank: 32 });
  const half = (tensor: Tensor): StoredTensor =>
    quantizeTensor({ name: "w", dtype: "F32", shape: tensor.shape, bytes: bytesOf(tensor.data) }, "BF16");
  const blocks = (tensor: Tensor): StoredTensor =>
    quantizeTensor({ name: "w", dtype: "F32", shape: tensor.shape, bytes: bytesOf(tensor.data) }, "Q8_0");
  const { "q_proj.weight": q, "kv_b_proj.weight": up } = tensors as Record<string, Tensor>;
  const file = writeSafetensors({ ...tensors, "q_proj.weight": half(q!), "kv_b_proj.weight": blocks(up!) });
  const { wq, wkvUp } = readLatentWeights(file);
  expect(wq).toMatchObject({ dtype: "BF16", shape: [45, 64], bytes: half(q!).bytes });
  expect(wkvUp).toMatchObject({ dtype: "Q8_0", shape: [36, 32], bytes: blocks(up!).bytes });
});

const layer = () => deepseekTensors(createRandom(6), V2);
const lowRank = () => deepseekTensors(createRandom(6), V3);
const zeros = (...shape: number[]): Tensor => ({ data: new Float32Array(shape.reduce((a, b) => a * b)), shape });
const without = <T>(tensors: Readonly<Record<string, T>>, name: string) =>
  Object.fromEntries(Object.entries(tensors).filter(([each]) => each !== name));

test.each(Object.keys(layer()))("a layer without %s is refused by its name", (name) => {
  const file = writeSafetensors(under(PREFIX, without(layer(), name)));
  expect(() => readLatentWeights(file, PREFIX)).toThrow(
    new HeadwiseError("BAD_FILE", `readLatentWeights: tensor "${PREFIX}${name}" expected, as in DeepSeek, got none`),
  );
});

test.each(["q_a_proj.weight", "q_a_layernorm.weight", "q_b_proj.weight"])(
  "a layer with latents of queries without %s is refused by its name",
  (name) => {
    expect(() => readLatentWeights(writeSafetensors(without(lowRank(), name)))).toThrow(
      `readLatentWeights: tensor "${name}" expected, as in DeepSeek, got none`,
    );
  },
);

test.each<[what: string, tensors: () => Readonly<Record<string, Tensor | StoredTensor>>, message: string]>([
  [
    "a bias that would be ignored",
    () => ({ ...layer(), "kv_b_proj.bias": zeros(36) }),
    'tensor "kv_b_proj.bias" expected to be absent: DeepSeek would be read without it, got it',
  ],
  [
    "scales of blocks",
    () => ({ ...layer(), "o_proj.weight_scale_inv": zeros(1, 1) }),
    'tensor "o_proj.weight_scale_inv" expected to be absent, since matrices of 8-bit floats with scales are unsupported: convert the file to BF16, got it',
  ],
  [
    "an indexer",
    () => ({ ...layer(), "indexer.wk.weight": zeros(8, 24) }),
    'tensor "indexer.wk.weight" expected to be absent: DeepSeek would be read without it, got it',
  ],
  [
    "both projections of queries",
    () => ({ ...lowRank(), "q_proj.weight": zeros(45, 24) }),
    'tensor "q_proj.weight" expected to be absent: DeepSeek would be read without it, got it',
  ],
  [
    "8-bit floats",
    () => ({
      ...layer(),
      "o_proj.weight": { name: "w", dtype: "F8_E4M3", shape: [24, 15], bytes: new Uint8Array(360) },
    }),
    'tensor "o_proj.weight" expected dtype F32, F64, F16, BF16, Q8_0 or Q4_0, got F8_E4M3',
  ],
  [
    "another width",
    () => ({ ...layer(), "q_proj.weight": zeros(45, 23) }),
    'tensor "q_proj.weight" expected 24 inputs beside "kv_a_proj_with_mqa.weight" [18, 24], got shape [45, 23]',
  ],
  [
    "another rank of queries",
    () => ({ ...lowRank(), "q_b_proj.weight": zeros(45, 11) }),
    'tensor "q_b_proj.weight" expected 12 inputs beside "q_a_proj.weight" [12, 24], got shape [45, 11]',
  ],
  [
    "latents that are wider than their projection",
    () => ({ ...layer(), "kv_b_proj.weight": zeros(36, 19) }),
    'tensor "kv_b_proj.weight" expected at most 18 inputs beside "kv_a_proj_with_mqa.weight" [18, 24], got shape [36, 19]',
  ],
  [
    "an output of another width",
    () => ({ ...layer(), "o_proj.weight": zeros(15, 24) }),
    'tensor "o_proj.weight" expected 24 outputs beside "kv_a_proj_with_mqa.weight" [18, 24], got shape [15, 24]',
  ],
  [
    "a norm of another length",
    () => ({ ...layer(), "kv_a_layernorm.weight": zeros(18) }),
    'tensor "kv_a_layernorm.weight" expected shape [10], got [18]',
  ],
  [
    "a bias of another length",
    () => ({ ...lowRank(), "o_proj.bias": zeros(23) }),
    'tensor "o_proj.bias" expected shape [24], got [23]',
  ],
  [
    "a matrix of rank 3",
    () => ({ ...layer(), "kv_b_proj.weight": zeros(3, 12, 10) }),
    'tensor "kv_b_proj.weight" expected a matrix with no empty side, got shape [3, 12, 10]',
  ],
])("%s is refused", (_, tensors, message) => {
  const run = () => readLatentWeights(writeSafetensors(tensors()));
  expect(run).toThrow(HeadwiseError);
  expect(run).toThrow(`readLatentWeights: ${message}`);
});

test("a prefix without tensors is refused with those of the layers, and what is no file by what it is", async () => {
  const file = writeSafetensors({ ...under(PREFIX, layer()), "lm_head.weight": zeros(2, 24) });
  expect(() => readLatentWeights(file, "model.layers.7.")).toThrow(
    new HeadwiseError(
      "BAD_FILE",
      `readLatentWeights: prefix "model.layers.7." expected to begin a tensor's name, got layers at "${PREFIX}"`,
    ),
  );
  expect(() => readLatentWeights(file, 3 as never)).toThrow(
    new TypeError("readLatentWeights: prefix expected a string, got 3"),
  );
  const opened = "readLatentWeights: source expected { metadata, tensors } with the tensors that readAll resolves with";
  expect(() => readLatentWeights(openSafetensors(file) as never)).toThrow("got Promise: await it");
  const gguf = await openGguf(writeGguf({}));
  expect(() => readLatentWeights(gguf as never)).toThrow(
    `${opened}, got an opened file (of one that openGguf opened, readGgufLatentLayer reads a layer)`,
  );
});
