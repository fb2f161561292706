import { expect, test } from "vitest";
import { type StoredTensor, toFloats } from "../../../../../src/base/tensor/dtypes.ts";
import type { Tensor } from "../../../../../src/base/tensor/tensor.ts";
import { HeadwiseError } from "../../../../../src/base/util/errors.ts";
import { openGguf } from "../../../../../src/files/gguf.ts";
import {
  openSafetensors,
  openSafetensorsIndex,
  readSafetensors,
  readSafetensorsIndex,
  writeSafetensors,
} from "../../../../../src/files/safetensors/safetensors.ts";

import type { AttentionWeights } from "../../../../../src/layers/attention/weights.ts";
import { readAttentionWeights, type WeightsConfig } from "../../../../../src/models/weights/hf-weights.ts";
import { writeGguf } from "../../../../support/gguf-writer.ts";

type Shapes = Readonly<Record<string, readonly number[]>>;

/** Tensors whose floats tell where they come from: 1000 · (index of the tensor) + index of the float. */
function numbered(shapes: Shapes): Record<string, Tensor> {
  return Object.fromEntries(
    Object.entries(shapes).map(([name, shape], tensor) => {
      const length = shape.reduce((product, side) => product * side, 1);
      return [name, { data: Float32Array.from({ length }, (_, i) => 1000 * tensor + i), shape }];
    }),
  );
}

/** What a file without blocks gives. */
const readFloats = (...args: Parameters<typeof readAttentionWeights>) =>
  readAttentionWeights(...args) as AttentionWeights<Tensor>;

const read = (shapes: Shapes, prefix = "", config: WeightsConfig = {}) =>
  readFloats(writeSafetensors(numbered(shapes)), prefix, config);

function refusalOf(shapes: Shapes, prefix = "", config: WeightsConfig = {}): string {
  try {
    read(shapes, prefix, config);
  } catch (error) {
    expect(error).toBeInstanceOf(HeadwiseError);
    expect((error as HeadwiseError).code).toBe("BAD_FILE");
    return (error as Error).message;
  }
  throw new Error("expected BAD_FILE, but the weights were read");
}

/** Four linear layers with biases: dModel 8, 4 heads that share 2 keys and values of 3 floats. */
const linears = (names: readonly [string, string, string, string], without: readonly string[] = []): Shapes => {
  const [q, k, v, o] = names;
  const all = {
    [`${q}.weight`]: [12, 8],
    [`${k}.weight`]: [6, 8],
    [`${v}.weight`]: [6, 8],
    [`${o}.weight`]: [8, 12],
    [`${q}.bias`]: [12],
    [`${k}.bias`]: [6],
    [`${v}.bias`]: [6],
    [`${o}.bias`]: [8],
  };
  return Object.fromEntries(Object.entries(all).filter(([name]) => !without.includes(name)));
};

const LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj"] as const;

