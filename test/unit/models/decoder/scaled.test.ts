// Matrices with one scale: BitNet's, whose rows are rounded to 8 bits before, and the scales of GGUF files.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Tensor } from "../../../../src/base/tensor/tensor.ts";
import { type WritableTensor, writeSafetensors } from "../../../../src/entries/weights.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { type LoadModelOptions, loadModel } from "../../../../src/models/load/load-model.ts";
import { planModel } from "../../../../src/models/load/plan-model.ts";
import { gguf } from "../../../../src/models/spec/read-gguf.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import type { Kernels } from "../../../../src/wasm/kernels.ts";
import { writeGguf } from "../../../support/gguf-writer.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { sampled } from "../../../support/sampled.ts";
import { ggufModel } from "../../../support/tiny-gguf.ts";
import { tinyTensors } from "../../../support/tiny-models.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
});
afterAll(() => kernels.release());

// Rows of whole blocks, and of 40 inputs, which are none.
const LLAMA = {
  ...{ model_type: "llama", hidden_size: 64, intermediate_size: 40, num_hidden_layers: 1, vocab_size: 30 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, tie_word_embeddings: false, rms_norm_eps: 1e-5 },
};
const stored = (linear_class: string, quantization_mode: string, more: object = {}) => ({
  ...LLAMA,
  quantization_config: { quant_method: "bitnet", linear_class, quantization_mode, ...more },
});

const isMatrix = (name: string) => /_proj\.weight$/.test(name);

/** Tensors whose matrices are of -s, 0 and s. */
function ternaryTensors(config: object, s: number): Map<string, Tensor> {
  const random = createRandom(3);
  const own = (name: string, { data, shape }: Tensor): Tensor =>
    isMatrix(name) ? { data: data.map(() => s * random.int(-1, 1)), shape } : { data, shape };
  const given = [...tinyTensors(config)].filter(([name]) => !name.endsWith("bias"));
  return new Map(given.map(([name, tensor]) => [name, own(name, tensor)]));
}

/** The same with matrices in pairs of bits, beside their scales. */
function packed(tensors: ReadonlyMap<string, Tensor>, scaleOf: (data: Float32Array) => number) {
  const all: Record<string, WritableTensor> = {};
  for (const [name, { data, shape }] of tensors) {
    if (!isMatrix(name)) {
      all[name] = { data, shape };
      continue;
    }
    const quarter = data.length / 4;
    const bytes = new Uint8Array(quarter);
    for (let q = 0; q < 4; q++)
      for (let at = 0; at < quarter; at++) bytes[at]! |= (Math.sign(data[q * quarter + at]!) + 1) << (2 * q);
    all[name] = { dtype: "U8", shape: [(shape[0] as number) / 4, shape[1] as number], bytes };
    all[name.replace(/weight$/, "weight_scale")] = { data: Float32Array.of(scaleOf(data)), shape: [1] };
  }
  return all;
}

const folder = (config: object, tensors: Parameters<typeof writeSafetensors>[0]) => {
  const files = new Map([
    ["config.json", new TextEncoder().encode(JSON.stringify(config))],
    ["model.safetensors", writeSafetensors(tensors)],
  ]);
  return (name: string) => files.get(name);
};

async function logitsOf(
  source: Parameters<typeof loadModel>[1],
  ids: readonly number[] = [3, 1, 4, 1, 5],
  options: LoadModelOptions = {},
): Promise<Float32Array> {
  using model = await loadModel(kernels, source, { maxSeqLen: 16, ...options });
  using session = createSession(model);
  return forward(session, ids, { rows: "all" }).logits;
}

const meanOf = (data: Float32Array) => data.reduce((sum, value) => sum + Math.abs(value), 0) / data.length;

