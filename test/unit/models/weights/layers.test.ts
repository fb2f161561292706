// The layers of a file by the names of its tensors, and the tensors of one.

import { describe, expect, test } from "vitest";
import {
  HeadwiseError,
  hfAttentionKind,
  listLayers,
  openSafetensors,
  openSafetensorsIndex,
  readAttentionWeights,
  readLatentWeights,
  readLayerTensors,
  readPrefix,
  type Tensor,
  writeSafetensors,
} from "../../../../src/entries/weights.ts";

const matrix = (...shape: number[]): Tensor => ({
  data: Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => i),
  shape,
});
const under = (prefix: string, tensors: Record<string, Tensor>) =>
  Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [prefix + name, tensor]));

const LLAMA = Object.fromEntries(["q", "k", "v", "o"].map((part) => [`${part}_proj.weight`, matrix(4, 4)]));
const LATENTS = {
  "q_proj.weight": matrix(12, 8),
  "kv_a_proj_with_mqa.weight": matrix(5, 8),
  "kv_a_layernorm.weight": matrix(3),
  "kv_b_proj.weight": matrix(16, 3),
  "o_proj.weight": matrix(8, 8),
};

const FILE = {
  "model.embed_tokens.weight": matrix(4, 4),
  ...under("model.layers.0.self_attn.", LATENTS),
  ...under("model.layers.12.self_attn.", LLAMA),
  ...under("decoder.layers.1.encoder_attn.", {
    ...Object.fromEntries(["q", "k", "v"].map((part) => [`${part}_proj.weight`, matrix(4, 4)])),
    "out_proj.weight": matrix(4, 4),
  }),
  "model.layers.13.self_attn.q_proj.weight": matrix(4, 4),
};

describe("listLayers", () => {
  test("finds whole layers of both kinds, with what their prefixes say", async () => {
    const places = listLayers(await openSafetensors(writeSafetensors(FILE)));
    const byPrefix = places.toSorted((a, b) => (a.prefix < b.prefix ? -1 : 1));
    expect(byPrefix).toEqual([
      { prefix: "decoder.layers.1.encoder_attn.", kind: "heads", layer: 1, part: "cross" },
      { prefix: "model.layers.0.self_attn.", kind: "latents", layer: 0, part: undefined },
      { prefix: "model.layers.12.self_attn.", kind: "heads", layer: 12, part: undefined },
    ]);
  });

  test("finds the layers of a GGUF file", () => {
    const names = ["token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_kv_a_mqa.weight", "blk.11.attn_qkv.weight"];
    expect(listLayers({ tensors: new Map(names.map((name) => [name, 0])) })).toEqual([
      { prefix: "blk.0.attn_", kind: "latents", layer: 0, part: undefined },
      { prefix: "blk.11.attn_", kind: "heads", layer: 11, part: undefined },
    ]);
  });

  test("a file without layers has none; what is no file is refused", () => {
    expect(listLayers({ tensors: new Map([["a.weight", 0]]) })).toEqual([]);
    expect(() => listLayers({ tensors: {} } as never)).toThrow(
      new TypeError("listLayers: file.tensors expected a Map, got Object"),
    );
    expect(() => listLayers(undefined as never)).toThrow("listLayers: file expected");
  });
});

describe("readLayerTensors", () => {
  test("reads the tensors of the layer and no other bytes", async () => {
    const bytes = writeSafetensors(FILE);
    let read = 0;
    const source = {
      size: bytes.length,
      read: async (offset: number, length: number) => {
        read += length;
        return bytes.slice(offset, offset + length);
      },
    };
    const file = await openSafetensors(source);
    const before = read;
    const prefix = "model.layers.12.self_attn.";
    const layer = await readLayerTensors(file, { prefix, kind: "heads" });
    expect([...layer.tensors.keys()].sort()).toEqual(Object.keys(under(prefix, LLAMA)).sort());
    expect(read - before).toBe(4 * 4 * 16);
    expect(readAttentionWeights(layer, prefix).wq?.shape).toEqual([4, 4]);
  });

  test("reads a layer of latents, from an index too, and with a prefix without its dot", async () => {
    const index = { weight_map: Object.fromEntries(Object.keys(FILE).map((name) => [name, "a.safetensors"])) };
    const file = await openSafetensorsIndex(index, () => writeSafetensors(FILE));
    const layer = await readLayerTensors(file, { prefix: "model.layers.0.self_attn", kind: "latents" });
    expect(layer.tensors.size).toBe(5);
    expect(readLatentWeights(layer, "model.layers.0.self_attn.").wkvUp.shape).toEqual([16, 3]);
  });

  test("a layer with a further tensor, which would change its result, is refused although only names were read", async () => {
    const prefix = "model.layers.12.self_attn.";
    const file = await openSafetensors(writeSafetensors({ ...FILE, [`${prefix}q_layernorm.weight`]: matrix(4) }));
    const made = readLayerTensors(file, { prefix, kind: "heads" });
    await expect(made).rejects.toThrow(HeadwiseError);
    await expect(made).rejects.toThrow(
      /^readLayerTensors: tensor "model.layers.12.self_attn.q_layernorm.weight" expected to be absent/,
    );
  });

  test("a missing tensor and wrong arguments are refused", async () => {
    const file = await openSafetensors(writeSafetensors(FILE));
    await expect(readLayerTensors(file, { prefix: "model.layers.13.self_attn.", kind: "heads" })).rejects.toThrow(
      'readLayerTensors: tensor "model.layers.13.self_attn.k_proj.weight" expected',
    );
    await expect(readLayerTensors(file, { prefix: 1, kind: "heads" } as never)).rejects.toThrow(
      new TypeError("readLayerTensors: place.prefix expected a string, got 1"),
    );
    await expect(readLayerTensors(file, { prefix: "", kind: "mla" } as never)).rejects.toThrow(
      new RangeError('readLayerTensors: place.kind expected "heads" or "latents", got "mla"'),
    );
    await expect(readLayerTensors({ tensors: new Map() } as never, { prefix: "", kind: "heads" })).rejects.toThrow(
      new TypeError("readLayerTensors: file.readAll expected a function, got undefined"),
    );
  });
});

test.each([
  ["model.layers.3.self_attn.", 3, undefined],
  ["model.encoder.layers.0.self_attn.", 0, "encoder"],
  ["decoder.block.7.layer.1.EncDecAttention.", 7, "cross"],
  ["", undefined, undefined],
] as const)("the prefix %j says layer %s and part %s", (prefix, layer, part) => {
  expect(readPrefix(prefix)).toEqual({ layer, part });
});

test("the kind of attention is that of the model, or of the text of one of several modalities", () => {
  expect(hfAttentionKind('{"model_type":"deepseek_v2"}')).toBe("latents");
  expect(hfAttentionKind({ model_type: "kimi_vl", text_config: { model_type: "deepseek_v3" } })).toBe("latents");
  expect(hfAttentionKind({ model_type: "llama" })).toBe("heads");
  expect(() => hfAttentionKind("{")).toThrow(/^hfAttentionKind: json expected valid JSON, got "\{"/);
  expect(() => hfAttentionKind([])).toThrow(/^hfAttentionKind: config.json expected an object/);
  expect(() => readPrefix(1 as never)).toThrow(new TypeError("readPrefix: prefix expected a string, got 1"));
});