test.each<[family: string, shapes: Shapes, parts: Readonly<Record<string, string>>, layout: string]>([
  [
    "nn.MultiheadAttention with add_bias_kv",
    {
      in_proj_weight: [18, 6],
      in_proj_bias: [18],
      "out_proj.weight": [6, 6],
      "out_proj.bias": [6],
      bias_k: [1, 1, 6],
      bias_v: [1, 1, 6],
    },
    {
      wqkv: "in_proj_weight",
      bqkv: "in_proj_bias",
      wo: "out_proj.weight",
      bo: "out_proj.bias",
      biasK: "bias_k",
      biasV: "bias_v",
    },
    "out-in",
  ],
  [
    "nn.MultiheadAttention with kdim and vdim",
    { q_proj_weight: [6, 6], k_proj_weight: [6, 5], v_proj_weight: [6, 7], "out_proj.weight": [6, 6] },
    { wq: "q_proj_weight", wk: "k_proj_weight", wv: "v_proj_weight", wo: "out_proj.weight" },
    "out-in",
  ],
  [
    "Llama, without biases",
    linears(LLAMA, ["q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"]),
    { wq: "q_proj.weight", wk: "k_proj.weight", wv: "v_proj.weight", wo: "o_proj.weight" },
    "out-in",
  ],
  [
    "Qwen2, without a bias of the output",
    linears(LLAMA, ["o_proj.bias"]),
    {
      wq: "q_proj.weight",
      wk: "k_proj.weight",
      wv: "v_proj.weight",
      wo: "o_proj.weight",
      bq: "q_proj.bias",
      bk: "k_proj.bias",
      bv: "v_proj.bias",
    },
    "out-in",
  ],
  [
    "gpt-oss, with sinks",
    { ...linears(LLAMA), sinks: [4] },
    {
      wq: "q_proj.weight",
      wk: "k_proj.weight",
      wv: "v_proj.weight",
      wo: "o_proj.weight",
      bq: "q_proj.bias",
      bk: "k_proj.bias",
      bv: "v_proj.bias",
      bo: "o_proj.bias",
      sinkLogits: "sinks",
    },
    "out-in",
  ],
  [
    "Qwen3 and Gemma 3, with norms of a head",
    {
      ...linears(LLAMA, ["q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"]),
      "q_norm.weight": [3],
      "k_norm.weight": [3],
    },
    {
      wq: "q_proj.weight",
      wk: "k_proj.weight",
      wv: "v_proj.weight",
      wo: "o_proj.weight",
      qNorm: "q_norm.weight",
      kNorm: "k_norm.weight",
    },
    "out-in",
  ],
  [
    "OLMo 2, with norms of all heads",
    {
      ...linears(LLAMA, ["q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"]),
      "q_norm.weight": [12],
      "k_norm.weight": [6],
    },
    {
      wq: "q_proj.weight",
      wk: "k_proj.weight",
      wv: "v_proj.weight",
      wo: "o_proj.weight",
      qNorm: "q_norm.weight",
      kNorm: "k_norm.weight",
    },
    "out-in",
  ],
  [
    "Whisper, without a bias of the keys",
    linears(["q_proj", "k_proj", "v_proj", "out_proj"], ["k_proj.bias"]),
    {
      wq: "q_proj.weight",
      wk: "k_proj.weight",
      wv: "v_proj.weight",
      wo: "out_proj.weight",
      bq: "q_proj.bias",
      bv: "v_proj.bias",
      bo: "out_proj.bias",
    },
    "out-in",
  ],
  [
    "GPT-Neo, with a bias of the output alone",
    linears(["q_proj", "k_proj", "v_proj", "out_proj"], ["q_proj.bias", "k_proj.bias", "v_proj.bias"]),
    { wq: "q_proj.weight", wk: "k_proj.weight", wv: "v_proj.weight", wo: "out_proj.weight", bo: "out_proj.bias" },
    "out-in",
  ],
  [
    "LFM2, with norms of a head",
    {
      ...linears(
        ["q_proj", "k_proj", "v_proj", "out_proj"],
        ["q_proj.bias", "k_proj.bias", "v_proj.bias", "out_proj.bias"],
      ),
      "q_layernorm.weight": [3],
      "k_layernorm.weight": [3],
    },
    {
      ...{ wq: "q_proj.weight", wk: "k_proj.weight", wv: "v_proj.weight", wo: "out_proj.weight" },
      ...{ qNorm: "q_layernorm.weight", kNorm: "k_layernorm.weight" },
    },
    "out-in",
  ],
  [
    "Phi",
    linears(["q_proj", "k_proj", "v_proj", "dense"]),
    {
      ...{ wq: "q_proj.weight", wk: "k_proj.weight", wv: "v_proj.weight", wo: "dense.weight" },
      ...{ bq: "q_proj.bias", bk: "k_proj.bias", bv: "v_proj.bias", bo: "dense.bias" },
    },
    "out-in",
  ],
  [
    "ALBERT",
    linears(["query", "key", "value", "dense"]),
    {
      ...{ wq: "query.weight", wk: "key.weight", wv: "value.weight", wo: "dense.weight" },
      ...{ bq: "query.bias", bk: "key.bias", bv: "value.bias", bo: "dense.bias" },
    },
    "out-in",
  ],
  [
    "MPT, DBRX and Nomic BERT",
    { "Wqkv.weight": [24, 8], "out_proj.weight": [8, 12] },
    { wqkv: "Wqkv.weight", wo: "out_proj.weight" },
    "out-in",
  ],
  ["ModernBERT", { "Wqkv.weight": [24, 8], "Wo.weight": [8, 8] }, { wqkv: "Wqkv.weight", wo: "Wo.weight" }, "out-in"],
  [
    "Phi-3",
    { "qkv_proj.weight": [24, 8], "o_proj.weight": [8, 12] },
    { wqkv: "qkv_proj.weight", wo: "o_proj.weight" },
    "out-in",
  ],
  [
    "GPT-2, with its causal mask beside the weights",
    { "c_attn.weight": [8, 24], "c_attn.bias": [24], "c_proj.weight": [8, 8], "c_proj.bias": [8], bias: [1, 1, 4, 4] },
    { wqkv: "c_attn.weight", bqkv: "c_attn.bias", wo: "c_proj.weight", bo: "c_proj.bias" },
    "in-out",
  ],
  [
    "BERT",
    linears(["self.query", "self.key", "self.value", "output.dense"]),
    {
      wq: "self.query.weight",
      wk: "self.key.weight",
      wv: "self.value.weight",
      wo: "output.dense.weight",
      bq: "self.query.bias",
      bk: "self.key.bias",
      bv: "self.value.bias",
      bo: "output.dense.bias",
    },
    "out-in",
  ],
  [
    "T5, with the position bias of its first layer",
    {
      "q.weight": [12, 8],
      "k.weight": [12, 8],
      "v.weight": [12, 8],
      "o.weight": [8, 12],
      "relative_attention_bias.weight": [32, 4],
    },
    { wq: "q.weight", wk: "k.weight", wv: "v.weight", wo: "o.weight" },
    "out-in",
  ],
  [
    "linear layers W_q .. W_o",
    linears(["W_q", "W_k", "W_v", "W_o"]),
    {
      wq: "W_q.weight",
      wk: "W_k.weight",
      wv: "W_v.weight",
      wo: "W_o.weight",
      bq: "W_q.bias",
      bk: "W_k.bias",
      bv: "W_v.bias",
      bo: "W_o.bias",
    },
    "out-in",
  ],
  [
    "a fused layer qkv and W_o",
    { "qkv.weight": [24, 8], "W_o.weight": [8, 8] },
    { wqkv: "qkv.weight", wo: "W_o.weight" },
    "out-in",
  ],
  [
    "matrices W_q .. W_o of x·W",
    { W_q: [8, 12], W_k: [8, 6], W_v: [8, 6], W_o: [12, 8], X: [3, 8] },
    { wq: "W_q", wk: "W_k", wv: "W_v", wo: "W_o" },
    "in-out",
  ],
  [
    "matrices Wq .. Wo of x·W",
    { Wq: [8, 8], Wk: [8, 8], Wv: [8, 8], Wo: [8, 8] },
    { wq: "Wq", wk: "Wk", wv: "Wv", wo: "Wo" },
    "in-out",
  ],
])("%s: every tensor is read into its part", (_, shapes, parts, layout) => {
  const tensors = numbered(shapes);
  for (const prefix of ["", "model.layers.11.attn."]) {
    const prefixed = Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [prefix + name, tensor]));
    const weights = readAttentionWeights(
      writeSafetensors({ ...prefixed, "model.layers.1.other": tensors[Object.keys(tensors)[0]!]! }),
      prefix,
    );
    const want = Object.entries(parts).map(([part, name]) => [
      part,
      part.startsWith("w") ? tensors[name] : tensors[name]!.data,
    ]);
    // Strictly: a field that is undefined is not an absent one.
    expect(weights).toStrictEqual({ ...Object.fromEntries(want), layout });
  }
});