/** The logits of one token, in float64. */
function expected(tensors: ReadonlyMap<string, Tensor>, id: number, rounds: boolean): number[] {
  const norm = (x: readonly number[]) => {
    const mean = x.reduce((sum, v) => sum + v * v, 0) / x.length;
    return (gain: string) => x.map((v, i) => (v / Math.sqrt(mean + 1e-5)) * (tensors.get(gain)?.data[i] as number));
  };
  const nearest = (v: number) => (Math.abs(v % 1) === 0.5 ? 2 * Math.round(v / 2) : Math.round(v));
  const round = (x: readonly number[]) => {
    const s = 127 / Math.max(1e-5, ...x.map(Math.abs));
    return rounds ? x.map((v) => nearest(v * s) / s) : x;
  };
  const times = (name: string, x: readonly number[]) => {
    const { data, shape } = tensors.get(name) as Tensor;
    const [n = 0, k = 0] = shape;
    return Array.from({ length: n }, (_, r) => x.reduce((sum, v, i) => sum + v * (data[r * k + i] as number), 0));
  };
  const own = (name: string, x: readonly number[]) => times(`model.layers.0.${name}_proj.weight`, round(x));
  const add = (a: readonly number[], b: readonly number[]) => a.map((v, i) => v + (b[i] as number));
  let x: number[] = [...(tensors.get("model.embed_tokens.weight")?.data.slice(64 * id, 64 * id + 64) ?? [])];
  const v = own("self_attn.v", norm(x)("model.layers.0.input_layernorm.weight"));
  // Two heads of queries share a head of values.
  x = add(
    x,
    own(
      "self_attn.o",
      [0, 0, 1, 1].flatMap((head) => v.slice(16 * head, 16 * head + 16)),
    ),
  );
  const read = norm(x)("model.layers.0.post_attention_layernorm.weight");
  const up = own("mlp.up", read);
  const inner = own("mlp.gate", read).map((g, i) => (g / (1 + Math.exp(-g))) * (up[i] as number));
  x = add(x, own("mlp.down", inner));
  return times("lm_head.weight", norm(x)("model.norm.weight"));
}