/** Names that were added to tables of other modules, without what follows the dot. */
const NAMES = [
  ["wq", "wk", "wv", "wo"],
  ["to_q", "to_k", "to_v", "to_out.0"],
  ["Wq", "Wk", "Wv", "Wo"],
  ["w_q", "w_k", "w_v", "w_o"],
  ["fc_q", "fc_k", "fc_v", "fc_o"],
  ["q_linear", "k_linear", "v_linear", "out_linear"],
  ["q_linear", "k_linear", "v_linear", "out"],
  ["linear_q", "linear_k", "linear_v", "linear_out"],
  ["linears.0", "linears.1", "linears.2", "linears.3"],
  ["W_query", "W_key", "W_value", "out_proj"],
  ["query_proj", "key_proj", "value_proj", "out_proj"],
  ["query", "key", "value", "proj"],
] as const;

test.each(NAMES)(
  "%s, %s, %s and %s are linear layers, with all biases, that of the output alone, or none",
  (...names) => {
    const [q, k, v, o] = names;
    const inputs = [q, k, v].map((name) => `${name}.bias`);
    for (const without of [[], inputs, [...inputs, `${o}.bias`]]) {
      const shapes = linears(names, without);
      const all = numbered(shapes);
      const got = read(shapes);
      expect(got.layout).toBe("out-in");
      for (const [part, name] of [
        ["q", q],
        ["k", k],
        ["v", v],
        ["o", o],
      ] as const) {
        expect(got[`w${part}`]).toEqual(all[`${name}.weight`]);
        expect(got[`b${part}`]).toEqual(all[`${name}.bias`]?.data);
      }
    }
    expect(refusalOf(linears(names, [`${k}.bias`]))).toContain(`tensor "${k}.bias" expected beside "${q}.bias"`);
  },
);

test("to_qkv and to_out.0 are one matrix of q, k and v in this order", () => {
  const shapes = { "to_qkv.weight": [24, 6], "to_out.0.weight": [6, 8], "to_out.0.bias": [6] };
  expect(read(shapes).wqkv).toEqual(numbered(shapes)["to_qkv.weight"]);
  expect(refusalOf({ ...shapes, "norm.weight": [6] })).toContain(
    'tensor "norm.weight" expected to be absent: vit-pytorch',
  );
});

test("wq and wk of original files are for interleaved pairs: a configuration for halves is refused", () => {
  const shapes = linears(["wq", "wk", "wv", "wo"]);
  const config = (pairing: "half" | "interleaved") => ({ numHeads: 4, rope: { theta: 10_000, pairing } });
  expect(read(shapes, "", config("interleaved"))).toEqual(read(shapes));
  expect(() => read(shapes, "", config("half"))).toThrow(
    'readAttentionWeights: config.rope.pairing expected "interleaved", as in the original files of Llama and Mistral (leave rope ' +
      'out for weights whose rows were permuted), got "half"',
  );
  // Names of Hugging Face have both: it is up to the model.
  for (const pairing of ["half", "interleaved"] as const) read(linears(LLAMA), "", config(pairing));
});

test("names of two families are refused with those of both", () => {
  const both = { ...linears(LLAMA), "out_proj.weight": [8, 12], "out_proj.bias": [8] };
  expect(refusalOf(both)).toBe(
    'readAttentionWeights: names below prefix "" expected those of one family, got "o_proj.weight" of Llama, Mistral, Qwen, Gemma, ' +
      'OLMo, gpt-oss and "out_proj.weight" of Whisper, BART, CLIP, OPT, GPT-J, GPT-Neo, LFM2: leave out what the layer does not use',
  );
});

test.each([
  ...[
    "norm_q.weight",
    "norm_added_k.weight",
    "norm_cross.weight",
    "add_q_proj.weight",
    "to_add_out.weight",
    "to_k_ip.weight",
  ],
  ...[
    "to_out.1.weight",
    "q_bias",
    "v_bias",
    "pos_bias_u",
    "linear_pos.weight",
    "rel_pos_h",
    "relative_position_bias_table",
  ],
  ...["logit_scale", "temperature", "q_norm.weight", "q_ln.weight", "group_norm.weight", "spatial_norm.conv_y.weight"],
])("a layer with %s is refused, since that would not be read", (name) => {
  expect(refusalOf({ ...linears(["to_q", "to_k", "to_v", "to_out.0"]), [name]: [4] })).toBe(
    `readAttentionWeights: tensor "${name}" expected to be absent: diffusers would be read without it, got it`,
  );
});

test("the one bias of kdim and vdim is split into those of q, k and v", () => {
  const weights = read({
    q_proj_weight: [2, 2],
    k_proj_weight: [2, 5],
    v_proj_weight: [2, 7],
    "out_proj.weight": [2, 2],
    in_proj_bias: [6],
    "out_proj.bias": [2],
  });
  expect([weights.bq, weights.bk, weights.bv].map((bias) => [...bias!])).toEqual([
    [4000, 4001],
    [4002, 4003],
    [4004, 4005],
  ]);
});

test("grouped rows [q.., k, v] of each key-value head become the rows of q, of k and of v", () => {
  // 4 heads in 2 groups of 2 floats a head: rows q0 q0 q1 q1 k0 k0 v0 v0 q2 q2 q3 q3 k1 k1 v1 v1.
  const shapes = {
    "query_key_value.weight": [16, 8],
    "query_key_value.bias": [16],
    "dense.weight": [8, 8],
    "dense.bias": [8],
  };
  const weights = read(shapes, "", { numHeads: 4, numKvHeads: 2, fused: "grouped" });
  const rows = { wq: [0, 1, 2, 3, 8, 9, 10, 11], wk: [4, 5, 12, 13], wv: [6, 7, 14, 15] };
  for (const [name, want] of Object.entries(rows)) {
    const { data, shape } = weights[name as "wq"]!;
    expect(shape).toEqual([want.length, 8]);
    expect([...data]).toEqual(want.flatMap((row) => Array.from({ length: 8 }, (_, i) => 8 * row + i)));
    expect([...weights[name.replace("w", "b") as "bq"]!]).toEqual(want.map((row) => 1000 + row));
  }
  expect(weights.wqkv).toBeUndefined();
});