describe("matrices of -1, 0 and 1 with a scale", () => {
  const PACKED = stored("autobitlinear", "offline");

  test.each([undefined, "f32"] as const)(
    "rows are rounded, but not those of the head, with weights %s",
    async (weights) => {
      const tensors = ternaryTensors(LLAMA, 0.25);
      const source = folder(
        PACKED,
        packed(tensors, () => 0.25),
      );
      const off = (a: ArrayLike<number>, b: ArrayLike<number>) =>
        Math.max(...Array.from(a, (v, i) => Math.abs(v - (b[i] as number))));
      const logits = await logitsOf(source, [7], { weights });
      expect(off(logits, expected(tensors, 7, true))).toBeLessThan(1e-5);
      expect(off(logits, expected(tensors, 7, false))).toBeGreaterThan(1e-3);
    },
  );

  test("scales that divide, and floats that are rounded to them, give the same bits", async () => {
    const tensors = ternaryTensors(LLAMA, 0.25);
    const want = await logitsOf(
      folder(
        PACKED,
        packed(tensors, () => 0.25),
      ),
    );
    const divided = packed(tensors, () => 4);
    expect(await logitsOf(folder(stored("bitlinear", "offline"), divided))).toEqual(want);
    // Those of classes.
    const bare = { ...LLAMA, quantization_config: { quant_method: "bitnet", modules_to_not_convert: ["lm_head"] } };
    expect(await logitsOf(folder(bare, divided))).toEqual(want);
    const online = await logitsOf(folder(stored("autobitlinear", "online"), tensors));
    expect(online).toEqual(await logitsOf(folder(PACKED, packed(tensors, meanOf))));
    expect(online).not.toEqual(want);
  });

  test("magnitudes up to half of the mean become 0", async () => {
    const tensors = ternaryTensors(LLAMA, 0.25);
    const online = stored("autobitlinear", "online");
    const name = "model.layers.0.mlp.up_proj.weight";
    // The mean is 0.5: half of it is not above.
    const of = (small: number) => {
      const { shape } = tensors.get(name) as Tensor;
      const data = new Float32Array(40 * 64).map((_, i) => (i % 2 ? 1 - small : i % 4 ? small : -small));
      return logitsOf(folder(online, new Map([...tensors, [name, { data, shape }]])));
    };
    expect(await of(0.25)).toEqual(await of(0.125));
    expect(await of(0.25)).not.toEqual(await of(0.2501));
  });

  test("large matrices are read by pieces", async () => {
    // More than a piece has, in codes of 2 bits.
    const sizes = { hidden_size: 256, intermediate_size: 13_440 };
    const config = { ...PACKED, ...sizes };
    const tensors = ternaryTensors({ ...LLAMA, hidden_size: 256 }, 0.25);
    // Signs that repeat nowhere at the beginning of a row.
    const random = createRandom(4);
    const signs = Float32Array.from({ length: 9973 }, () => 0.25 * random.int(-1, 1));
    for (const [name, { shape }] of tensors) {
      if (!name.includes(".mlp.")) continue;
      const sides = shape.map((side) => (side === LLAMA.intermediate_size ? sizes.intermediate_size : side));
      const data = new Float32Array(sides.reduce((a, b) => a * b));
      for (let at = 0; at < data.length; at += signs.length) data.set(signs.subarray(0, data.length - at), at);
      tensors.set(name, { data, shape: sides });
    }
    const path = mkdtempSync(join(tmpdir(), "scaled-"));
    try {
      const online = { ...config, quantization_config: stored("autobitlinear", "online").quantization_config };
      for (const [own, all] of sampled(
        [[config, packed(tensors, () => 0.25)] as const, [online, tensors] as const],
        1,
      )) {
        writeFileSync(join(path, "config.json"), JSON.stringify(own));
        writeFileSync(join(path, "model.safetensors"), writeSafetensors(all));
        expect(await logitsOf(path)).toEqual(await logitsOf(folder(own, all)));
      }
    } finally {
      rmSync(path, { recursive: true });
    }
  });

  test.each<[object, string]>([
    [
      stored("autobitlinear", "offline", { use_rms_norm: true }),
      "use_rms_norm expected false, since others are unsupported, got true",
    ],
    [
      stored("other", "offline"),
      'linear_class expected "bitlinear" or "autobitlinear", since others are unsupported, got "other"',
    ],
    [
      stored("bitlinear", "later"),
      'quantization_mode expected "offline" or "online", since others are unsupported, got "later"',
    ],
    [
      stored("bitlinear", "offline", { modules_to_not_convert: ["lm_head", "model.layers.0.mlp"] }),
      'modules_to_not_convert expected "lm_head" alone, or null, got Array',
    ],
    [stored("bitlinear", "offline", { bits: 3 }), "bits expected a field that this package knows, or none, got 3"],
    [{ ...PACKED, model_type: "olmo2" }, "quantization_config expected null for a model of this type, got Object"],
  ])("%o is refused by name", (config, message) => {
    expect(() => planModel(config)).toThrow(`planModel: ${message}`);
  });

  test("a scale that is none is refused, and so is a matrix that is not packed", async () => {
    const tensors = ternaryTensors(LLAMA, 0.25);
    for (const value of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) {
      const source = folder(
        PACKED,
        packed(tensors, () => value),
      );
      await expect(logitsOf(source)).rejects.toThrow(/tensor ".*_scale" expected one number > 0, got/);
    }
    const all = packed(tensors, () => 0.25);
    const [name, two] = ["model.layers.0.mlp.up_proj.weight_scale", { data: Float32Array.of(1, 1), shape: [2] }];
    await expect(logitsOf(folder(PACKED, { ...all, [name]: two }))).rejects.toThrow("got [2]");
    const plain = tensors.get("model.layers.0.mlp.up_proj.weight") as Tensor;
    const floats = { ...all, "model.layers.0.mlp.up_proj.weight": plain };
    await expect(logitsOf(folder(PACKED, floats))).rejects.toThrow(
      "1 unexpected: model.layers.0.mlp.up_proj.weight_scale",
    );
  });
});