test("InternLM2 has grouped rows under names of its own", () => {
  const layer = { "wqkv.weight": [16, 8], "wo.weight": [8, 8] };
  const weights = read(layer, "", { numHeads: 4, numKvHeads: 2, fused: "grouped" });
  expect(weights.wk!.data[0]).toBe(4 * 8);
});

test("one head a group (GPT-NeoX) is numKvHeads = numHeads, and one group (Falcon 7B) is plain rows", () => {
  const neox = read({ "query_key_value.weight": [6, 2], "dense.weight": [2, 2] }, "", {
    numHeads: 2,
    fused: "grouped",
  });
  expect([...neox.wq!.data]).toEqual([0, 1, 6, 7]);
  expect([...neox.wv!.data]).toEqual([4, 5, 10, 11]);
  const shapes = { "query_key_value.weight": [10, 8], "dense.weight": [8, 8] };
  expect(read(shapes, "", { numHeads: 8, numKvHeads: 1 }).wqkv!.shape).toEqual([10, 8]);
});

test("Falcon's order of rows must be given, because its file does not hold it", () => {
  const shapes = { "query_key_value.weight": [16, 8], "dense.weight": [8, 8] };
  expect(() => read(shapes)).toThrow(
    new RangeError(
      'readAttentionWeights: config.fused expected "qkv" or "grouped", since files of Falcon, GPT-NeoX, BLOOM do not contain it, got undefined',
    ),
  );
  expect(read(shapes, "", { fused: "qkv" }).wqkv!.shape).toEqual([16, 8]);
  expect(() => read(shapes, "", { fused: "grouped" })).toThrow(
    /config.numKvHeads expected a divisor of 4, .*got undefined$/,
  );
  expect(() => read(shapes, "", { fused: "grouped", numHeads: 9, numKvHeads: 3 })).toThrow(/divisor of 4, .*got 3$/);
  const gpt2 = { "c_attn.weight": [8, 24], "c_attn.bias": [24], "c_proj.weight": [8, 8], "c_proj.bias": [8] };
  expect(() => read(gpt2, "", { fused: "grouped" })).toThrow('config.fused expected "qkv" for GPT-2, got "grouped"');
});

test("matrices of F64 are read as floats", () => {
  const one = { dtype: "F64", shape: [1, 1], bytes: new Uint8Array(Float64Array.of(1.5).buffer) } as const;
  const file = writeSafetensors({ Wq: one, Wk: one, Wv: one, Wo: one });
  expect(readFloats(file).wo.data).toEqual(Float32Array.of(1.5));
});

test.each([
  ["F16", Uint16Array.of(0x3e00)],
  ["BF16", Uint16Array.of(0x3fc0)],
] as const)("matrices of %s stay as they are stored, vectors become floats", (dtype, value) => {
  const bytes = new Uint8Array(value.buffer);
  const [matrix, bias] = [
    { dtype, shape: [1, 1], bytes },
    { dtype, shape: [1], bytes },
  ] as const;
  const parts = ["q", "k", "v", "o"].flatMap((part) => [
    [`${part}_proj.weight`, matrix],
    [`${part}_proj.bias`, bias],
  ]);
  const { wo, bo } = readAttentionWeights(writeSafetensors(Object.fromEntries(parts)));
  expect(wo).toMatchObject({ dtype, shape: [1, 1], bytes });
  expect(toFloats(wo as StoredTensor)).toEqual(Float32Array.of(1.5));
  expect(bo).toEqual(Float32Array.of(1.5));
});

test("a layer is read from an opened file and from an index, of which only its shards are opened", () => {
  const layer = (index: number) =>
    numbered(Object.fromEntries(["q", "k", "v", "o"].map((n) => [`layers.${index}.${n}_proj.weight`, [2, 2]])));
  const opened = readSafetensors(writeSafetensors(layer(0)));
  expect(readFloats(opened, "layers.0.").wo.data[0]).toBe(3000);
  const weight_map = Object.fromEntries(
    [0, 1].flatMap((i) => Object.keys(layer(i)).map((name) => [name, `${i}.safetensors`])),
  );
  const names: string[] = [];
  const sharded = readSafetensorsIndex({ weight_map }, (name) => {
    names.push(name);
    return writeSafetensors(layer(Number.parseInt(name, 10)));
  });
  expect(readFloats(sharded, "layers.1").wv!.data[0]).toBe(2000);
  expect(names).toEqual(["1.safetensors"]);
});