test("scales of GGUF files multiply what their matrices give", async () => {
  const config = {
    ...LLAMA,
    model_type: "bitnet",
    hidden_size: 256,
    intermediate_size: 256,
    head_dim: 64,
    max_position_embeddings: 64,
  };
  const { metadata, tensors } = ggufModel(config, tinyTensors(config), "bitnet");
  const isOwn = (name: string) => /blk\.0\.(attn_(q|k|v|output)|ffn_(gate|up|down))\.weight$/.test(name);
  // Blocks of TQ2_0, whose scale is 1 as float16, or 0.5; of Q4_1 with the same digits, and minus the scale beside it; of Q4_K, whose
  // scales and minimums are 1 times it; of IQ4_NL, with -10, 1 and 13 for digits.
  const blocks = (half: number, size: number, type: number) => {
    const random = createRandom(5);
    const digits = Uint8Array.from({ length: size }, () => random.int(0, 2));
    const bytesOf: Record<number, number> = { 3: 20 / 32, 12: 144 / 256, 20: 18 / 32, 35: 66 / 256 };
    const own = new Uint8Array(size * (bytesOf[type] as number));
    for (const [i, digit] of digits.entries())
      if (type === 12) own[(i >> 8) * 144 + 16 + 32 * ((i >> 6) & 3) + (i & 31)]! |= digit << (4 * ((i >> 5) & 1));
      else if (type === 35)
        own[Math.floor(i / 256) * 66 + ((i >> 7) & 1) * 32 + (i % 32)]! |= digit << (2 * ((i >> 5) & 3));
      else if (type === 20) own[(i >> 5) * 18 + 2 + (i % 16)]! |= (digit + 7) << (i % 32 < 16 ? 0 : 4);
      else own[(i >> 5) * 20 + 4 + (i % 16)]! |= digit << (i % 32 < 16 ? 0 : 4);
    const scales = [1, 1, 1, 1, 1, 1, 1, 1, 0x11, 0x11, 0x11, 0x11];
    if (type === 12) for (let at = 0; at < own.length; at += 144) own.set([0, half, 0, half, ...scales], at);
    else if (type === 35) for (let at = 65; at < own.length; at += 66) own[at] = half;
    else if (type === 20) for (let at = 1; at < own.length; at += 18) own[at] = half;
    else for (let at = 0; at < own.length; at += 20) own.set([0, half, 0, half | 0x80], at);
    return own;
  };
  const file = (half: number, scale: number | undefined, type = 35) => {
    const own = tensors.flatMap((tensor) => {
      if (!isOwn(tensor.name)) return [tensor];
      const floats = new Float32Array(tensor.shape.reduce((a, b) => a * b)).fill(half === 0x3c ? 1 : 0.5);
      const bytes = type === 0 ? new Uint8Array(floats.buffer) : blocks(half, floats.length, type);
      const factor = { name: tensor.name.replace("weight", "scale"), type: 0, shape: [1] };
      const data = new Uint8Array(Float32Array.of(scale ?? 0).buffer);
      return [{ ...tensor, type, bytes }, ...(scale === undefined ? [] : [{ ...factor, bytes: data }])];
    });
    return writeGguf({ metadata, tensors: own });
  };
  // Codes times a scale are integers with a scale and a minimum.
  const want = await logitsOf(file(0x38, undefined, 3), undefined, { gguf });
  expect(await logitsOf(file(0x3c, 0.5), undefined, { gguf })).toEqual(want);
  expect(await logitsOf(file(0x3c, 0.5, 3), undefined, { gguf })).toEqual(want);
  expect(await logitsOf(file(0x3c, 0.5, 12), undefined, { gguf })).toEqual(want);
  // Integers of 8 bits stay such.
  const entries = await logitsOf(file(0x38, undefined, 20), undefined, { gguf });
  expect(await logitsOf(file(0x3c, 0.5, 20), undefined, { gguf })).toEqual(entries);
  const floats = await logitsOf(file(0x38, undefined, 0), undefined, { gguf });
  expect(await logitsOf(file(0x3c, 0.5, 0), undefined, { gguf })).toEqual(floats);
});