const MHA = { in_proj_weight: [18, 6], in_proj_bias: [18], "out_proj.weight": [6, 6], "out_proj.bias": [6] };
const GQA = { "q_proj.weight": [12, 8], "k_proj.weight": [6, 8], "v_proj.weight": [6, 8], "o_proj.weight": [8, 12] };

test.each<[what: string, shapes: Shapes, message: string, config?: WeightsConfig]>([
  [
    "in_proj_weight on its side",
    { ...MHA, in_proj_weight: [6, 18] },
    'tensor "in_proj_weight" expected shape [18, 6] beside "out_proj.weight" [6, 6], got [6, 18]',
  ],
  [
    "in_proj_weight of two",
    { ...MHA, in_proj_weight: [12, 6] },
    'tensor "in_proj_weight" expected shape [18, 6] beside "out_proj.weight" [6, 6], got [12, 6]',
  ],
  [
    "in_proj_weight of rank 3",
    { ...MHA, in_proj_weight: [3, 6, 6] },
    'tensor "in_proj_weight" expected a matrix with no empty side, got shape [3, 6, 6]',
  ],
  [
    "an empty output",
    { ...MHA, "out_proj.weight": [6, 0] },
    'tensor "out_proj.weight" expected a matrix with no empty side, got shape [6, 0]',
  ],
  [
    "an output that is not square",
    { ...MHA, "out_proj.weight": [6, 5] },
    'tensor "in_proj_weight" expected shape [15, 6] beside "out_proj.weight" [6, 5], got [18, 6]',
  ],
  ["a bias of another length", { ...MHA, in_proj_bias: [17] }, 'tensor "in_proj_bias" expected shape [18], got [17]'],
  ["a bias of rank 2", { ...MHA, "out_proj.bias": [6, 6] }, 'tensor "out_proj.bias" expected shape [6], got [6, 6]'],
  [
    "one of two biases",
    { in_proj_weight: [18, 6], "out_proj.weight": [6, 6], "out_proj.bias": [6] },
    'tensor "in_proj_bias" expected beside "out_proj.bias", as in PyTorch nn.MultiheadAttention, got none',
  ],
  [
    "a bias of queries without one of the output",
    linears(["q_proj", "k_proj", "v_proj", "out_proj"], ["out_proj.bias"]),
    'tensor "out_proj.bias" expected beside "q_proj.bias", as in Whisper, BART, CLIP, OPT, GPT-J, GPT-Neo, LFM2, got none',
  ],
  [
    "a LayerNorm of queries and keys",
    { ...linears(["q_proj", "k_proj", "v_proj", "dense"]), "q_layernorm.weight": [3], "q_layernorm.bias": [3] },
    'tensor "q_layernorm.bias" expected to be absent: Phi would be read without it, got it',
  ],
  [
    "no output",
    { in_proj_weight: [18, 6], in_proj_bias: [18] },
    'tensor "out_proj.weight" expected, as in PyTorch nn.MultiheadAttention, got none',
  ],
  [
    "bias_k without bias_v",
    { ...MHA, bias_k: [1, 1, 6] },
    '"bias_k" and "bias_v" expected both or neither, got "bias_k"',
  ],
  [
    "q on its side",
    { ...GQA, "q_proj.weight": [8, 12] },
    'tensor "o_proj.weight" expected shape [12, 12] for the 12 inputs of "q_proj.weight", got [8, 12]',
  ],
  [
    "k on its side",
    { ...GQA, "k_proj.weight": [8, 6] },
    'tensor "k_proj.weight" expected shape [8, 8] beside "q_proj.weight", got [8, 6]',
  ],
  [
    "v of more heads than k",
    { ...GQA, "v_proj.weight": [12, 8] },
    'tensors beside "o_proj.weight" expected heads of q that share those of k and v evenly, got outputs of q, k and v [12, 6, 12] and inputs of o [12]',
  ],
  [
    "keys that do not divide the queries",
    { ...GQA, "k_proj.weight": [5, 8], "v_proj.weight": [5, 8] },
    'tensors beside "o_proj.weight" expected heads of q that share those of k and v evenly, got outputs of q, k and v [12, 5, 5] and inputs of o [12]',
  ],
  [
    "a norm of q alone",
    { ...GQA, "q_norm.weight": [3] },
    '"q_norm.weight" and "k_norm.weight" expected both or neither, got "q_norm.weight"',
  ],
  [
    "a norm of another width",
    { ...GQA, "q_norm.weight": [5], "k_norm.weight": [5] },
    'tensor "q_norm.weight" expected shape [headDim] or [12], got [5]',
  ],
  [
    "a norm that is not the head's",
    { ...GQA, "q_norm.weight": [6], "k_norm.weight": [6] },
    'tensor "q_norm.weight" expected shape [3] or [12], got [6]',
    { numHeads: 4 },
  ],
  [
    "a norm with a bias",
    { ...GQA, "q_norm.weight": [3], "k_norm.weight": [3], "q_norm.bias": [3] },
    'tensor "q_norm.bias" expected to be absent: Llama, Mistral, Qwen, Gemma, OLMo, gpt-oss would be read without it, got it',
  ],
  [
    "a norm by another name",
    { ...GQA, "k_layernorm.weight": [3] },
    'tensor "k_layernorm.weight" expected to be absent: Llama, Mistral, Qwen, Gemma, OLMo, gpt-oss would be read without it, got it',
  ],
  [
    "an adapter that is not merged",
    { ...GQA, "v_proj.lora_A.weight": [1, 8] },
    'tensor "v_proj.lora_A.weight" expected to be absent: Llama, Mistral, Qwen, Gemma, OLMo, gpt-oss would be read without it, got it',
  ],
  [
    "sinks of another number of heads",
    { ...GQA, sinks: [8] },
    'tensor "sinks" expected shape [4], got [8]',
    { numHeads: 4 },
  ],
  [
    "heads that do not divide q",
    GQA,
    'tensors beside "o_proj.weight" expected numHeads 5, got outputs of q, k and v [12, 6, 6] and inputs of o [12]',
    { numHeads: 5 },
  ],
  [
    "heads of another width",
    GQA,
    'tensors beside "o_proj.weight" expected numHeads 4 of headDim 2, got outputs of q, k and v [12, 6, 6] and inputs of o [12]',
    { numHeads: 4, headDim: 2 },
  ],
  [
    "another number of key-value heads",
    GQA,
    'tensors beside "o_proj.weight" expected numHeads 4 and numKvHeads 4, got outputs of q, k and v [12, 6, 6] and inputs of o [12]',
    { numHeads: 4, numKvHeads: 4 },
  ],
  [
    "a fused matrix of odd height",
    { "qkv_proj.weight": [23, 8], "o_proj.weight": [8, 12] },
    'tensor "qkv_proj.weight" expected shape [36, 8] (or fewer rows for shared keys and values) beside "o_proj.weight" [8, 12], got [23, 8]',
  ],
  [
    "a fused matrix of GPT-2 as a linear layer",
    { "c_attn.weight": [24, 8], "c_proj.weight": [8, 8] },
    'tensor "c_attn.weight" expected shape [8, 24] beside "c_proj.weight" [8, 8], got [24, 8]',
  ],
])("%s is refused", (_, shapes, message, config = {}) => {
  expect(refusalOf(shapes, "", config)).toBe(`readAttentionWeights: ${message}`);
});

test("a wrong prefix or unknown names are answered with what is there", () => {
  const layers = Object.fromEntries(
    Array.from({ length: 8 }, (_, i) =>
      Object.entries(GQA).map(([name, shape]) => [`layers.${i}.self_attn.${name}`, shape]),
    ).flat(),
  );
  expect(refusalOf(layers, "layer.0.")).toBe(
    'readAttentionWeights: prefix "layer.0." expected to begin a tensor\'s name, got layers at "layers.0.self_attn.", ' +
      '"layers.1.self_attn.", "layers.2.self_attn.", "layers.3.self_attn.", "layers.4.self_attn.", "layers.5.self_attn." and 2 more',
  );
  expect(refusalOf({ x: [1], y: [1] }, "z")).toBe(
    'readAttentionWeights: prefix "z" expected to begin a tensor\'s name, got "x", "y"',
  );
  expect(refusalOf({})).toBe('readAttentionWeights: prefix "" expected to begin a tensor\'s name, got no tensors');
  expect(refusalOf({ "a.aq.weight": [1, 1], "a.ao.weight": [1, 1] }, "a.")).toBe(
    'readAttentionWeights: names below prefix "a." expected one of the known families, got "ao.weight", "aq.weight"',
  );
});

test("a dtype that holds no floats is refused by name", () => {
  const whole = { dtype: "I32", shape: [1, 1], bytes: new Uint8Array(4) } as const;
  expect(() => readAttentionWeights(writeSafetensors({ Wq: whole, Wk: whole, Wv: whole, Wo: whole }))).toThrow(
    'readAttentionWeights: tensor "Wo" expected dtype F32, F64, F16, BF16, Q8_0 or Q4_0, got I32',
  );
});

test.each<[args: readonly unknown[], error: Error]>([
  [[7], new TypeError("readAttentionWeights: bytes expected Uint8Array or ArrayBuffer, got 7")],
  [[{ tensors: {} }], new TypeError("readAttentionWeights: bytes expected Uint8Array or ArrayBuffer, got Object")],
  [[new Uint8Array(), 1], new TypeError("readAttentionWeights: prefix expected a string, got 1")],
  [[new Uint8Array(), "", null], new TypeError("readAttentionWeights: config expected an object, got null")],
  [
    [new Uint8Array(), "", { numHeads: 0 }],
    new RangeError("readAttentionWeights: config.numHeads expected an integer >= 1, got 0"),
  ],
  [
    [new Uint8Array(), "", { numKVHeads: 2 }],
    new TypeError(
      "readAttentionWeights: config expected only dModel, numHeads, numKvHeads, headDim, valueDim, kdim, vdim, causal, " +
        'window, scale, softcap, alibi, rope, qkNorm, addZeroAttn, fused, got "numKVHeads": use numKvHeads',
    ),
  ],
  [
    [new Uint8Array(), "", { fused: "kv" }],
    new RangeError('readAttentionWeights: config.fused expected "qkv" or "grouped", got "kv"'),
  ],
  [
    [new Uint8Array(), "", { numHeads: 6, numKvHeads: 4 }],
    new RangeError("readAttentionWeights: config.numHeads expected a multiple of config.numKvHeads (4), got 6"),
  ],
])("wrong arguments %o throw before the file is looked at", (args, error) => {
  expect(() => readAttentionWeights(...(args as Parameters<typeof readAttentionWeights>))).toThrow(error);
});

test("tensors of another reader are refused by name if they are no stored tensors", () => {
  const names = ["q", "k", "v", "o"].map((part) => `${part}_proj.weight`);
  const tensor = { dtype: "BF16", shape: [1, 1], bytes: new Uint8Array(2) };
  const read = (q: unknown, metadata: unknown = new Map()) => {
    const tensors = new Map<string, unknown>(names.map((name) => [name, { ...tensor, name }]));
    tensors.set("q_proj.weight", q);
    return () => readAttentionWeights({ metadata, tensors } as never);
  };
  const moved = new Uint8Array(2);
  structuredClone(moved, { transfer: [moved.buffer] });
  const named = { ...tensor, name: "q_proj.weight" };
  expect(read(named)().wq).toEqual(named);
  const what = 'readAttentionWeights: tensor "q_proj.weight"';
  for (const [q, message] of [
    [undefined, `${what} expected an object, got undefined`],
    [7, `${what} expected an object, got 7`],
    [{ ...named, shape: undefined }, `${what}.shape expected an array, got undefined`],
    [{ ...named, shape: [1, -1] }, `${what}.shape[1] expected an integer from 0 to 9007199254740991, got -1`],
    [{ ...named, bytes: 2 }, `${what}.bytes expected Uint8Array, as in what readAll resolves with, got 2`],
    [{ ...named, bytes: new Uint8Array(3) }, `${what}.bytes expected 2 bytes for BF16 [1, 1], got 3`],
    [{ ...named, bytes: moved }, /^readAttentionWeights: tensor "q_proj.weight".bytes expected .*detached/],
  ] as const)
    expect(read(q)).toThrow(message);
  expect(read(named, null)).toThrow(new TypeError("readAttentionWeights: source.metadata expected a Map, got null"));
});

test("an opened file is refused with what to pass instead", async () => {
  const stored = { data: new Float32Array(4), shape: [2, 2] };
  const bytes = writeSafetensors(
    Object.fromEntries(["q", "k", "v", "o"].map((part) => [`${part}_proj.weight`, stored])),
  );
  const index = { weight_map: { "q_proj.weight": "a.safetensors" } };
  const file = await openSafetensors(bytes);
  const message =
    "readAttentionWeights: source expected { metadata, tensors } with the tensors that readAll resolves with, " +
    "got an opened file (of one that openGguf opened, readGgufLayer reads a layer)";
  for (const opened of [file, await openSafetensorsIndex(index, () => bytes), await openGguf(writeGguf({}))])
    expect(() => readAttentionWeights(opened as never)).toThrow(new TypeError(message));
  const { metadata, tensors, readAll } = file;
  expect(() => readAttentionWeights({ metadata, tensors } as never)).toThrow(
    new TypeError(
      'readAttentionWeights: tensor "o_proj.weight".bytes expected Uint8Array, as in what readAll resolves with, got 16',
    ),
  );
  expect(readAttentionWeights({ metadata, tensors: await readAll(tensors.keys()) }).wq).toEqual(stored);
});
